"""The shell around a core of real jobs: carries out its decisions, and reports events to it."""

from __future__ import annotations

import contextlib
import logging
import queue
import threading
import time
from collections import deque
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import dataclass

from controller import ControllerError
from controller.core import (
    Action,
    Change,
    Core,
    Ended,
    Entry,
    Interrupted,
    Place,
    Progressed,
    Run,
    Start,
    Stop,
    Submitted,
    Tick,
    difference,
)
from controller.scheduling import Stuck
from controller.vocabulary import Region
from hostlib import interleave
from ina.runtime.errors import NotMeasured, ProcessFailed
from ina.runtime.fabric import SwitchFabric
from ina.runtime.job_group import Cancelled, GroupRun
from ina.runtime.jobs import JobEnd, OnOutput
from ina.runtime.spec import LaunchSpec

_log = logging.getLogger(__name__)
LOOK_S = 0.2
"""Interval at which the progress of the jobs is looked at."""
WARM_UP = 2
"""Iterations that pay for first uses."""


@dataclass(frozen=True, slots=True)
class _End:
    """The end of a job of a run; without a job: of the whole run, with the error if there was one."""

    run: int
    job: JobEnd | None = None
    error: BaseException | None = None


def measure(
    fabric: SwitchFabric, spec: LaunchSpec, iterations: int, on_output: OnOutput
) -> interleave.StageProfile:
    """Run a job alone to measure its stage times.

    Args:
        fabric: The switches.
        spec: The job.
        iterations: Number of iterations to measure; the first ones do not count.
        on_output: Called with the output of workers.

    Raises the error with which it failed, or NotMeasured if it ends without having marked its stages.
    """
    name = spec.job.name
    group = GroupRun(fabric, [spec], (0,), on_output=on_output)
    with ThreadPoolExecutor(1) as pool:
        run = pool.submit(group.run)
        try:
            while not run.done() and group.turns.iterations(name) < iterations + WARM_UP:
                wait([run], timeout=LOOK_S)
        finally:
            group.cancel()
    with contextlib.suppress(Cancelled):
        group.check(run.result())
    try:
        return interleave.job_profile([times[WARM_UP:] for times in group.turns.measured(name)])
    except interleave.StageError as error:
        raise NotMeasured(
            f"job {name}: {error} after {group.turns.iterations(name)} iterations, of which"
            f" {WARM_UP} do not count; its program must mark its stages (hostlib.interleave.join)"
        ) from error


def slots_at_root(place: Place) -> Region | None:
    """Return a job's slots at the root of its tree, which the one switch here stands for; None: no tree."""
    return None if place.tree is None else place.regions.get(place.tree.root)


class _Active:
    """A run that was started."""

    def __init__(
        self, run: Run, group: GroupRun, before: Mapping[str, float], ends: queue.SimpleQueue[_End]
    ) -> None:
        self.group = group
        self.before = before
        self.failed: list[JobEnd] = []
        self._number = run.number
        self._ends = ends
        self.thread = threading.Thread(target=self._run, name=f"run {run.number}")
        self.thread.start()

    def is_to_blame(self, job: JobEnd) -> bool:
        """Return whether a job failed by itself, and not because another one of the group did."""
        return self.group.turns.culprit in (None, job.spec.job.name)

    def _run(self) -> None:
        try:
            self.group.run()
        except Cancelled:
            return
        except BaseException as error:
            self._ends.put(_End(self._number, error=error))
        else:
            self._ends.put(_End(self._number))


