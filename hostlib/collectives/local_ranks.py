"""Sum the ranks of a machine in shared memory first; its first rank sends the machine's sum to the switch.

So the switch has one worker per machine, and a machine's link carries one stream, however many ranks it has
(Horovod's hierarchical allreduce). An array is summed in steps of at most `CHUNK_BYTES`
(`hostlib.collectives.local_steps`). In each step:

1. every rank writes its part into memory that the machine's ranks share;
2. each rank but the first adds up one shard of all ranks' parts (``_native/ina_local.c``), while the first
   rank sends the machine's sum of the step before, which the switch adds to other machines' sums; if there
   are only two ranks, the first one adds up all shards;
3. all ranks read the result from that memory.

If all ranks are on one machine, without a switch, the first rank adds up a shard, too.

The calls of a machine's ranks are compared on the machine first. If they differ, the first rank sends a
packet with another digest, so that the ranks of other machines raise an error, too. A sum of int32
carries, behind the values, a word for each machine. In its word a machine reports an overflow of its own sum,
so that all ranks raise the same error.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from operator import add
from typing import Final, NoReturn

from hostlib.collectives import Collective, Engine
from hostlib.collectives.arrays import staged_as
from hostlib.collectives.engine import SwitchEngine, overflow_reason
from hostlib.collectives.local_steps import CHUNK_BYTES, NONE, LocalSteps, received_error
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
"""Longest wait, in seconds, for the reason why a rank is gone, after the rank's connection has ended."""
_log = logging.getLogger("hostlib")


class LocalRanks(Engine):
    """The engine of a rank whose machine is one worker in the switch."""

    def __init__(self, config: JobConfig, peers: Peers) -> None:
        """Connect to the other ranks of this machine, and share memory with them.

        Raises:
            ConfigError, NativeMissing: as in `SwitchEngine`.
            RendezvousError: the other ranks did not connect in time.
        """
        super().__init__()
        assert config.hosts is not None
        self._config = config
        self._peers = peers
        self._host = config.worker
        self._ranks = config.hosts[self._host]
        self._aborted: tuple[type[JobBroken], str] | None = None
        self._rounds = 0
        self._speaks = config.rank == self._ranks[0] and config.transport.kind != "none"
        self._inner = SwitchEngine(config, peers) if self._speaks else Engine()
        try:
            self._steps = LocalSteps(config, self._inner if self._speaks else None, self._patience)
        except BaseException:
            self._inner.close()
            raise

    def run(self, collective: Collective) -> None:
        """Carry out a collective: sum on this machine, then through the switch.

        Raises InaError. After a JobBroken, all later calls raise the same error.
        """
        if self._broken:
            raise self._broken
        started = time.monotonic_ns()
        steps = chunks(len(collective.staged.source))
        try:
            found = self._steps.run([_part(collective, first, count) for first, count in steps])
        except RankGone as gone:
            self._give_up(self._lost(gone.rank))
        except JobBroken as error:
            self._give_up(error)
        except BaseException as error:
            reason = f"{collective.description} was abandoned: {error!r}"
            self._broken = Interrupted(reason, job=self._config.job, psns=NO_PACKETS)
            self._steps.fail(self._broken)
            raise
        self._rounds += len(steps)
        self._count(collective, time.monotonic_ns() - started)
        firsts = [first for first, _ in steps]
        self._raise_numeric_errors(
            collective, *(min(map(add, firsts, found[kind].tolist())) for kind in ("nonfinite", "overflow"))
        )

    def abort(self, reason: str, kind: type[JobBroken]) -> None:
        """Make collectives under way, and all later ones, raise an error of class `kind`.

        Only the first call has an effect.
        """
        self._aborted = self._aborted or (kind, reason)
        self._inner.abort(reason, kind)

    def progress(self, done: int, total: int) -> None:
        """Record that `done` of `total` iterations are over; only the machine's first rank uses this."""
        self._inner.progress(done, total)

    def statistics(self) -> dict[str, float]:
        """Return counters since the start; counters of packets are 0 except at the machine's first rank."""
        return self._inner.statistics() | self._counted

    def close(self) -> None:
        """Leave the job, and report the statistics unless the engine of the switch has done so."""
        self._inner.close()
        if not self._speaks:
            self._peers.report(self.statistics())
            self._peers.farewell(self._rounds)
            self._peers.close()
        self._steps.end.close()

    def _give_up(self, error: JobBroken) -> NoReturn:
        self._broken = error
        self._steps.fail(error)
        raise error

    def _patience(self) -> Callable[[], None]:
        """Start a wait for local ranks; return a function that raises JobBroken once the wait is pointless.

        Time limits and reasons are as in `hostlib.core.watchdog`. The first rank gives up before the other
        ranks, and sends them the reason.
        """
        config, since_ns, is_logged = self._config, time.monotonic_ns(), False
        is_first = config.rank == self._ranks[0]
        waits_for = ", ".join(map(str, self._ranks[1:] if is_first else self._ranks[:1]))
        limit_s = config.straggler_timeout_s + (0 if is_first else config.timeout_s)

        def check() -> None:
            nonlocal is_logged
            if (message := self._steps.end.look()) is not None:
                raise received_error(message, config.job)
            if error := self.known_end():
                raise error
            waited_s = (time.monotonic_ns() - since_ns) / 1e9
            reason = f"nothing received from rank {waits_for}, on this machine, for {waited_s:.1f} s"
            if waited_s > limit_s:
                raise PeerTimeout(reason, job=config.job, psns=NO_PACKETS, missing=self._ranks)
            if waited_s > config.timeout_s and not is_logged:
                is_logged = True
                _log.warning("job %d: %s; still waiting: no process of a rank has ended", config.job, reason)

        return check

    def _lost(self, rank: int) -> JobBroken:
        """Return the error that explains why a rank's connection has ended."""
        job = self._config.job
        deadline = time.monotonic() + _NEWS_S
        while time.monotonic() < deadline:
            if error := self.known_end():
                return error
            if (number := self._peers.news.left.get(rank)) is not None:
                why = f"it left the job after {number} collective{'s' if number != 1 else ''}"
                return PeerLost({rank: why}, job=job, psns=NO_PACKETS)
            time.sleep(0.02)
        return PeerLost({rank: "its connection to this machine's ranks closed"}, job=job, psns=NO_PACKETS)

    def known_end(self) -> JobBroken | None:
        """Return the error with which the job has ended; None if the job has not ended."""
        job = self._config.job
        if self._aborted:
            kind, reason = self._aborted
            return kind(reason, job=job, psns=NO_PACKETS)
        if fault := self._peers.news.fault:
            return JobFault(fault, job=job, psns=NO_PACKETS)
        gone = self._peers.news.gone
        return PeerLost(gone, job=job, psns=NO_PACKETS) if gone else None

    def _raise_numeric_errors(self, collective: Collective, nonfinite: int, overflow: int) -> None:
        config, staged = self._config, collective.staged
        if overflow < NONE:
            raise SumOverflow(config.job, NO_PACKETS, overflow, overflow_reason(config, staged.source.dtype))
        if nonfinite < NONE and collective.options.nonfinite == "raise":
            count = Packets(config.lanes, config.numbers).elements(collective)
            raise NonFiniteError(config.job, nonfinite, staged.unfit(nonfinite, count))


def chunks(length: int) -> list[tuple[int, int]]:
    """Return the first element and the length of each step of an array of `length` elements."""
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
