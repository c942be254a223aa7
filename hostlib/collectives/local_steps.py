"""Steps in which the ranks of a machine sum in shared memory.

`hostlib.collectives.local_ranks` describes a step. Three counters in the memory record the progress: how
many ranks have put their part of a step there (`_PUT`), how many have summed their shard (`_SUMMED`), and how
many steps have their result from the switch (`_RECEIVED`). A rank sleeps until the counter it needs is
reached.

Each buffer exists twice, for even and odd steps, so that a step is summed while the one before it is in the
switch. A rank writes into a buffer of step k once a counter has shown that no rank still reads it for step k
- 2.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from hostlib import _native
from hostlib.collectives import Collective, Engine
from hostlib.collectives.arrays import staged_as
from hostlib.config import JobConfig
from hostlib.errors import (
    NO_PACKETS,
    Interrupted,
    JobBroken,
    JobFault,
    NonFiniteError,
    PeerLost,
    PeerTimeout,
    PsnRange,
    RanksDisagree,
    SumOverflow,
)
from hostlib.meet.connections import private_path
from hostlib.meet.machine import FirstEnd, OtherEnd
from hostlib.wire import MAX_FAN_IN

CHUNK_BYTES: Final = 8 << 20
"""Maximum number of bytes of an array in a step: a multiple of the bytes that any packet carries."""
_ROOM_BYTES: Final = CHUNK_BYTES + 4 * MAX_FAN_IN
"""Number of bytes of a buffer: a chunk, and a word for each machine."""
_LOOK_NS: Final = 250_000_000
"""Interval, in nanoseconds, at which a waiting rank checks whether to give up."""
_PUT, _SUMMED, _RECEIVED = 0, 64, 128
"""Offsets of the three counters in the memory; each counter has a cache line of its own."""
_COUNTS_BYTES: Final = 192
_NEVER: Final = 1 << 62
"""Number of a step that no job reaches."""
NONE: Final = 1 << 62
"""Number of an element that means "no element"."""
_UNFIT: Final = np.dtype([("nonfinite", np.int64), ("overflow", np.int64)])
"""Number of the first element of a step's sum that is not finite, and of the first that is out of range.
`NONE` if there is no such element."""
_POST: Final = np.dtype([("tag", np.int64), *_UNFIT.descr, ("call", "S232")])
"""A rank's report of a step: tag and description of its call, and where the sum of its shard is not finite or
out of range (`_UNFIT`)."""
_KINDS: Final = {
    kind.__name__: kind for kind in (RanksDisagree, PeerTimeout, JobFault, Interrupted, JobBroken)
}

Patience = Callable[[], Callable[[], None]]
"""Function to call when a wait begins; it returns a function that raises JobBroken or RankGone to end the
wait."""


class LocalSteps:
    """The steps of a collective, as one rank carries them out."""

    def __init__(self, config: JobConfig, inner: Engine | None, patience: Patience) -> None:
        """Connect to the other ranks of this machine, and share memory with them.

        Args:
            config: This rank's configuration.
            inner: At the machine's first rank, the engine that sums over machines; None at other ranks, and
                without a switch.
            patience: Called at the start of a wait; see `Patience`.

        Raises RendezvousError if the other ranks do not connect in time.
        """
        assert config.hosts is not None
        self._config = config
        self._inner = inner
        self._patience = patience
        self._ranks = ranks = config.hosts[config.worker]
        self._alone = config.transport.kind == "none"
        self._index = ranks.index(config.rank)
        self._sum_here = slice(None) if self._alone else slice(1, None) if len(ranks) > 2 else slice(1)
        """Ranks that sum shards. If there are two ranks, only the first sums: it reads its own array in
        place, not a copy."""
        self._summers = ranks[self._sum_here]
        self._number = (*self._summers, config.rank).index(config.rank)
        """Number of this rank's shard. A rank that does not sum has the number of an empty shard behind the
        last one."""
        self._each = {_PUT: len(ranks), _SUMMED: len(self._summers), _RECEIVED: 1}
        posts_bytes = 2 * len(ranks) * _POST.itemsize
        memory_bytes = _COUNTS_BYTES + posts_bytes + 2 * (len(ranks) + 2) * _ROOM_BYTES
        path, secret = _meeting_point(config), config.token or ""
        self.end: FirstEnd | OtherEnd
        if self._index == 0:
            self.end = FirstEnd(path, ranks[1:], config.size, secret, memory_bytes)
        else:
            self.end = OtherEnd(path, config.rank, config.size, secret, ranks[0])
        memory = self.end.memory
        self._posts = memory[_COUNTS_BYTES:][:posts_bytes].view(_POST).reshape(2, -1)
        self._rooms = memory[_COUNTS_BYTES + posts_bytes :].reshape(2, -1, _ROOM_BYTES)
        """Buffers for even and odd steps: each rank's part, this machine's sum, the sum of all machines."""
        self._counts = memory.ctypes.data
        self._library = _native.load()
        self._done = 0

    def run(self, parts: Sequence[Collective]) -> NDArray[Any]:
        """Carry out the steps of a collective. Raises JobBroken, RankGone.

        Returns for each step the number of the first ``nonfinite`` and the first ``overflow`` element, or
        `NONE`.
        """
        first, found = self._done, np.empty(len(parts), _UNFIT)
        self._done += len(parts)
        self._put(first, parts[0])
        for number in range(len(parts) + 1):
            step = first + number
            if number < len(parts):
                self._await(_PUT, step)
                self._compare(step, parts[number])
                self._sum(step, parts[number])
            if number > 0:
                found[number - 1] = self._take(step - 1, parts[number - 1])
            if number + 1 < len(parts):
                self._put(step + 1, parts[number + 1])
            if self._inner is not None and number < len(parts):
                self._exchange(step, parts[number], self._inner)
        return found

    def fail(self, error: JobBroken) -> None:
        """End the job here: the first rank sends `error` to the others; any other rank only disconnects."""
        self.end.give_up(_error_fields(error))

    def _put(self, step: int, part: Collective) -> None:
        """Copy this rank's array, except the shard that this rank sums, to the shared memory."""
        source = part.staged.source
        room = self._rooms[step % 2, self._index][: source.nbytes].view(source.dtype)
        first, last = self._shard(part)
        room[:first] = source[:first]
        room[last:] = source[last:]
        post = self._posts[step % 2, self._index]
        post["tag"], post["call"] = part.tag, f"call {part.number + 1}: {part.description}"[:200].encode()
        self._note(_PUT)

    def _compare(self, step: int, part: Collective) -> None:
        """Raise RanksDisagree if the calls of this machine's ranks differ.

        First wait until all ranks of the machine know that they differ.
        """
        posts = self._posts[step % 2]
        if (posts["tag"] == part.tag).all():
            return
        if self._index:
            self._await(_RECEIVED, _NEVER)  # until the first rank sends the error
        calls = zip(self._ranks, posts["call"].tolist(), strict=True)
        listed = "; ".join(f"{call.decode(errors='ignore')} at rank {rank}" for rank, call in sorted(calls))
        error = RanksDisagree(
            f"the ranks of this machine made different calls: {listed}", job=self._config.job, psns=NO_PACKETS
        )
        self.fail(error)
        if self._inner is not None:
            # With a digest that no other machine has, so that other machines' ranks raise, too.
            with contextlib.suppress(JobBroken):
                nothing = np.empty(0, np.int32)
                staged = staged_as(nothing, nothing)
                self._inner.run(part._replace(staged=staged, part="ranks of a machine disagree"))
        raise error

    def _shard(self, part: Collective) -> tuple[int, int]:
        """Return the range (first, end) of elements that this rank sums; shards are whole cache lines."""
        count, summers = len(part.staged.source), len(self._summers)
        begins = [count * each // summers // 16 * 16 for each in range(summers)] + [count, count]
        return begins[self._number], begins[self._number + 1]

    def _sum(self, step: int, part: Collective) -> None:
        """Sum this rank's shard, if it has one."""
        if self._number == len(self._summers):
            return
        source, rooms, post = part.staged.source, self._rooms[step % 2], self._posts[step % 2, self._index]
        first, last = self._shard(part)
        at = first * source.itemsize
        inputs = [room.ctypes.data + at for room in rooms[: len(self._ranks)]]
        inputs[self._index] = source.ctypes.data + at
        pointers = (ctypes.c_void_p * len(inputs))(*inputs)
        summed = rooms[-2].ctypes.data + at, pointers, len(inputs), last - first
        post["nonfinite"] = post["overflow"] = NONE
        if source.dtype == np.int32:
            beyond, what = self._library.ina_local_sum_i32(*summed), "overflow"
        else:
            divisor = float(self._config.size) if part.average else 1.0
            beyond, what = self._library.ina_local_sum_f32(*summed, divisor), "nonfinite"
        if beyond >= 0:
            post[what] = first + beyond
        self._note(_SUMMED)

    def _exchange(self, step: int, part: Collective, inner: Engine) -> None:
        """Sum over all machines, from the buffer with this machine's sum to the buffer for the sum of all."""
        self._await(_SUMMED, step)
        source, posts = part.staged.source, self._posts[step % 2]
        count, is_int = len(source), source.dtype == np.int32
        bytes_there = source.nbytes + 4 * self._config.workers * is_int
        sums, totals = (room[:bytes_there].view(source.dtype) for room in self._rooms[step % 2, -2:])
        if is_int:
            sums[count:] = 0
            if (beyond := posts["overflow"][self._sum_here].min()) != NONE:
                sums[count + self._config.worker] = beyond + 1
        root = None if part.root is None else self._config.host_of(part.root)
        options = part.options._replace(nonfinite="raise")
        nonfinite = overflow = NONE
        try:
            inner.run(
                part._replace(staged=staged_as(sums, totals), average=False, options=options, root=root)
            )
        except NonFiniteError as error:
            nonfinite = error.element
        except SumOverflow as error:
            overflow = error.element
        if overflow == NONE and (words := totals[count:][totals[count:] > 0]).size:
            overflow = int(words.min() - 1) // self._config.lanes * self._config.lanes
        posts[0]["nonfinite"], posts[0]["overflow"] = nonfinite, overflow
        self._note(_RECEIVED)

    def _take(self, step: int, part: Collective) -> tuple[int, int]:
        """Copy the result to the target; with a residual, leave the rounding error in the source."""
        self._await(_SUMMED if self._alone else _RECEIVED, step)
        source, target = part.staged.source, part.staged.target
        rooms, posts = self._rooms[step % 2], self._posts[step % 2]
        if part.root in (None, self._config.rank):
            target[:] = rooms[-2 if self._alone else -1][: target.nbytes].view(target.dtype)
        if part.options.residual is not None:
            source[:] = 0  # the machine summed it exactly: the switch's rounding error is the first rank's
            if self._inner is not None:
                divisor = self._config.size if part.average else 1
                np.multiply(rooms[-2][: source.nbytes].view(np.float32), divisor, out=source)
        posts = posts if self._alone else posts[:1]
        return posts["nonfinite"].min(), posts["overflow"].min()

    def _note(self, what: int) -> None:
        self._library.ina_local_note(self._counts + what, self._each[what])

    def _await(self, what: int, step: int) -> None:
        """Wait until all ranks that count in counter `what` have counted step number `step`.

        Raises JobBroken or RankGone if the wait is pointless (`Patience`).
        """
        where, wanted, check = self._counts + what, self._each[what] * (step + 1), None
        while not self._library.ina_local_reach(where, wanted, _LOOK_NS):
            check = check or self._patience()
            check()


def _error_fields(error: JobBroken) -> dict[str, Any]:
    fields: dict[str, Any] = {"kind": type(error).__name__, "text": str(error).partition(": ")[2]}
    fields["psns"] = [error.psns.first, error.psns.last]
    fields["missing"] = list(error.missing)
    if isinstance(error, PeerLost):
        fields["reasons"] = list(error.reasons.items())
    return fields


def received_error(fields: Mapping[str, Any], job: int) -> JobBroken:
    """Return the error that the first rank has sent."""
    psns = PsnRange(*fields["psns"])
    if fields["kind"] == PeerLost.__name__:
        return PeerLost(dict(fields["reasons"]), job=job, psns=psns)
    return _KINDS[fields["kind"]](fields["text"], job=job, psns=psns, missing=fields["missing"])


def _meeting_point(config: JobConfig) -> Path:
    """Return the path of the first rank's socket: only this user's processes can reach it."""
    key = json.dumps([config.token, config.job, config.epoch, config.transport.switch, config.worker])
    return private_path("ranks", key)