class LiveJobs:
    """Runs submitted jobs on a fabric as a policy decides, to their ends."""

    def __init__(
        self,
        core: Core,
        fabric: SwitchFabric,
        jobs: Mapping[str, LaunchSpec],
        *,
        on_output: OnOutput,
        on_entry: Callable[[Entry], None] = lambda entry: None,
        describe: Callable[[BaseException], str] = str,
    ) -> None:
        """`jobs` says what the workers of each job run; `on_entry` gets the core's log, line by line.

        `describe` puts into words for the log why a job failed.
        """
        self._core = core
        self._fabric = fabric
        self._jobs = jobs
        self._on_output = on_output
        self._on_entry = on_entry
        self._describe = describe
        self._told = 0
        self._ends: queue.SimpleQueue[_End] = queue.SimpleQueue()
        self._active: dict[int, _Active] = {}
        self._done = dict.fromkeys(jobs, 0.0)  # iterations, over all runs of a job
        self._began = time.monotonic()

    def run(self, submissions: Sequence[Submitted]) -> None:
        """Submit each job at its time, and return when all have ended.

        Raises ProcessFailed if the switches are gone, Stuck if jobs would wait for ever, and what the policy
        raises; nothing runs then. A job that fails is noted (`Core.over`), the others go on.
        """
        coming = deque(sorted(submissions, key=lambda each: each.at_s))
        try:
            while coming or self._core.jobs:
                now_s = self._now_s()
                while coming and coming[0].at_s <= now_s:
                    self._core.handle(coming.popleft()._replace(at_s=now_s))
                self._decide(now_s)
                self._tell()
                if not coming and self._core.stuck:
                    raise Stuck(f"no job runs, and {', '.join(self._core.jobs)} would wait forever")
                self._wait(coming[0].at_s if coming else None)
            self._tell()
        finally:
            for active in self._active.values():
                active.group.cancel()
            for active in self._active.values():
                active.thread.join()

    def _now_s(self) -> float:
        return time.monotonic() - self._began

    def _decide(self, now_s: float) -> None:
        """Let the core decide if it is time to, and carry out the changes."""
        before = self._core.desired()
        while self._core.next_s <= now_s:
            self._core.handle(Tick(now_s))
        self._carry_out(difference(before, self._core.desired()))

    def _carry_out(self, actions: Sequence[Action]) -> None:
        over: dict[str, str] = {}
        for action in actions:
            if isinstance(action, Stop):
                over |= self._stop(action.run)
        for action in actions:
            if isinstance(action, Change):
                with self._moving():
                    self._fabric.resize(action.job, slots_at_root(action.after))
        for action in actions:
            if isinstance(action, Start):
                self._start(action, over)
        for name, failure in over.items():
            self._core.handle(Ended(self._now_s(), name, failure))

    def _stop(self, run: Run) -> dict[str, str]:
        """End a run; return the jobs that had ended before by themselves, with the reason of failures."""
        active = self._active.pop(run.number)
        active.group.cancel()
        active.thread.join()
        self._note_progress(active)
        others: list[_End] = []
        over: dict[str, str] = {}
        while not self._ends.empty():
            end = self._ends.get()
            if end.run != run.number:
                others.append(end)
            elif end.job is not None and end.job.failure() is None:
                over[end.job.spec.job.name] = ""
            elif end.job is not None:
                active.failed.append(end.job)
        for end in others:
            self._ends.put(end)
        for job in active.failed:
            if active.is_to_blame(job):
                over[job.spec.job.name] = self._why(job)
        return over

    def _start(self, start: Start, over: Collection[str]) -> None:
        run = start.run
        names = [name for name in run.jobs if name not in over]
        if not names:
            return
        for name in names:
            self._fabric.resize(name, slots_at_root(start.places[name]))
        group = GroupRun(
            self._fabric,
            [self._jobs[name] for name in names],
            [offset for name, offset in zip(run.jobs, run.offsets, strict=True) if name in names],
            on_output=self._on_output,
            on_end=lambda end: self._ends.put(_End(run.number, end)),
        )
        before = {name: self._done[name] for name in names}
        self._active[run.number] = _Active(run, group, before, self._ends)

    def _wait(self, arrival_s: float | None) -> None:
        """Wait for the next event, and take it in with all that have come."""
        times_s = [self._core.next_s, *([] if arrival_s is None else [arrival_s])]
        timeout_s = min(LOOK_S, *(max(0.0, time_s - self._now_s()) for time_s in times_s))
        try:
            end = self._ends.get(timeout=timeout_s)
        except queue.Empty:
            if why := self._fabric.ended():
                raise ProcessFailed(why) from None
        else:
            self._take_in(end)
        for active in self._active.values():
            self._note_progress(active)
        with self._moving():
            self._fabric.settle()

    @contextlib.contextmanager
    def _moving(self) -> Iterator[None]:
        """Let a move to other slots wait while a switch is started again. Raises ProcessFailed if none is."""
        try:
            yield
        except ControllerError as error:
            if why := self._fabric.ended():
                raise ProcessFailed(why) from error
            _log.warning("a move to other slots has to wait: %s", error)

    def _take_in(self, end: _End) -> None:
        active = self._active.get(end.run)
        if active is None:
            return  # of a run that was stopped meanwhile
        if end.error is not None:
            raise end.error
        if end.job is not None:
            if end.job.failure() is None:
                self._note_progress(active)
                self._core.handle(Ended(self._now_s(), end.job.spec.job.name))
            else:
                active.failed.append(end.job)  # who is to blame shows when all are gone
            return
        del self._active[end.run]
        self._note_progress(active)
        for job in active.failed:
            if active.is_to_blame(job):
                self._core.handle(Ended(self._now_s(), job.spec.job.name, self._why(job)))
            else:
                why = active.group.turns.broken
                reason = f"its group broke: {why}"
                self._core.handle(Interrupted(self._now_s(), job.spec.job.name, reason))

    def _why(self, job: JobEnd) -> str:
        failure = job.failure()
        return self._describe(failure) if failure else ""

    def _note_progress(self, active: _Active) -> None:
        now_s = self._now_s()
        for name, before in active.before.items():
            self._done[name] = before + active.group.turns.iterations(name)
            self._core.handle(Progressed(now_s, name, self._done[name]))

    def _tell(self) -> None:
        if self._core.log is None:
            return
        entries = self._core.log.entries
        for entry in entries[self._told :]:
            self._on_entry(entry)
        self._told = len(entries)
