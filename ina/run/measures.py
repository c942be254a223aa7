"""Measures running jobs: share of packets without a slot, gradient bytes, and computing time per iteration.

The switches' counters are read for a few jobs at a time. When a job's measured values have changed, the core
gets a `Measured` event. So policies divide slots by measured values, not by the values in the job file.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from controller.core import Measured
from controller.switches.layout import TreeAdmission
from ina.run.launch.executor import Executor
from ina.run.ledger import Ledger
from ina.run.network import Network
from ina.run.threads import Threads

COUNT_S = 2.0
"""Minimum time, in s, from one reading of counters to the next."""
EACH_TIME = 16
"""Maximum number of jobs whose counters are read per interval of `COUNT_S` seconds. A reading of more jobs
makes the interval before the next reading longer in proportion."""
AT_ONCE = 64
"""Maximum number of jobs in one reading of counters. If there are more jobs, each reading continues with the
jobs after those of the reading before."""
DIFFERS = 0.1
"""Minimum relative difference between a measured value and the core's value at which the core gets the
measured value."""

FOUND = ("aggregated", "completed")
"""Outcomes of packets that were added to a slot."""
MISSED = ("collided", "bypassed")
"""Outcomes of packets that found no free slot, and went to the fallback server."""


@dataclass(frozen=True, slots=True)
class PacketCount:
    """Counts of a job at one time.

    `packets` is the number of the job's packets that the job's switches have received. `missed` is the number
    of these packets that found no slot. `done` is the number of iterations that the job has completed.
    """

    packets: int
    missed: int
    done: float


class Measures:
    """Measures running jobs. All calls must be made in the thread of the service's loop."""

    def __init__(self, ledger: Ledger, network: Network, executor: Executor, blocking: Threads) -> None:
        self._ledger = ledger
        self._network = network
        self._executor = executor
        self._blocking = blocking
        self._counts: dict[tuple[int, str], PacketCount] = {}
        self._shares: dict[tuple[int, str], float] = {}
        self._turn = 0
        self.next_s = 0.0
        """Time of the next reading of counters, if any run is held; infinite during a reading."""

    def share(self, run: int, job: str) -> float | None:
        """Return the fraction, 0 to 1, of a job's packets that found no slot; None: unknown.

        The fraction is of the packets between the last two readings of the job's counters. `run` is the
        number of the job's run.
        """
        return self._shares.get((run, job))

    async def check(self) -> None:
        """Read the counters of up to `AT_ONCE` running jobs, and report changed values to the core."""
        ledger = self._ledger
        self.next_s = float("inf")
        running = {
            (number, name): admission
            for number, hold in ledger.holds.items()
            if hold.stage == "running"
            for name, admission in hold.of_switches().items()
        }
        keys = list(running)
        chosen = [keys[(self._turn + at) % len(keys)] for at in range(min(AT_ONCE, len(keys)))]
        self._turn += len(chosen)
        try:
            jobs = {key: running[key] for key in chosen}
            found = await self._blocking.switches(lambda: self._network.counters(jobs, (*FOUND, *MISSED)))
        finally:
            self.next_s = ledger.now_s + COUNT_S * max(1.0, len(chosen) / EACH_TIME)
        for each in (self._counts, self._shares):
            for key in each.keys() - running.keys():
                del each[key]
        for key, counters in found.items():
            if key[0] in ledger.holds:
                self._take(key, running[key], counters)

    def _take(self, key: tuple[int, str], admission: TreeAdmission, counters: Mapping[str, int]) -> None:
        missed = sum(counters.get(name, 0) for name in MISSED)
        packets = missed + sum(counters.get(name, 0) for name in FOUND)
        now = PacketCount(packets, missed, self._ledger.latest.get(key[1], 0.0))
        before = self._counts.get(key)
        if before is not None and packets <= before.packets:
            if packets < before.packets:  # its switch was restarted
                self._counts[key] = now
            return
        self._counts[key] = now
        if before is None:
            return
        self._shares[key] = (missed - before.missed) / (packets - before.packets)
        self._report(key, _bytes(self._network.offers.lanes, admission, before, now))

    def _report(self, key: tuple[int, str], model_bytes: int | None) -> None:
        number, name = key
        ledger = self._ledger
        allocation = ledger.core.allocation
        status = self._executor.status(number)
        if allocation is None or status is None or name not in ledger.core.jobs:
            return
        known = allocation.job(name)
        compute_s, hold_s = status.compute_s.get(name), status.hold_s.get(name)
        events = Measured(
            ledger.now_s,
            name,
            compute_s if compute_s is not None and _differs(compute_s, known.compute_s) else None,
            model_bytes if model_bytes is not None and _differs(model_bytes, known.model_bytes) else None,
            hold_s if hold_s is not None and _differs(hold_s, known.hold_s or 0.0) else None,
        )
        if (events.compute_s, events.model_bytes, events.hold_s) != (None, None, None):
            ledger.record([events])


def _bytes(lanes: int, admission: TreeAdmission, before: PacketCount, now: PacketCount) -> int | None:
    """Return the gradient bytes that a job sums in an iteration, from its counts at two times.

    `lanes` is the number of values in a packet. None: no iteration has ended between the counts, or no switch
    aggregates for the job.
    """
    copies = sum(on.fan_in for on in admission.switches.values() if not on.transit)
    if now.done <= before.done or not copies:
        return None
    packets = (now.packets - before.packets) / copies
    return max(1, round(packets * lanes * 4 / (now.done - before.done)))


def _differs(value: float, known: float) -> bool:
    return abs(value - known) > DIFFERS * max(known, 1e-9)


def percent(share: float) -> str:
    """Format a fraction, 0 to 1, as a percentage.

    >>> percent(0.412), percent(0.001)
    ('41 %', '0.1 %')
    """
    return f"{100 * share:.0f} %" if share >= 0.01 else f"{100 * share:.1g} %"
