"""Local ranks first: the ranks of a machine are summed in their memory, and its first rank speaks for them.

So the switch has one worker per machine, and a machine's link carries one stream, however many ranks it has
(Horovod's hierarchical allreduce). In steps of `CHUNK_BYTES` at most
(`hostlib.collectives.local_steps`):

1. every rank writes its part into memory that the machine's ranks share, and tells the first one what it is;
2. the first adds them up (``_native/ina_local.c``), and the switch adds up the machines' sums, in place;
3. the first tells the others what came of it, and all take the result.

What ranks must agree on is compared on the machine first; where its ranks differ, the other machines see that
they do in the switch. A sum of int32 that a machine cannot hold is a word of its own behind the values, one
for each machine, so that all ranks raise the same.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping, Sequence
from typing import Any, Final

from hostlib.collectives import Collective, Engine
from hostlib.collectives.engine import SwitchEngine
from hostlib.collectives.local_steps import CHUNK_BYTES, First, Other, staged_as
from hostlib.collectives.schedule import Packets
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
    SumOverflow,
)
from hostlib.meet.machine import RankGone

_NEWS_S: Final = 1.0
"""Longest wait for the reason why a rank is gone, once its connection has ended."""
_log = logging.getLogger("hostlib")


class LocalRanks(Engine):
    """The engine of a rank whose machine has one worker in the switch."""

    def __init__(self, config: JobConfig, peers: Peers) -> None:
        """Meet the other ranks of this machine.

        Raises:
            ConfigError, NativeMissing: as `SwitchEngine`.
            RendezvousError: they are not there.
        """
        super().__init__()
        assert config.hosts is not None
        self._config = config
        self._peers = peers
        self._host = config.worker
        self._ranks = config.hosts[self._host]
        self._aborted: tuple[type[JobBroken], str] | None = None
        self._rounds = 0
        self._step: First | Other
        if config.rank == self._ranks[0]:
            self._step = First(config, _OneMachine(peers) if _alone(config) else SwitchEngine(config, peers))
        else:
            self._step = Other(config)

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
        self._count(collective, time.monotonic_ns() - started)
        self._raise_numeric_errors(collective, outcomes)

    def abort(self, reason: str, kind: type[JobBroken]) -> None:
        """Make collectives under way, and all later ones, raise `kind`; the first call counts."""
        self._aborted = self._aborted or (kind, reason)
        self._step.abort(reason, kind)

    def progress(self, done: int, total: int) -> None:
        """Note that `done` of `total` iterations are over; the machine's first rank counts."""
        self._step.progress(done, total)

    def statistics(self) -> dict[str, float]:
        """Return counters since the start; packets count at the machine's first rank, 0 at others."""
        return super().statistics() | self._step.statistics() | self._counted

    def close(self) -> None:
        """Leave the job."""
        self._step.close(self._peers, self.statistics(), self._rounds)

    def _give_up(self, error: JobBroken) -> None:
        self._broken = error
        self._step.fail(error)
        raise error

    def _lost(self, rank: int) -> JobBroken:
        """Return the error that explains why a rank's connection has ended."""
        job = self._config.job
        deadline = time.monotonic() + _NEWS_S
        while time.monotonic() < deadline:
            if error := self.known_end():
                return error
            if (number := self._peers.left().get(rank)) is not None:
                why = f"it left the job after {number} collective{'s' if number != 1 else ''}"
                return PeerLost({rank: why}, job=job, psns=NO_PACKETS)
            time.sleep(0.02)
        return PeerLost({rank: "its connection to this machine's ranks closed"}, job=job, psns=NO_PACKETS)

    def known_end(self) -> JobBroken | None:
        """Return the error by which the job is known to be over; None if it is not."""
        job = self._config.job
        if self._aborted:
            kind, reason = self._aborted
            return kind(reason, job=job, psns=NO_PACKETS)
        if fault := self._peers.fault():
            return JobFault(fault, job=job, psns=NO_PACKETS)
        gone = self._peers.gone()
        return PeerLost(gone, job=job, psns=NO_PACKETS) if gone else None

    def _raise_numeric_errors(
        self, collective: Collective, outcomes: Sequence[tuple[int, Mapping[str, Any]]]
    ) -> None:
        for first, outcome in outcomes:
            if (element := outcome.get("overflow")) is not None:
                raise SumOverflow(self._config.job, NO_PACKETS, first + element, outcome["why"])
        if collective.options.nonfinite == "propagate":
            return
        for first, outcome in outcomes:
            if (element := outcome.get("nonfinite")) is not None:
                element += first
                packets = Packets(self._config.lanes, self._config.numbers)
                what = collective.staged.unfit(element, packets.elements(collective))
                raise NonFiniteError(self._config.job, element, what)


def _alone(config: JobConfig) -> bool:
    """Return whether all ranks are on one machine, and reach no switch."""
    return config.transport.kind == "none"


class _OneMachine(Engine):
    """What is left for the switch if all ranks are on one machine: nothing."""

    def __init__(self, peers: Peers) -> None:
        super().__init__()
        self._peers = peers
        self._rounds = 0

    def run(self, collective: Collective) -> None:
        """Take the machine's sum as it is. Raises NonFiniteError as the switch would."""
        super().run(collective)
        self._rounds += 1

    def close(self) -> None:
        """Report, and say farewell to the peers."""
        self._peers.report(self.statistics())
        self._peers.farewell(self._rounds)
        self._peers.close()


class _Patience:
    """Judges a wait for other ranks of the machine, as `hostlib.core.watchdog` one for the switch."""

    def __init__(self, engine: LocalRanks) -> None:
        self._engine = engine
        self._since_ns = time.monotonic_ns()
        self._told = False

    def __call__(self, waits_for: str, limit_s: float) -> None:
        """Raise JobBroken if waiting is pointless."""
        engine = self._engine
        job = engine._config.job
        if error := engine.known_end():
            raise error
        waited_s = (time.monotonic_ns() - self._since_ns) / 1e9
        reason = f"no word from {waits_for}, on this machine, for {waited_s:.1f} s"
        if waited_s > limit_s:
            raise PeerTimeout(reason, job=job, psns=NO_PACKETS, missing=engine._ranks)
        if waited_s > engine._config.timeout_s and not self._told:
            self._told = True
            _log.warning("job %d: %s; still waiting: no process of a rank has ended", job, reason)


def chunks(length: int) -> list[tuple[int, int]]:
    """Return the steps of an array of this number of elements: where each begins, and how long it is."""
    most = CHUNK_BYTES // 4
    return [(first, min(most, length - first)) for first in range(0, max(length, 1), most)]


def _part(collective: Collective, first: int, count: int) -> Collective:
    staged = collective.staged
    length = len(staged.source)
    if count == length:
        return collective
    end = first + count
    return collective._replace(
        staged=staged_as(staged.source[first:end], staged.target[first:end]),
        part=f"{collective.part} step from {first} to {end}".strip(),
        calls=collective.calls * (end == length),
    )
