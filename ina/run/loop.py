"""The loop of the service: it records events, gets decisions from the core, and applies the desired state."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
import math
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Generic, TypeVar

from controller.core import Cancelled, Ended, Submitted
from controller.errors import BadSpec
from controller.policies.scheduling.errors import BadDecision
from ina.errors import Conflict, StoreError
from ina.faults import fault_point
from ina.run.checks import FallbackJobs, Switches
from ina.run.effects import Effects
from ina.run.launch.executor import Executor
from ina.run.ledger import Ledger
from ina.run.measures import Measures
from ina.run.network import CHECK_S, Network
from ina.run.runs import PROGRESS_S, Runs
from ina.run.threads import Threads

if TYPE_CHECKING:
    from ina.run.fallback.process import FallbackServers
    from ina.run.policies import Policies

LEAST_S = 0.005
"""Minimum time, in s, for which the loop waits for an event, so that it always lets other tasks run."""
REST = 3.0
"""Duration of the pause after an iteration of the loop, as a multiple of the iteration's duration. Events
that arrive in the pause are handled together."""
LONGEST_REST_S = 0.1
"""Maximum duration, in s, of the pause after an iteration of the loop."""
STORE_S = 2.0
"""Time, in s, until a failed write to the store is retried."""

_log = logging.getLogger(__name__)
N = TypeVar("N", bound=Network)


class ServiceLoop(Generic[N]):
    """Passes events to a core, and applies the core's decisions to runs and switches.

    All calls must be made in the thread of its event loop.
    """

    def __init__(
        self,
        ledger: Ledger,
        *,
        testbed: str,
        switches: N,
        executor: Executor,
        fallbacks: FallbackServers,
        blocking: Threads,
        on_loss: Callable[[str], object] | None = None,
        progress_s: float = PROGRESS_S,
    ) -> None:
        """Make a loop whose state is `ledger`.

        Args:
            ledger: The service's state.
            testbed: The name of the testbed whose hosts run workers; "": workers do not run in a testbed.
            switches: Admits jobs to the switches.
            executor: Starts and stops runs.
            fallbacks: The fallback servers.
            blocking: Threads for blocking calls.
            on_loss: Called when the loss of a fallback server is final; see `FallbackJobs`.
            progress_s: Minimum interval, in s, between two reports of a job's progress to the core.
        """
        self.ledger = ledger
        self._blocking = blocking
        self._executor = executor
        self._network = switches
        self._switches = Switches(ledger, switches, blocking)
        self._fallback_jobs = FallbackJobs(ledger, fallbacks, blocking, on_loss)
        self._runs = Runs(ledger, executor, self._switches, self._fallback_jobs, progress_s)
        self._effects = Effects(
            ledger, testbed, switches, executor, self._fallback_jobs, blocking, self._runs, self._switches
        )
        self._measures = Measures(ledger, switches, executor, blocking)
        self.ready = "starting"
        self._news = asyncio.Condition()

    async def run(self) -> None:
        """Run the service until cancelled; running jobs then continue.

        A change that cannot be stored, for example on a full disk, has no effect, and is retried. Raises
        StoreError if the state cannot be read.
        """
        gc.freeze()  # otherwise each full collection scans all modules, and an admission waits
        self._recover()
        if self.ledger.restored:
            await self._settle()
        try:
            await self._switches.check()
            self.ready = ""
            while True:
                began_s = asyncio.get_running_loop().time()
                try:
                    self._round()
                except (StoreError, OSError) as error:
                    _log.error("%s; trying again in %g s", error, STORE_S)
                    await asyncio.sleep(STORE_S)
                await self._notify()
                took_s = asyncio.get_running_loop().time() - began_s
                await asyncio.sleep(min(REST * took_s, LONGEST_REST_S))
                await self._pause()
        finally:
            self.ready = "ending"
            self._effects.close()
            self._blocking.close()

    def _round(self) -> None:
        """Do one iteration of the loop: check the runs, let the core decide, and start effects.

        Raises StoreError or OSError if a write fails.
        """
        self.ledger.keep_time()
        self._runs.see_servers()
        if self.ledger.due_s <= self.ledger.now_s:  # a job that has ended in time has not missed it
            self._runs.look_soon()
        self._runs.look()
        self.ledger.decide()
        self.ledger.freeze()
        self._effects.carry_out()
        for part in self._checks:
            if self.ledger.now_s >= part.next_s:
                self._effects.spawn(part.check())

    @property
    def next_s(self) -> float:
        """Time, in s on the service's clock, until which the loop may wait for an event."""
        ledger, runs_s = self.ledger, self._runs.next_s if self.ledger.holds else math.inf
        checks_s = (each.next_s for each in self._checks)
        return min(ledger.core.next_s, ledger.due_s, runs_s, self._effects.next_s, *checks_s)

    @property
    def _checks(self) -> Sequence[Switches | FallbackJobs | Measures]:
        """The parts of the service with periodic checks; all but that of the switches are of held runs."""
        of_runs = (self._fallback_jobs, self._measures) if self.ledger.holds else ()
        return (self._switches, *of_runs)

    def _recover(self) -> None:
        ledger, executor = self.ledger, self._executor
        ledger.recover()
        if strays := ledger.stray_logs():  # the daemon died before it had removed them
            self._effects.spawn(self._remove_logs(strays))
        for number in executor.known() if not ledger.restored else ():
            if number not in ledger.holds:  # the daemon died before it had forgotten this one
                self._effects.spawn(self._effects.clear(number))
        for number, hold in ledger.holds.items():
            if why := executor.other_version(number):  # the service was upgraded while the run's runner lived
                ledger.set(number, stage="stopping", unreadable=f"its runner: {why}")
            elif hold.stage == "preparing":  # its last step starts the runner
                ledger.set(number, stage="running" if executor.lives(number) else "stopping")

    async def _settle(self) -> None:
        """Make a restored state agree with the actual runs.

        End the runs that the state does not contain. Record as failed the jobs that may have been completed
        after the restored state was saved.
        """
        ledger, executor = self.ledger, self._executor
        strangers = [number for number in executor.known() if number not in ledger.holds]
        for number in strangers:
            _log.warning("run %d, which is not in the restored state, is being ended", number)
        await asyncio.gather(*(self._effects.clear(number) for number in strangers))
        unknown = {
            name: "the job was running then"
            for number, hold in ledger.holds.items()
            if executor.status(number) is None
            for name in hold.run.jobs
            if name not in hold.over
        }
        held = {name for hold in ledger.holds.values() for name in hold.run.jobs}
        for name in ledger.core.jobs.keys() - held:
            written = ledger.logs(ledger.submitted[name]).glob("*")
            latest = max((each.stat().st_mtime for each in written), default=-math.inf)
            if ledger.clock.at_s(latest) > ledger.recovered_s + 1.0:
                unknown[name] = "the job has run since"
        why = "and may have been completed: 'ina retry' runs it again, from its last checkpoint"
        now_s = ledger.now_s
        ended = [
            Ended(now_s, name, f"the restored state ends at {ledger.recovered_s:.6g} s; {how}, {why}", True)
            for name, how in unknown.items()
            if name in ledger.core.jobs
        ]
        ledger.record(ended)
        ledger.since_restored()

    async def _remove_logs(self, folders: Sequence[Path]) -> None:
        def remove() -> None:
            for folder in folders:
                shutil.rmtree(folder, ignore_errors=True)
                fault_point("log removed")

        await self._blocking.runs(remove)

    async def _pause(self) -> None:
        ledger = self.ledger
        wait_s = min(CHECK_S, self.next_s - ledger.now_s)
        # Not wait_for: until Python 3.12 that may swallow a cancellation that comes together with the event.
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(max(wait_s, LEAST_S)):
                await ledger.woken.wait()
        ledger.woken.clear()

    async def _notify(self) -> None:
        async with self._news:
            self._news.notify_all()

    async def changed(self, patience_s: float) -> None:
        """Wait until the state may have changed, for at most `patience_s` seconds."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(patience_s), self._news:
                await self._news.wait()

    def try_again(self) -> None:
        """Retry all failed effects at once."""
        for number in [*self.ledger.holds]:
            self._effects.again(number)
        self.ledger.stirred = True
        self.ledger.woken.set()

    def look_soon(self) -> None:
        """Check the runs in the loop's next iteration, and begin that at once. Call this if a run changed."""
        self._runs.look_soon()
        self.ledger.woken.set()

    async def add_jobs(self, jobs: Sequence[Submitted]) -> None:
        """Submit jobs to the core, and store their submission. Raises StoreError."""
        self.ledger.record(jobs)
        await self._notify()

    async def end(self, name: str, why: str) -> None:
        """End the job `name`, which must not be over, whether it runs or waits. Raises StoreError.

        `why` is the reason that users see.
        """
        self.ledger.record([Cancelled(self.ledger.now_s, name, why)])
        await self._notify()

    async def reload(self, policies: Policies) -> None:
        """Replace the policies; running jobs continue until the new policies decide otherwise.

        Raises Conflict if the core cannot change from the current policies to these.
        """
        if policies != self.ledger.policies:
            try:
                self.ledger.change(policies)
            except (BadSpec, BadDecision) as error:
                raise Conflict(f"cannot change to these policies: {error}") from error
        await self._notify()
