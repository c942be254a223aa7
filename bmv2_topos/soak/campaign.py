"""Many schedules, on several processes, until time is up or an invariant is broken."""

from __future__ import annotations

import multiprocessing
import os
import time
from collections.abc import Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from functools import cache

from bmv2_topos.soak.draw import draw_schedule, draw_testbed
from bmv2_topos.soak.network import PacketLog
from bmv2_topos.soak.programs import offers
from bmv2_topos.soak.run import Failure, ScheduleFailed, Tally, run_schedule
from bmv2_topos.soak.schedule import TESTBED_SEEDS, SoakTestbed
from bmv2_topos.soak.testbed import RunningTestbed, SwitchPool
from bmv2_topos.testbeds.virtual.network import Trace
from bmv2_topos.testbeds.virtual.settings import COMPILED, Cores
from controller.interrupts import delay_interrupts
from controller.vocabulary import Mode


class ProcessDied(Exception):
    """A process that ran schedules has died."""

    exit_code = 1

    def __init__(self, testbeds: tuple[tuple[int, int], ...]) -> None:
        """Make the error; `testbeds` has the first and the last seed of each range of seeds in progress."""
        first, last = testbeds[0]
        ranges = ", ".join(f"{first}..{last}" for first, last in testbeds)
        super().__init__(
            f"a process died while schedules of these seeds were running: {ranges}; to find the seed, run"
            f" each range by itself: 'ina soak --processes 1 --seed {first} --schedules {last - first + 1}'"
            " runs the first range"
        )


class SwitchPools:
    """The switch pools of a process, by the program's mode; all run the user's program `own` if it is given.

    Raises the errors of `bmv2_topos.soak.programs.offers`.
    """

    def __init__(self, own: str | None = None) -> None:
        self.own = own
        self.offers = offers(own) if own else None
        self._pools: dict[Mode, SwitchPool] = {}

    def get(self, program: Mode) -> SwitchPool:
        """Return the pool of a program; if the pool is worn out, close it and make a new one."""
        pool = self._pools.get(program)
        if pool is not None and pool.worn_out:
            pool.close()
            pool = None
        if pool is None:
            pool = self._pools[program] = SwitchPool.for_program(program, self.own)
        return pool

    def replace(self, program: Mode, pool: SwitchPool) -> None:
        """Replace the pool of a program, for instance by a pool that runs a changed program."""
        self._pools[program] = pool

    def close(self) -> None:
        """Close all switches of all pools."""
        for pool in self._pools.values():
            pool.close()
        self._pools.clear()


def soak_seeds(
    first: int,
    last: int,
    pools: SwitchPools,
    *,
    testbed: SoakTestbed | None = None,
    cores: Cores = COMPILED,
    trace: Trace | None = None,
) -> Tally:
    """Run the schedules of a range of seeds, all of one testbed; stop at the first schedule that fails.

    Args:
        first: The first seed.
        last: The last seed.
        pools: The switches of this process.
        testbed: The testbed; None: draw the testbed of these seeds.
        cores: Implementations of the cores.
        trace: Called with every packet; None: no trace.

    Returns:
        The tally.
    """
    testbed = testbed or draw_testbed(first // TESTBED_SEEDS, pools.offers)
    tally = Tally()
    with RunningTestbed(testbed, pools.get(testbed.program)) as built:
        for seed in range(first, last + 1):
            schedule = draw_schedule(seed, testbed)
            try:
                tally.add(run_schedule(schedule, built, trace, cores=cores))
            except ScheduleFailed as failed:
                failure = Failure(seed, failed.reason, schedule.describe(), pools.own)
                tally.add(Tally(1, failures=[failure]))
                break
    return tally


def describe(seed: int, own: str | None = None) -> str:
    """Return the schedule of a seed in words; `own` and errors are as for `replay`."""
    return draw_schedule(seed, draw_testbed(seed // TESTBED_SEEDS, offers(own) if own else None)).describe()


def replay(seed: int, *, packets: int = 200, own: str | None = None) -> tuple[Tally, list[str]]:
    """Run one schedule; return its tally, and its last `packets` packets in words.

    `own` is the path of a user's program. Raises the errors of `bmv2_topos.soak.programs.offers`.
    """
    pools, log = SwitchPools(own), PacketLog(packets)
    try:
        return soak_seeds(seed, seed, pools, trace=log), log.lines()
    finally:
        pools.close()


def soak(
    first: int,
    *,
    schedules: int | None = None,
    minutes: float | None = None,
    processes: int | None = None,
    own: str | None = None,
) -> Iterator[Tally]:
    """Run schedules from the seed `first` on; yield the tally so far after every testbed.

    Ends after `schedules` schedules, after `minutes` minutes or at a failure, whichever comes first. Every
    process has its own switches.

    Args:
        first: The first seed.
        schedules: Number of schedules; None: no limit.
        minutes: Time in minutes; None: no limit.
        processes: Number of processes; None: one per processor.
        own: Path of the user's program; None: p4src's programs.

    Raises:
        ProcessDied: a process died while it ran a schedule (compiled code can crash).
        NativeMissing: the host library's compiled part is not there.
        ProgramMismatch: schedules cannot run `own`; also the other errors of
            `bmv2_topos.soak.programs.offers`.
    """
    if own:
        offers(own)  # compile or refuse the program before any process starts
    deadline = None if minutes is None else time.monotonic() + 60 * minutes
    count = processes or os.cpu_count() or 1
    testbeds = _testbeds(first, schedules)
    tally = Tally()
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(count, mp_context=context) as pool:
        running: dict[Future[Tally], tuple[int, int]] = {}
        try:
            while True:
                with delay_interrupts():
                    while (
                        len(running) < 2 * count and not _over(deadline) and (testbed := next(testbeds, None))
                    ):
                        running[pool.submit(_soak_testbed, *testbed, own)] = testbed
                if not running:
                    return
                done, _ = wait(running, return_when=FIRST_COMPLETED)
                try:
                    for future in done:
                        tally.add(future.result())
                        del running[future]
                except BrokenProcessPool:
                    raise ProcessDied(tuple(running.values())) from None
                yield tally
                if tally.failures:
                    return
        finally:
            for future in running:
                future.cancel()


def _testbeds(first: int, schedules: int | None) -> Iterator[tuple[int, int]]:
    """Yield, for each testbed in order, the first and the last seed whose schedules run on the testbed."""
    end = None if schedules is None else first + schedules
    while end is None or first < end:
        last = first // TESTBED_SEEDS * TESTBED_SEEDS + TESTBED_SEEDS - 1
        yield first, last if end is None else min(last, end - 1)
        first = last + 1


def _over(deadline: float | None) -> bool:
    return deadline is not None and time.monotonic() >= deadline


_pools_of = cache(SwitchPools)


def _soak_testbed(first: int, last: int, own: str | None) -> Tally:
    return soak_seeds(first, last, _pools_of(own))
