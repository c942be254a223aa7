"""What the packets that come in mean, in numpy: as ``_native/ina_fallback.c``."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from hostlib import wire
from hostlib.fallback.config import STATUS_QUEUE, Count
from tests.twins.fallback_packets import (
    Header,
    add,
    can_be_repaired,
    is_ours,
    rank_of,
    raw_sum,
    refusal,
    swapped,
)
from tests.twins.fallback_store import Entry, Job, Phase, Piece, Store

_MARKS = wire.FLAG_ECN | wire.FLAG_COLLISION | wire.FLAG_BYPASS
_STICKY = wire.FLAG_OVERFLOW | wire.FLAG_DISAGREE | _MARKS


def _note(job: Job, entry: Entry, header: Header, flags: int) -> None:
    """Take over what a contribution says of the whole sum, and of its flags these."""
    entry.flags |= header.flags & flags
    entry.exponent = max(entry.exponent, header.exponent)
    entry.priority = max(entry.priority, header.priority)
    entry.valid = min(entry.valid, header.valid)
    job.counters[Count.MERGED] += 1


class Intake:
    """Merges what comes in into the entries of a store, and queues what is to be sent for it."""

    def __init__(self, store: Store, prefix_bytes: int) -> None:
        self._store = store
        self._prefix = prefix_bytes

    def take(self, packet: NDArray[Any], now: int) -> None:
        """Take in a packet, whatever it is."""
        start = self._prefix + wire.INA_BYTES
        if len(packet) < start:
            self._store.counters[Count.BAD_LENGTH] += 1
            return
        if self._prefix and not is_ours(packet):
            self._store.counters[Count.FOREIGN] += 1
            return
        fields = np.frombuffer(packet[self._prefix : start].tobytes(), wire.HEADER_DTYPE)[0].tolist()
        header = Header._make(fields)
        if header.version_kind >> 4 != wire.INA_VERSION:
            self._store.counters[Count.BAD_VERSION] += 1
            return
        kind = header.version_kind & 0x0F
        if kind not in (wire.KIND_PARTIAL, wire.KIND_RESULT):
            self._store.counters[Count.BAD_KIND] += 1
            return
        job = self._store.jobs.get(header.job)
        if job is None:
            self._store.counters[Count.UNKNOWN_JOB] += 1
            return
        job.counters[Count.PACKETS] += 1
        reason = refusal(job, header, kind, self._store.lanes, len(packet) - start)
        if reason is not None:
            job.counters[reason] += 1
            return
        lanes = packet[start : start + 4 * self._store.lanes]
        if not header.lanes:
            lanes = np.zeros(4 * self._store.lanes, np.uint8)
        if kind == wire.KIND_RESULT:
            self._take_result(job, header, lanes, now)
            return
        job.counters[Count.GRADIENT_BYTES] += 4 * header.lanes
        job.advance(header.psn)
        if header.flags & wire.FLAGS_OF_ANSWER == wire.FLAGS_OF_ANSWER:
            header = header._replace(flags=header.flags & ~wire.FLAG_BYPASS)
            if header.psn not in job.entries:
                job.counters[Count.UNASKED] += 1
                return
        self._take_partial(job, header, lanes, now)

    def _take_result(self, job: Job, header: Header, lanes: NDArray[Any], now: int) -> None:
        """Finish an entry with the answer of somebody who has the result."""
        entry = job.entries.get(header.psn)
        only_tells = not header.lanes and header.flags & wire.FLAG_RESEND
        is_final = not header.flags & wire.FLAG_OVERFLOW or header.flags & wire.FLAG_RAW
        wanted = entry is not None and (
            entry.phase is Phase.SUMMING
            or (entry.phase is Phase.REPAIRING and is_final)
            or (entry.phase is Phase.FINISHED and is_final and can_be_repaired(entry))
        )
        if entry is None or not wanted or only_tells:
            job.counters[Count.UNASKED] += 1
            job.advance(header.psn + (job.window or 0))
            return
        entry.heard_at = now
        entry.priority = header.priority
        entry.exponent = header.exponent
        entry.valid = header.valid
        entry.flags = header.flags & ~(wire.FLAG_RESEND | wire.FLAG_QUERY | wire.FLAG_BYPASS) | (
            entry.flags & (wire.FLAG_BYPASS | wire.FLAG_DISAGREE)  # what counts for all is as in the answer
        )
        if header.tag != entry.tag:
            entry.flags |= wire.FLAG_DISAGREE
        job.counters[Count.ANSWERS] += 1
        self._finish(job, entry, swapped(lanes), now)

    def _take_partial(self, job: Job, header: Header, lanes: NDArray[Any], now: int) -> None:
        entry = job.entries.get(header.psn)
        if entry is None:
            self._take_first(job, header, lanes, now)
            return
        entry.heard_at = now
        is_raw = bool(header.flags & wire.FLAG_RAW)
        if entry.phase is Phase.FINISHED and not (is_raw and can_be_repaired(entry)):
            job.counters[Count.LATE] += 1
            self._reply(job, entry, now)
        elif header.tag != entry.tag or header.flags & wire.FLAG_DISAGREE:
            entry.flags |= wire.FLAG_DISAGREE
            self._finish(job, entry, None, now)
        elif is_raw:
            if entry.phase is not Phase.REPAIRING:
                self._start_repair(job, entry, header, now)
            self._take_raw(job, entry, header, lanes, now)
        elif entry.phase is Phase.REPAIRING:
            job.counters[Count.LATE] += 1
            self._reply(job, entry, now)
        else:
            self._take_sum(job, entry, header, lanes, now)

    def _take_first(self, job: Job, header: Header, lanes: NDArray[Any], now: int) -> None:
        """Take in a partial of a PSN of which nothing is known."""
        index = job.node_index[header.node]
        room = self._store.place(job, header.psn, None)
        if room is None:
            return
        entry = Entry(header.psn, header.tag, header.target, header.valid, first_at=now, at=now, heard_at=now)
        job.entries[header.psn] = entry
        room[:] = swapped(lanes)
        is_raw = bool(header.flags & wire.FLAG_RAW)
        if is_raw:
            entry.phase = Phase.REPAIRING
        self._store.keep(job, entry, rank_of(job, header) if is_raw else index, Piece(header.bitmap, room))
        _note(job, entry, header, _MARKS | wire.FLAG_DISAGREE if is_raw else _STICKY)
        job.enlist(entry, 0, now)
        if header.flags & wire.FLAG_DISAGREE:
            self._finish(job, entry, None, now)
        elif is_raw:
            self._settle_raw(job, entry, header, index, now)
        else:
            self._settle_sum(job, entry, header, index, now)

    def _take_sum(self, job: Job, entry: Entry, header: Header, lanes: NDArray[Any], now: int) -> None:
        """Merge a sum into an entry, if they have no contribution in common."""
        index = job.node_index[header.node]
        piece = entry.pieces.get(index)
        common = piece.bitmap & header.bitmap if piece else 0
        contains = bool(piece) and common != header.bitmap and common == piece.bitmap  # type: ignore[union-attr]
        covered = job.covered(entry, index)
        if (common and not contains) or covered:
            job.counters[Count.OVERLAPS] += 1
            if piece and not covered and header.bitmap & ~piece.bitmap:
                job.hasten(entry, now)
            if header.flags & wire.FLAG_QUERY:
                self._ask(job, entry, index)
            return
        self._drop_below(job, entry, index, header.bitmap)
        if piece is None:
            room = self._store.place(job, header.psn, entry)
            if room is None:
                return
            room[:] = swapped(lanes)
            self._store.keep(job, entry, index, Piece(header.bitmap, room))
        elif contains:
            piece.lanes[:] = swapped(lanes)
            piece.bitmap = header.bitmap
        else:
            add(entry, piece, swapped(lanes))
            piece.bitmap |= header.bitmap
        _note(job, entry, header, _STICKY)
        job.enlist(entry, 0, now)
        self._settle_sum(job, entry, header, index, now)

    def _drop_below(self, job: Job, entry: Entry, index: int, bitmap: int) -> None:
        """Drop the sums of nodes below `index` that are in this bitmap of it."""
        for key in list(entry.pieces):
            below = key
            while below:
                node = job.nodes[below]
                if node.parent == index and node.bit & bitmap:
                    self._store.drop(job, entry, key)
                    break
                below = node.parent

    def _settle_sum(self, job: Job, entry: Entry, header: Header, index: int, now: int) -> None:
        """Pass a sum that is full up the tree; answer a query if the entry is still not complete."""
        piece = entry.pieces[index]
        at = index
        while at and piece.bitmap == job.nodes[at].full:
            node = job.nodes[at]
            self._store.drop(job, entry, at)
            above = entry.pieces.get(node.parent)
            if above is None:
                piece.bitmap = node.bit
                self._store.keep(job, entry, node.parent, piece)
            else:
                add(entry, above, piece.lanes)
                above.bitmap |= node.bit
                piece = above
            at = node.parent
        if at == 0 and piece.bitmap == job.nodes[0].full:
            surprised = entry.reminded_at < 0 or now - entry.reminded_at > job.remind_ns
            if surprised and not header.flags & wire.FLAG_RESEND:
                job.measure(now - entry.first_at)
            self._finish(job, entry, piece.lanes, now)
        elif header.flags & wire.FLAG_QUERY:
            self._ask(job, entry, index)

    def _start_repair(self, job: Job, entry: Entry, header: Header, now: int) -> None:
        """Forget the sums: they are wrong, and raw values are on their way."""
        for key in list(entry.pieces):
            self._store.drop(job, entry, key)
        self._store.results.pop((job.id, entry.psn), None)
        entry.phase = Phase.REPAIRING
        entry.flags &= _MARKS
        entry.valid = header.valid
        entry.first_at = now
        entry.sent_at = -1
        entry.reminded_at = -1
        job.enlist(entry, 0, now)

    def _take_raw(self, job: Job, entry: Entry, header: Header, lanes: NDArray[Any], now: int) -> None:
        """Keep a rank's raw values."""
        index = job.node_index[header.node]
        rank = rank_of(job, header)
        if (header.valid ^ entry.valid) & wire.VALID_INT32:
            job.counters[Count.BAD_LANES] += 1
            return
        if rank in entry.pieces:
            job.counters[Count.OVERLAPS] += 1
            if header.flags & wire.FLAG_QUERY:
                self._ask(job, entry, index)
            return
        room = self._store.place(job, header.psn, entry)
        if room is None:
            return
        room[:] = swapped(lanes)
        self._store.keep(job, entry, rank, Piece(0, room))
        _note(job, entry, header, _MARKS)
        job.enlist(entry, 0, now)
        self._settle_raw(job, entry, header, index, now)

    def _settle_raw(self, job: Job, entry: Entry, header: Header, index: int, now: int) -> None:
        """Add the raw values up if all are in."""
        if len(entry.pieces) < job.ranks:
            if header.flags & wire.FLAG_QUERY:
                self._ask(job, entry, index)
            return
        ordered = [entry.pieces[rank].lanes for rank in range(job.ranks)]
        result = raw_sum(ordered, is_int=bool(entry.valid & wire.VALID_INT32))
        entry.flags |= wire.FLAG_RAW
        if result is None:
            entry.flags |= wire.FLAG_OVERFLOW
            result = np.zeros_like(ordered[0])
        job.counters[Count.REPAIRS] += 1
        self._finish(job, entry, result, now)

    def _finish(self, job: Job, entry: Entry, result: NDArray[np.int32] | None, now: int) -> None:
        """Keep the result (None: there is no right one), and queue it for everybody."""
        keys = iter(list(entry.pieces))
        piece = entry.pieces[next(keys)]
        for key in keys:
            self._store.drop(job, entry, key)
        if result is not None:
            piece.lanes[:] = result
        if entry.flags & wire.FLAG_DISAGREE:
            job.counters[Count.DISAGREEMENTS] += 1
        entry.pieces = {0: piece}
        entry.phase = Phase.FINISHED
        job.waiting[entry.level].pop(entry.psn, None)
        job.finished.pop(entry.psn, None)
        entry.level = 0
        job.finished[entry.psn] = entry
        job.counters[Count.RESULTS] += 1
        self._store.results[job.id, entry.psn] = (job, entry)
        if not entry.flags & wire.FLAG_DISAGREE:
            job.advance(entry.psn + (job.window or 0))
        while job.finished:
            oldest = next(iter(job.finished.values()))
            if oldest is entry or not job.is_stale(oldest.psn):
                break
            self._store.forget(job, oldest, Count.EXPIRED)
        self._store.hasten_starved(now)

    def _reply(self, job: Job, entry: Entry, now: int) -> None:
        """Queue a result, or under repair the notice of the overflow, unless that was sent just now."""
        recently = entry.sent_at >= 0 and now - entry.sent_at < job.remind_ns
        if not recently and (job.id, entry.psn) not in self._store.results:
            self._store.results[job.id, entry.psn] = (job, entry)
            job.counters[Count.REPLAYS] += 1

    def _ask(self, job: Job, entry: Entry, index: int) -> None:
        if entry.asked != index and len(self._store.statuses) < STATUS_QUEUE:
            self._store.statuses.append((job, entry, index))
            entry.asked = index
