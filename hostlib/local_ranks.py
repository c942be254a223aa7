"""Local ranks first: the ranks of a machine are summed in their memory, and its first rank speaks for them.

So the switch has one worker per machine, and a machine's link carries one stream, however many ranks it has
(Horovod's hierarchical allreduce). A step, of `CHUNK_BYTES` at most:

1. every rank writes its part into memory that the machine's ranks share, and tells the first one what it is;
2. the first adds them up (``_native/ina_local.c``), and the switch adds up the machines' sums, in place;
3. the first tells the others what came of it, and all take the result.

What ranks must agree on is compared on the machine first; where its ranks differ, the other machines see that
they do in the switch. A sum of int32 that a machine cannot hold is a word of its own behind the values, one
for each machine, so that all ranks raise the same.
"""

from __future__ import annotations

import contextlib
import ctypes
import hashlib
import json
import logging
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from hostlib import _native
from hostlib.arrays import Staged
from hostlib.collectives import Collective
from hostlib.config import JobConfig
from hostlib.engine import SwitchEngine
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
from hostlib.io.machine import FirstEnd, OtherEnd, RankGone
from hostlib.peers import Peers
from hostlib.private_folder import private_folder
from hostlib.wire import MAX_FAN_IN

CHUNK_BYTES: Final = 8 << 20
"""The most of an array that is summed at a time: a multiple of every packet's."""
_ROOM_BYTES: Final = CHUNK_BYTES + 4 * MAX_FAN_IN
"""A chunk, and a word for each machine."""
_NEWS_S: Final = 1.0
"""Longest wait for the reason why a rank is gone, once its connection has ended."""
_KINDS: Final = {
    kind.__name__: kind for kind in (RanksDisagree, PeerTimeout, JobFault, Interrupted, JobBroken)
}

_log = logging.getLogger("hostlib")


class LocalRanks:
    """The engine of a rank whose machine has one worker in the switch (`hostlib.collectives.Engine`)."""

    def __init__(self, config: JobConfig, peers: Peers) -> None:
        """Meet the other ranks of this machine.

        Raises:
            ConfigError, NativeMissing: as `SwitchEngine`.
            RendezvousError: they are not there.
        """
        assert config.hosts is not None
        self._config = config
        self._peers = peers
        self._host = config.worker
        self._ranks = config.hosts[self._host]
        self._broken: JobBroken | None = None
        self._aborted: tuple[type[JobBroken], str] | None = None
        self._rounds = 0
        self._calls = 0
        self._elements = 0
        self._busy_ns = 0
        self._step: _First | _Other
        if config.rank == self._ranks[0]:
            self._step = _First(config, SwitchEngine(config, peers))
        else:
            self._step = _Other(config)

    def run(self, collective: Collective) -> None:
        """Sum on this machine, then through the switch. Raises InaError; after a JobBroken nothing more."""
        if self._broken:
            raise self._broken
        started = time.monotonic_ns()
        outcomes = []
        try:
            for first, count in chunks(len(collective.staged.source)):
                outcomes.append((first, self._step.run(_part(collective, first, count), _Patience(self))))
                self._rounds += 1
        except RankGone as gone:
            self._give_up(self._lost(gone.rank))
        except JobBroken as error:
            self._give_up(error)
        except BaseException as error:
            reason = f"{collective.description} was abandoned: {error!r}"
            self._broken = Interrupted(reason, job=self._config.job, psns=NO_PACKETS)
            self._step.fail(self._broken)
            raise
        self._calls += collective.calls
        self._elements += len(collective.staged.source)
        self._busy_ns += time.monotonic_ns() - started
        self._raise_numeric_errors(collective, outcomes)

    def abort(self, reason: str, kind: type[JobBroken]) -> None:
        """Have what is under way, and all that is run later, raise `kind`, the first time for good."""
        self._aborted = self._aborted or (kind, reason)
        self._step.abort(reason, kind)

    def progress(self, done: int, total: int) -> None:
        """Note that `done` of `total` iterations are over; the machine's first rank counts."""
        self._step.progress(done, total)

    def statistics(self) -> dict[str, float]:
        """Return counters since the start; packets are those of the machine's first rank."""
        own = {"elements": float(self._elements), "time_s": self._busy_ns / 1e9}
        return {**self._step.statistics(), "collectives": float(self._calls), **own}

    def close(self) -> None:
        """Leave the job."""
        self._step.close(self._peers, self.statistics(), self._rounds)

    def _give_up(self, error: JobBroken) -> None:
        self._broken = error
        self._step.fail(error)
        raise error

    def _lost(self, rank: int) -> JobBroken:
        """Return what is known of a rank whose connection has ended."""
        job = self._config.job
        deadline = time.monotonic() + _NEWS_S
        while time.monotonic() < deadline:
            if self._aborted:
                kind, reason = self._aborted
                return kind(reason, job=job, psns=NO_PACKETS)
            if fault := self._peers.fault():
                return JobFault(fault, job=job, psns=NO_PACKETS)
            if gone := self._peers.gone():
                return PeerLost(gone, job=job, psns=NO_PACKETS)
            if (number := self._peers.left().get(rank)) is not None:
                why = f"it left the job after {number} collective{'s' if number != 1 else ''}"
                return PeerLost({rank: why}, job=job, psns=NO_PACKETS)
            time.sleep(0.02)
        return PeerLost({rank: "its connection to this machine's ranks closed"}, job=job, psns=NO_PACKETS)

    def _raise_numeric_errors(
        self, collective: Collective, outcomes: Sequence[tuple[int, Mapping[str, Any]]]
    ) -> None:
        for first, outcome in outcomes:
            if (element := outcome.get("overflow")) is not None:
                raise SumOverflow(self._config.job, NO_PACKETS, first + element, outcome["why"])
        if collective.nonfinite == "propagate":
            return
        for first, outcome in outcomes:
            if (element := outcome.get("nonfinite")) is not None:
                element += first
                what = collective.staged.unfit(element, self._config.packet_elements)
                raise NonFiniteError(self._config.job, element, what)


