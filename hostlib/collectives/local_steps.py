"""A step of ranks that are summed on their machine first: the part of its first rank, and that of the others.

`hostlib.collectives.local_ranks` describes the step. Ranks talk through `hostlib.meet.machine`: each posts
what it has to the first, which tells all what came of it. The memory that they share has a room for the
result, one for the machine's sum, and one for each rank but the first.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from hostlib import _native
from hostlib.collectives import Collective, Engine
from hostlib.collectives.arrays import Staged
from hostlib.config import JobConfig
from hostlib.core import Peers
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
from hostlib.meet.machine import FirstEnd, OtherEnd
from hostlib.meet.private_folder import private_folder
from hostlib.wire import MAX_FAN_IN

CHUNK_BYTES: Final = 8 << 20
"""The most of an array that is summed at a time: a multiple of every packet's."""
_ROOM_BYTES: Final = CHUNK_BYTES + 4 * MAX_FAN_IN
"""A chunk, and a word for each machine."""
_KINDS: Final = {
    kind.__name__: kind for kind in (RanksDisagree, PeerTimeout, JobFault, Interrupted, JobBroken)
}

Check = Callable[[str, float], None]
"""Raises JobBroken if to wait is pointless; told who is waited for, and for how long at most, seconds."""


class First:
    """The part of a machine's first rank."""

    def __init__(self, config: JobConfig, inner: Engine) -> None:
        assert config.hosts is not None
        self._config = config
        self._inner = inner
        self._hosts = config.hosts
        self._ranks = config.hosts[config.worker]
        self._library = _native.load()
        try:
            memory_bytes = (1 + len(self._ranks)) * _ROOM_BYTES
            self._end = FirstEnd(
                _meeting_point(config), self._ranks[1:], config.size, config.token or "", memory_bytes
            )
        except BaseException:
            inner.close()
            raise
        self._rooms = _rooms(self._end.memory)

    def run(self, part: Collective, check: Check) -> Mapping[str, Any]:
        """Carry out a step; return what came of it."""
        others = ", ".join(map(str, self._ranks[1:]))
        posts = self._end.collect(lambda: check(f"rank {others}", self._config.straggler_timeout_s))
        posts[self._config.rank] = _post(part)
        self._compare(part, posts)
        outcome = self._sum(part)
        self._end.tell(outcome)
        count = len(part.staged.source)
        if part.options.residual is not None:
            divisor = self._config.size if part.average else 1
            np.multiply(self._rooms[1][: 4 * count].view(np.float32), divisor, out=part.staged.source)
        _take(part, self._rooms[0], self._config.rank)
        return outcome

    def fail(self, error: JobBroken) -> None:
        """Tell the others that the job is over."""
        self._end.tell(_told(error))

    def abort(self, reason: str, kind: type[JobBroken]) -> None:
        """End the collective that is under way in the switch."""
        self._inner.abort(reason, kind)

    def progress(self, done: int, total: int) -> None:
        """Note iterations, for the priority of packets."""
        self._inner.progress(done, total)

    def statistics(self) -> dict[str, float]:
        """Return the counters of the machine's worker, by `hostlib.collectives.KEYS`."""
        return self._inner.statistics()

    def close(self, peers: Peers, statistics: Mapping[str, float], rounds: int) -> None:
        """Leave the job; the worker reports."""
        self._inner.close()
        self._end.close()

    def _compare(self, part: Collective, posts: Mapping[int, Mapping[str, Any]]) -> None:
        """Raise RanksDisagree if the ranks of this machine do, after the others have been told."""
        if all(post["tag"] == part.tag for post in posts.values()):
            return
        told = "; ".join(f"{post['call']} at rank {rank}" for rank, post in sorted(posts.items()))
        error = RanksDisagree(f"ranks of a machine disagree: {told}", job=self._config.job, psns=NO_PACKETS)
        self._end.tell(_told(error))
        # With a digest that no other machine has: there, too, ranks are to hear of it.
        with contextlib.suppress(JobBroken):
            self._inner.run(part._replace(staged=_nothing_staged(), part="ranks of a machine disagree"))
        raise error

    def _sum(self, part: Collective) -> dict[str, Any]:
        """Sum on the machine, then in the switch: from room 1 into room 0."""
        staged = part.staged
        count, dtype = len(staged.source), staged.source.dtype
        is_int = dtype == np.int32
        words = len(self._hosts) if is_int else 0
        sums = self._rooms[1][: 4 * (count + words)].view(dtype)
        beyond = self._add_up(part, sums)
        if is_int:
            sums[count:] = 0
            sums[count + self._config.worker] = beyond + 1
        totals = self._rooms[0][: sums.nbytes].view(dtype)
        root = None if part.root is None else self._config.host_of(part.root)
        outcome: dict[str, Any] = {}
        options = part.options._replace(nonfinite="raise")
        step = part._replace(staged=staged_as(sums, totals), average=False, options=options, root=root)
        try:
            self._inner.run(step)
        except NonFiniteError as error:
            outcome["nonfinite"] = error.element
        except SumOverflow as error:
            outcome.update(overflow=error.element, why=error.reason)
        if is_int and "overflow" not in outcome and (where := totals[count:][totals[count:] > 0]).size:
            packet = self._config.lanes
            outcome.update(overflow=int(where.min() - 1) // packet * packet, why="left the int32 range")
        return outcome

    def _add_up(self, part: Collective, sums: NDArray[Any]) -> int:
        """Write the sum of the machine's ranks; return where it first leaves int32, or -1."""
        count = len(part.staged.source)
        inputs = [part.staged.source.ctypes.data]
        inputs += [room.ctypes.data for room in self._rooms[2:]]
        pointers = (ctypes.c_void_p * len(inputs))(*inputs)
        if sums.dtype == np.int32:
            return int(self._library.ina_local_sum_i32(sums.ctypes.data, pointers, len(inputs), count))
        divisor = float(self._config.size) if part.average else 1.0
        self._library.ina_local_sum_f32(sums.ctypes.data, pointers, len(inputs), count, divisor)
        return -1


class Other:
    """The part of every other rank of a machine."""

    def __init__(self, config: JobConfig) -> None:
        assert config.hosts is not None
        self._config = config
        ranks = config.hosts[config.worker]
        self._first = ranks[0]
        self._end = OtherEnd(
            _meeting_point(config), config.rank, config.size, config.token or "", self._first
        )
        self._rooms = _rooms(self._end.memory)
        self._own = self._rooms[1 + ranks.index(config.rank)]

    def run(self, part: Collective, check: Check) -> Mapping[str, Any]:
        """Carry out a step; return what came of it."""
        source = part.staged.source
        self._own[: source.nbytes].view(source.dtype)[:] = source
        if part.options.residual is not None:
            source[:] = 0  # it has gone on as it is: what the switch rounds off is the first rank's
        self._end.say(_post(part))
        # the first rank gives up by itself, and says so, before this one does
        limit_s = self._config.straggler_timeout_s + self._config.timeout_s
        outcome = self._end.hear(lambda: check(f"rank {self._first}", limit_s))
        if "error" in outcome:
            raise _error(outcome["error"], self._config.job)
        _take(part, self._rooms[0], self._config.rank)
        return outcome

    def fail(self, error: JobBroken) -> None:
        """Leave: the first rank says why to those that are left."""
        self._end.close()

    def abort(self, reason: str, kind: type[JobBroken]) -> None:
        """Do nothing: who waits looks up."""

    def progress(self, done: int, total: int) -> None:
        """Do nothing: the first rank's packets have the priority."""

    def statistics(self) -> dict[str, float]:
        """Return an empty dictionary: this rank sends no packets."""
        return {}

    def close(self, peers: Peers, statistics: Mapping[str, float], rounds: int) -> None:
        """Leave the job; no other process reports for this rank."""
        peers.report(statistics)
        peers.farewell(rounds)
        peers.close()
        self._end.close()


def staged_as(source: NDArray[Any], target: NDArray[Any]) -> Staged:
    """Return arrays that need no conversion, as if they had been staged."""
    return Staged(source, target, source.dtype, source.shape, None, lambda: None)


def _nothing_staged() -> Staged:
    return staged_as(np.empty(0, np.int32), np.empty(0, np.int32))


def _post(part: Collective) -> dict[str, Any]:
    text = f"call {part.number + 1}: {part.description}"
    return {"tag": part.tag, "call": text[:200]}


def _take(part: Collective, result: NDArray[np.uint8], rank: int) -> None:
    if part.root in (None, rank):
        target = part.staged.target
        target[:] = result[: target.nbytes].view(target.dtype)


def _told(error: JobBroken) -> dict[str, Any]:
    told: dict[str, Any] = {"kind": type(error).__name__, "text": str(error).partition(": ")[2]}
    told["psns"] = [error.psns.first, error.psns.last]
    told["missing"] = list(error.missing)
    if isinstance(error, PeerLost):
        told["reasons"] = sorted(error.reasons.items())
    return {"error": told}


def _error(told: Mapping[str, Any], job: int) -> JobBroken:
    psns = PsnRange(*told["psns"])
    if told["kind"] == PeerLost.__name__:
        return PeerLost(dict(told["reasons"]), job=job, psns=psns)
    return _KINDS[told["kind"]](told["text"], job=job, psns=psns, missing=told["missing"])


def _rooms(memory: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Return the rooms: the result, the machine's sum, and the part of each rank but the first."""
    return memory.reshape(-1, _ROOM_BYTES)


def _meeting_point(config: JobConfig) -> Path:
    """Return the path of the first rank's socket: only this user's processes can reach it."""
    import hashlib  # most jobs have no ranks that sum among themselves

    key = json.dumps([config.token, config.job, config.epoch, config.transport.switch, config.worker])
    return private_folder() / f"ranks-{hashlib.sha256(key.encode()).hexdigest()[:32]}"
