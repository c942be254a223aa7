"""Checks the runs that hold GPUs (`HeldRun`), and reports changes to the core.

The checks are of the progress and the ends of the runs' jobs, and of whether their runners and servers work.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping

from controller.core import Ended, Event, Interrupted, Progressed
from ina.run.checks import FallbackJobs, Switches
from ina.run.launch.executor import Executor
from ina.run.ledger import Ledger
from ina.run.steps import HeldRun

LOOK_S = 0.25
"""Minimum interval, in s, between two checks of all runs."""
LOOKS_PER_S = 100
"""Maximum number of runs that are checked per second. With more runs, each is checked less often."""
PROGRESS_S = 5.0
"""Minimum interval, in s, between two events that report the progress of a job to the core."""
JUDGE_S = 60.0
"""Maximum time, in s, for which a job's failure is not reported because the job's network, or the engine's
servers, have not been checked since the failure. These may be the cause. A switch that hangs delays a check
by less than this time."""
LOST_RUNS = 3
"""Maximum number of times that a job is restarted after the loss of its runner or one of its servers. After
one more loss, the job has failed."""


class Runs:
    """Checks the held runs, and reports to the core: the progress of jobs, ends of jobs, and lost servers."""

    def __init__(
        self,
        ledger: Ledger,
        executor: Executor,
        switches: Switches,
        fallback_jobs: FallbackJobs,
        progress_s: float = PROGRESS_S,
    ) -> None:
        self._progress_s = progress_s
        self._ledger = ledger
        self._executor = executor
        self._switches = switches
        self._fallback_jobs = fallback_jobs
        self._lost: dict[str, int] = {}
        self._told_s: dict[str, float] = {}
        self._failed_s: dict[tuple[int, str], float] = {}
        """By run and job, the time of a job's failure that is not reported before a check of the job's
        network."""
        self.next_s = 0.0
        """Time of the next check of runs, if any run is held."""

    def forget(self, names: Iterable[str]) -> None:
        """Discard what this object has stored about jobs that are over."""
        for name in names:
            self._lost.pop(name, None)
            self._told_s.pop(name, None)

    def look_soon(self) -> None:
        """Make the next check of the runs due now."""
        self.next_s = 0.0

    def see_servers(self) -> None:
        """Report to the core which servers the engine cannot use, or can use again. Raises StoreError."""
        ledger, gone = self._ledger, self._executor.gone()
        for name, why in gone.items():
            if name not in ledger.down and name not in ledger.drained:
                ledger.node_gone(name, why)
        for name in ledger.down.keys() & ledger.topology.server.keys() - gone.keys():
            ledger.node_back(name)

    def look(self) -> None:
        """Check the status of all held runs if a check is due, and report changes to the core."""
        holds, now_s = self._ledger.holds, self._ledger.now_s
        if now_s < self.next_s:
            return
        self.next_s = now_s + max(LOOK_S, len(holds) / LOOKS_PER_S)
        wanted = {run.number for run in self._ledger.desired().runs}
        for number, hold in list(holds.items()):
            if hold.stage != "running" or hold.busy or number not in wanted:
                continue  # the status of an unwanted run is read when it is stopped
            lives = self._executor.lives(number)
            if not self.take_ends(number) and not lives and hold.over != {*hold.run.jobs}:
                self._lose(number)

    def take_ends(self, number: int, *, stopping: bool = False) -> bool:
        """Report to the core which jobs of a run have ended, and the progress of the run's other jobs.

        With `stopping`, the run is being stopped. Failures are then ignored, because the stop may cause them.
        Return whether a failure is not reported yet, because its network and servers are checked first.
        """
        ledger = self._ledger
        hold = ledger.holds[number]
        status = self._executor.status(number)
        if status is None:
            return False
        now_s, judging = ledger.now_s, False
        events: list[Event] = []
        ended = set(hold.over)
        for name in hold.run.jobs:
            if name in ended:
                continue
            if name in status.done:
                events += self._progress(hold, name, status.done[name], status.iteration_s.get(name))
            failure = status.ends.get(name, status.failure or None)
            if failure is None:
                self._failed_s.pop((number, name), None)  # of the run's processes before it was started again
                continue
            if name not in ledger.core.jobs:  # it was cancelled, or the daemon died as it recorded the end
                ended.add(name)
                continue
            if not failure:
                at = status.ended_at.get(name)
                events.append(Ended(now_s, name, done_s=None if at is None else ledger.clock.at_s(at)))
            elif status.final:
                events.append(Ended(now_s, name, failure, final=True))
            elif stopping:
                continue
            elif status.blame not in (None, name):
                events.append(Interrupted(now_s, name, f"its group failed: {status.broke or failure}"))
            elif (event := self._failed(number, name, failure, status.lost)) is not None:
                events.append(event)
            else:
                judging = True
                continue
            ended.add(name)
        ledger.record(events)
        if ended != hold.over:
            ledger.set(number, over=frozenset(ended))
            ledger.keep(number)
            self._switches.check_soon()
        return judging

    def _failed(self, number: int, name: str, failure: str, lost: Mapping[str, str]) -> Event | None:
        """Return the event that reports a job's failure; None: its network and servers are checked first.

        The event restarts the job if one of its switches, links or fallback servers did not work recently, or
        if one of its servers is lost. Otherwise the event says that the job has failed. `lost` has, by name
        of each lost server, the reason.
        """
        ledger = self._ledger
        now_s, place = ledger.now_s, ledger.holds[number].run.places[name]
        failed_s = self._failed_s.setdefault((number, name), now_s)
        unseen = place.tree is not None and self._switches.seen_s < failed_s
        if unseen:
            self._switches.check_soon()
        if (unseen or not self._executor.looked_within(now_s - failed_s)) and now_s - failed_s < JUDGE_S:
            return None
        del self._failed_s[number, name]
        if why := self._switches.ill(ledger.topology, place) or self._fallback_jobs.ill(place):
            return Interrupted(now_s, name, f"{why}; {failure}")
        if server := next(filter(lost.__contains__, place.servers), None):
            return self._again(name, f"server {server} is lost: {lost[server]}")
        return Ended(now_s, name, failure)

    def _progress(self, hold: HeldRun, name: str, done: int, iteration_s: float | None) -> list[Event]:
        ledger = self._ledger
        now_s = ledger.now_s
        total = hold.before.get(name, 0.0) + done
        ledger.latest[name] = total
        if name not in ledger.core.jobs or self._told_s.get(name, -math.inf) + self._progress_s > now_s:
            return []
        self._told_s[name] = now_s
        return [Progressed(now_s, name, total, iteration_s)]

    def _lose(self, number: int) -> None:
        """Handle the loss of a run's runner: queue the run's jobs again, or record that they have failed."""
        ledger = self._ledger
        hold = ledger.holds[number]
        why = self._executor.why_ended(number)
        events: list[Event] = []
        for name in hold.run.jobs:
            if name in hold.over or name not in ledger.core.jobs:
                continue
            events.append(self._again(name, f"the process that ran its workers ended: {why}"))
        ledger.set(number, stage="stopping")
        ledger.record(events)

    def _again(self, name: str, why: str) -> Event:
        """Return the event that restarts a job after a loss of its runner or of a server.

        After `LOST_RUNS` restarts of the job, return the event that it has failed. `why` describes the loss.
        """
        now_s = self._ledger.now_s
        self._lost[name] = self._lost.get(name, 0) + 1
        if self._lost[name] > LOST_RUNS:
            return Ended(now_s, name, f"{LOST_RUNS + 1} times interrupted: {why}")
        return Interrupted(now_s, name, why)