class _Patience:
    """Judges a wait for other ranks of the machine, as `hostlib.core.watchdog` one for the switch."""

    def __init__(self, engine: LocalRanks) -> None:
        self._engine = engine
        self._since_ns = time.monotonic_ns()
        self._told = False

    def __call__(self, waits_for: str, limit_s: float) -> None:
        """Raise JobBroken if waiting is pointless."""
        engine = self._engine
        job, peers = engine._config.job, engine._peers
        if engine._aborted:
            kind, reason = engine._aborted
            raise kind(reason, job=job, psns=NO_PACKETS)
        if fault := peers.fault():
            raise JobFault(fault, job=job, psns=NO_PACKETS)
        if gone := peers.gone():
            raise PeerLost(gone, job=job, psns=NO_PACKETS)
        waited_s = (time.monotonic_ns() - self._since_ns) / 1e9
        reason = f"no word from {waits_for}, on this machine, for {waited_s:.1f} s"
        if waited_s > limit_s:
            raise PeerTimeout(reason, job=job, psns=NO_PACKETS, missing=engine._ranks)
        if waited_s > engine._config.timeout_s and not self._told:
            self._told = True
            _log.warning("job %d: %s; it is alive, waiting on", job, reason)


class _First:
    """The part of a machine's first rank."""

    def __init__(self, config: JobConfig, inner: SwitchEngine) -> None:
        assert config.hosts is not None
        self._config = config
        self._inner = inner
        self._hosts = config.hosts
        self._ranks = config.hosts[config.worker]
        self._library = _native.load()
        try:
            self._end = FirstEnd(_meeting_point(config), self._ranks[1:], _memory_bytes(len(self._ranks)))
        except BaseException:
            inner.close()
            raise
        self._rooms = _rooms(self._end.memory)

    def run(self, part: Collective, check: _Patience) -> Mapping[str, Any]:
        """Carry out a step; return what came of it."""
        others = ", ".join(map(str, self._ranks[1:]))
        posts = self._end.collect(lambda: check(f"rank {others}", self._config.straggler_timeout_s))
        posts[self._config.rank] = _post(part)
        self._compare(part, posts)
        outcome = self._sum(part)
        self._end.tell(outcome)
        count = len(part.staged.source)
        if part.feedback:
            divisor = self._config.size if part.average else 1
            np.multiply(self._rooms[1][: 4 * count].view(np.float32), divisor, out=part.staged.source)
        _take(part, self._rooms[0], self._config.rank)
        return outcome

    def fail(self, error: JobBroken) -> None:
        self._end.tell(_told(error))

    def abort(self, reason: str, kind: type[JobBroken]) -> None:
        self._inner.abort(reason, kind)

    def progress(self, done: int, total: int) -> None:
        self._inner.progress(done, total)

    def statistics(self) -> dict[str, float]:
        return self._inner.statistics()

    def close(self, peers: Peers, statistics: Mapping[str, float], rounds: int) -> None:
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
            self._inner.run(replace(part, staged=_nothing_staged(), part="ranks of a machine disagree"))
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
        step = replace(part, staged=_staged(sums, totals), average=False, nonfinite="raise", root=root)
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


