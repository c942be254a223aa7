"""The fallback server's core in numpy: the same decisions, the same bytes as ``_native/ina_fallback.c``."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from hostlib import wire
from hostlib.core.state import NEVER
from hostlib.fallback.config import (
    BATCH,
    LEVELS,
    Count,
    FallbackJob,
    FallbackSettings,
    require_room,
)
from hostlib.fallback.core import FallbackCore
from tests.twins.fallback_intake import Intake
from tests.twins.fallback_packets import header_of
from tests.twins.fallback_store import Entry, Job, Phase, Store


class NumpyCore(FallbackCore):
    """`hostlib.fallback.core.FallbackCore` in numpy."""

    def __init__(self, settings: FallbackSettings) -> None:
        self.settings = settings
        self._jobs: dict[int, FallbackJob] = {}
        self._store = Store(settings)
        self._intake = Intake(self._store, settings.prefix_bytes)
        self._prefix = settings.prefix_bytes
        self._forget_ns = round(settings.forget_s * 1e9)

    def add_job(self, job: FallbackJob) -> None:
        """Serve a job from now on. Raises ConfigError."""
        require_room(self.settings, job, self._jobs)
        self._jobs[job.job] = job
        self._store.jobs[job.job] = Job(job, self.settings)

    def remove_job(self, job: int) -> None:
        """Forget a job and all of its entries. Raises KeyError for an unknown one."""
        del self._jobs[job]
        gone = self._store.jobs[job]
        for entry in list(gone.entries.values()):
            self._store.forget(gone, entry, Count.FORGOTTEN)
        del self._store.jobs[job]

    def absorb(self, data: NDArray[Any], segment: int, now: int) -> None:
        """Take in received packets: `segment` bytes each, the last may be shorter."""
        for start in range(0, len(data), segment):
            self._intake.take(data[start : start + segment], now)

    def emit(self, out: NDArray[Any], now: int) -> tuple[int, int]:
        """Write packets of one length to `out`; return how many, and that length."""
        size = self.settings.result_bytes
        count = 0
        results = self._store.results
        while results and count < min(BATCH, len(out) // size):
            job, entry = results.pop(next(iter(results)))
            self._write_result(out[count * size : (count + 1) * size], job, entry)
            entry.sent_at = now
            count += 1
        if count:
            return count, size
        size = self._prefix + wire.INA_BYTES
        room = min(BATCH, len(out) // size)
        while self._store.statuses and count < room:
            job, entry, index = self._store.statuses.popleft()
            entry.asked = -1
            if entry.alive and entry.phase is not Phase.FINISHED:
                bitmap = job.bitmaps(entry)[index]
                packet = out[count * size : (count + 1) * size]
                self._write_short(packet, job, entry, wire.KIND_STATUS, index, bitmap, 0)
                job.counters[Count.STATUSES] += 1
                count += 1
        if not count:
            count = self._remind(out, size, room, now)
        return count, size

    def next_timeout(self) -> int:
        """Return when `emit` will have a reminder to send, or `NEVER`."""
        due = NEVER
        for job in self._store.jobs.values():
            for level, entries in enumerate(job.waiting):
                for entry in entries.values():
                    due = min(due, entry.at + job.delay(level))
                    break
        return due

    def statistics(self) -> dict[int | None, dict[str, int]]:
        """Return the counters of every job; under None, what could not be attributed to a job."""
        found: dict[int | None, dict[str, int]] = {
            None: {count.name.lower(): self._store.counters[count] for count in Count}
        }
        for job in self._store.jobs.values():
            found[job.id] = {count.name.lower(): job.counters[count] for count in Count} | {
                "entries": len(job.entries),
                "unfinished": len(job.entries) - len(job.finished),
                "pieces": job.pieces,
            }
        return found

    def _remind(self, out: NDArray[Any], size: int, room: int, now: int) -> int:
        """Write the reminders that are due; return how many."""
        count = 0
        for job in self._store.jobs.values():
            for level in range(LEVELS):
                while waiting := job.waiting[level]:
                    entry = next(iter(waiting.values()))
                    if entry.at + job.delay(level) > now:
                        break
                    if job.is_stale(entry.psn):
                        self._store.forget(job, entry, Count.EXPIRED)
                        continue
                    if now - entry.heard_at >= self._forget_ns:
                        self._store.forget(job, entry, Count.FORGOTTEN)
                        continue
                    missing = job.missing(entry)
                    if count and count + len(missing) > room:
                        return count
                    flags = wire.FLAG_RAW if entry.phase is Phase.REPAIRING else 0
                    for node, bitmap in missing[: room - count]:
                        packet = out[count * size : (count + 1) * size]
                        index = job.node_index[node.id]
                        self._write_short(packet, job, entry, wire.KIND_REMINDER, index, bitmap, flags)
                        job.counters[Count.REMINDERS] += 1
                        count += 1
                    entry.reminded_at = now
                    job.enlist(entry, min(level + 1, LEVELS - 1), now)
        return count

    def _write_result(self, packet: NDArray[Any], job: Job, entry: Entry) -> None:
        flags, lanes = entry.flags, entry.pieces[0].lanes if entry.phase is Phase.FINISHED else None
        if entry.phase is Phase.REPAIRING:
            flags |= wire.FLAG_OVERFLOW
        if flags & wire.FLAG_DISAGREE:
            lanes = None
        header = header_of(job, entry, wire.KIND_RESULT, 0, job.nodes[0].full, flags)
        header["valid"], header["lanes"] = entry.valid, self.settings.lanes
        if entry.phase is Phase.REPAIRING:
            header["valid"] = entry.valid & ~wire.VALID_INT32
        values = np.zeros(self.settings.lanes, ">i4") if lanes is None else lanes.astype(">i4")
        data = self.settings.prefix(self.settings.lanes) + header.tobytes() + values.tobytes()
        packet[:] = np.frombuffer(data, np.uint8)

    def _write_short(
        self, packet: NDArray[Any], job: Job, entry: Entry, kind: int, index: int, bitmap: int, flags: int
    ) -> None:
        header = header_of(job, entry, kind, index, bitmap, flags)
        packet[:] = np.frombuffer(self.settings.prefix(0) + header.tobytes(), np.uint8)