class _Other:
    """The part of every other rank of a machine."""

    def __init__(self, config: JobConfig) -> None:
        assert config.hosts is not None
        self._config = config
        ranks = config.hosts[config.worker]
        self._first = ranks[0]
        self._end = OtherEnd(_meeting_point(config), config.rank, self._first)
        self._rooms = _rooms(self._end.memory)
        self._own = self._rooms[1 + ranks.index(config.rank)]

    def run(self, part: Collective, check: _Patience) -> Mapping[str, Any]:
        """Carry out a step; return what came of it."""
        source = part.staged.source
        self._own[: source.nbytes].view(source.dtype)[:] = source
        if part.feedback:
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
        self._end.close()

    def abort(self, reason: str, kind: type[JobBroken]) -> None:
        """Do nothing: who waits looks up."""

    def progress(self, done: int, total: int) -> None:
        """Do nothing: the first rank's packets have the priority."""

    def statistics(self) -> dict[str, float]:
        return {}

    def close(self, peers: Peers, statistics: Mapping[str, float], rounds: int) -> None:
        peers.report(statistics)
        peers.farewell(rounds)
        peers.close()
        self._end.close()


def chunks(length: int) -> list[tuple[int, int]]:
    """Return the steps of an array of so many elements: where each begins, and how long it is."""
    most = CHUNK_BYTES // 4
    return [(first, min(most, length - first)) for first in range(0, max(length, 1), most)]


def _part(collective: Collective, first: int, count: int) -> Collective:
    staged = collective.staged
    length = len(staged.source)
    if count == length:
        return collective
    end = first + count
    return replace(
        collective,
        staged=_staged(staged.source[first:end], staged.target[first:end]),
        part=f"{collective.part} step from {first} to {end}".strip(),
        calls=collective.calls * (end == length),
    )


def _staged(source: NDArray[Any], target: NDArray[Any]) -> Staged:
    return Staged(source, target, source.dtype, source.shape, None, lambda: None)


def _nothing_staged() -> Staged:
    return _staged(np.empty(0, np.int32), np.empty(0, np.int32))


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


def _memory_bytes(ranks: int) -> int:
    return (1 + ranks) * _ROOM_BYTES


def _rooms(memory: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Return the rooms: the result, the machine's sum, and the part of each rank but the first."""
    return memory.reshape(-1, _ROOM_BYTES)


def _meeting_point(config: JobConfig) -> Any:
    """Return the name of the first rank's socket: only this user's processes can reach it."""
    key = json.dumps([config.token, config.job, config.epoch, config.transport.switch, config.worker])
    return private_folder() / f"ranks-{hashlib.sha256(key.encode()).hexdigest()[:32]}"
