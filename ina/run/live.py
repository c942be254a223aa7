"""A service inside one command: it submits jobs at their arrival times, and ends when all jobs are over.

Its runs are threads of this process, and its state is in memory. Both end with the command.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import threading
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import dataclass, replace
from functools import partial

from msgspec import structs

from controller import ControllerError
from controller.core import Core, Log, LogEntry, Submitted
from controller.policies.scheduling import BadDecision, Decision, Group, JobState, Stuck, Submission, View
from controller.policies.scheduling.policy import Setup
from controller.policies.scheduling.speed import ExclusiveSpeed
from controller.vocabulary import Link, Server, Switch, Topology
from hostlib.launch.launcher import JobLog, Rendezvous
from ina.errors import ProcessFailed, RunError
from ina.run.clock import Clock
from ina.run.fabric_network import FabricNetwork
from ina.run.groups import Groups
from ina.run.launch.executor import Executor
from ina.run.launch.group_run import GroupRun, OnOutput, OnProgress
from ina.run.launch.job_run import Attendance, JobEnd, JobRun
from ina.run.launch.orders import RunOrder, RunStatus
from ina.run.launch.spec import JobResult, LaunchSpec, RankReports
from ina.run.ledger import Ledger
from ina.run.loop import ServiceLoop
from ina.run.memory import ServiceState
from ina.run.policies import Policies
from ina.run.switches.fabric import SwitchFabric
from ina.run.threads import Threads

TICK_S = 0.1
LOOK_S = 0.1
"""Interval, in s, at which the service checks its runs, and reads the jobs' progress."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerOptions:
    """How the workers of jobs run.

    Attributes:
        on_output: Called with the workers' output.
        takes_turns: Whether jobs take turns on storage, CPU, GPU and network, and report progress.
        attendance: Callbacks if another launcher starts the workers; None: this process starts them.
        listen: Address of this machine at which ranks meet; None: an address that only this machine can
            reach.
        describe: Converts the error of a failed job to the text in the run's status.
    """

    on_output: OnOutput
    takes_turns: bool = False
    attendance: Attendance | None = None
    listen: str | None = None
    describe: Callable[[BaseException], str] = str


class FabricRuns(Executor):
    """An executor whose runs are threads of this process.

    Attributes:
        latest: The run that was started last; None: none has been started.
        on_end: Called, in the job's thread, when a job has ended.
    """

    def __init__(self, network: FabricNetwork, how: WorkerOptions) -> None:
        self._network, self._how = network, how
        self._runs: dict[int, GroupRun] = {}
        self.latest: GroupRun | None = None
        self.on_end: Callable[[], object] = lambda: None

    def start(self, order: RunOrder) -> None:
        """Start a run, unless it runs already."""
        if order.number in self._runs:
            return
        held = [self._network.held[order.admissions[job.name].job] for job in order.jobs]
        group = GroupRun(
            held,
            [job.offset for job in order.jobs] if self._how.takes_turns else None,
            on_output=self._how.on_output,
            on_end=lambda: self.on_end(),
            meet=self._meet,
            describe=self._how.describe,
        )
        for each in held:
            self._network.ends[each.spec.name] = each
            each.attendance = self._how.attendance
        group.grant({job.name: job.in_flight for job in order.jobs})
        try:
            threading.Thread(target=group.run, name=f"run {order.number}").start()
        except RuntimeError as error:  # no thread can be started
            raise RunError(str(error)) from error
        self.latest = self._runs[order.number] = group

    @contextlib.contextmanager
    def _meet(self, job: JobRun) -> Iterator[Rendezvous]:
        """Yield a rendezvous that accepts the ranks of a job, and admit groups of its ranks.

        Write the job's start, and at the end of the context its ranks' exits, to the job's log.
        """
        held, listen = self._network.held[job.tree.job], self._how.listen
        with contextlib.ExitStack() as stack:
            rendezvous = stack.enter_context(job.meeting(listen))
            stack.enter_context(contextlib.closing(Groups(self._network, held, rendezvous, listen)))
            if job.spec.log is None:
                yield rendezvous
                return
            fabric, number = held.fabric, job.tree.job
            log = stack.enter_context(contextlib.closing(JobLog(job.spec.log)))
            log.write(
                "start",
                job=number,
                name=job.spec.name,
                workers=job.spec.job.workers,
                ports=job.ports(),
                server=fabric.fallback_switch_port and f"{fabric.root}/{fabric.fallback_switch_port}",
            )
            yield rendezvous
            for exit_ in job.exits:
                log.write("exit", job=number, rank=exit_.rank, status=exit_.status, reason=exit_.reason)

    def grant(self, number: int, in_flight: Mapping[str, int]) -> None:
        """Set the maximum number of packets in flight of each job of a run, by job name; 0: no limit."""
        if (run := self._runs.get(number)) is not None:
            run.grant(in_flight)

    def stop(self, number: int) -> None:
        """End a run and all of its processes."""
        if (run := self._runs.get(number)) is not None:
            run.cancel()
            run.over.wait()

    def close(self) -> None:
        """End all runs."""
        for run in self._runs.values():
            run.cancel()
        for number in self._runs:
            self.stop(number)

    def check(self) -> None:
        """Raise the error of a run that has ended early because of an error other than its jobs' failures."""
        for run in list(self._runs.values()):
            if run.error is not None:
                raise run.error

    def status(self, number: int) -> RunStatus | None:
        """Return the status of a run; None: it was never started."""
        run = self._runs.get(number)
        return None if run is None else run.status

    def lives(self, number: int) -> bool:
        """Return True from the start of a run until all of its jobs have ended."""
        run = self._runs.get(number)
        return run is not None and not run.over.is_set()

    def forget(self, number: int) -> None:
        """Remove a run that is over, so that `known` and `status` no longer have it."""
        self._runs.pop(number, None)

    def known(self) -> list[int]:
        """Return the numbers of all runs that have been started and not yet forgotten."""
        return list(self._runs)

    def why_ended(self, number: int) -> str:
        """Return, as text, why a run has ended without reporting the ends of its jobs."""
        return "its launch was cancelled"


class LiveJobs:
    """A service inside this process for jobs on a fabric. It has no HTTP API, and its state is in memory.

    Attributes:
        loop: The service's loop.
        runs: The executor of the jobs' runs.
    """

    def __init__(
        self,
        cluster: Topology,
        policies: Policies,
        fabric: SwitchFabric,
        jobs: Mapping[str, LaunchSpec],
        how: WorkerOptions,
        *,
        scheduled: bool = True,
    ) -> None:
        """Prepare a service. Any thread may call this.

        Args:
            cluster: The cluster about which the policies decide: its servers and, if the policies allocate
                slots, its switches and links.
            policies: The policies.
            fabric: The switches on which the jobs run, in place of the cluster's switches.
            jobs: How each job is started, by the job's name.
            how: How the workers run.
            scheduled: Whether the policies decide when jobs run. If so, jobs wait for free slots, and the
                service ends with an error if jobs would wait forever.

        Raises BadSpec for names of policies that do not exist.
        """
        memory = ServiceState()
        self._ledger = Ledger(memory, cluster, policies, Clock.of(memory))
        self._network = FabricNetwork(fabric, jobs, scheduled=scheduled)
        self.runs = FabricRuns(self._network, how)
        self._scheduled = scheduled
        self._ending = threading.Event()
        self._reported = 0
        self.loop = ServiceLoop(
            self._ledger,
            testbed="",
            switches=self._network,
            executor=self.runs,
            fallbacks=fabric.fallbacks,
            blocking=Threads(),
            on_loss=self._network.lose,
            progress_s=0.0,
        )

    @property
    def core(self) -> Core:
        """The core of the service."""
        return self._ledger.core

    def ends(self, specs: Sequence[LaunchSpec]) -> list[JobEnd]:
        """Return how each job in `specs` has ended, or why it could not be admitted, in the same order."""
        return [self._network.ends.get(spec.name) or JobEnd(spec) for spec in specs]

    def reports(self, specs: Sequence[LaunchSpec]) -> dict[str, RankReports]:
        """Return the latest report of each rank of the jobs in `specs`, by the job's name."""
        return {end.spec.name: end.reports() for end in self.ends(specs)}

    def end(self) -> None:
        """Request the end of all jobs and of the service, and return at once. Any thread may call this."""
        self._ending.set()

    def run_blocking(
        self,
        jobs: Sequence[Submitted],
        *,
        on_entry: Callable[[LogEntry], None] = lambda entry: None,
        on_tick: Callable[[], None] = lambda: None,
    ) -> None:
        """Run jobs in another thread (see `run`); return when all have ended.

        Meanwhile call `on_tick` several times per second. An exception in this thread, such as
        KeyboardInterrupt, is raised again after all jobs have been ended and their results recorded. Raises
        the errors of `run`.
        """
        with ThreadPoolExecutor(1, thread_name_prefix="service") as pool:
            try:
                serving = pool.submit(lambda: asyncio.run(self.run(jobs, on_entry=on_entry)))
                while wait([serving], TICK_S).not_done:
                    on_tick()
            except BaseException:
                self.end()
                raise
        serving.result()

    async def run(
        self, jobs: Sequence[Submitted], *, on_entry: Callable[[LogEntry], None] = lambda entry: None
    ) -> None:
        """Submit each job at its arrival time; return when all have ended.

        `on_entry` is called with each new entry of the log of decisions. If a job fails, its failure is
        recorded (`Core.over`), and the other jobs continue. Raises ProcessFailed if the switches are gone,
        Stuck if jobs would wait forever, and BadDecision if the policy cannot decide; all runs have ended
        then.
        """
        aio = asyncio.get_running_loop()
        self.runs.on_end = partial(aio.call_soon_threadsafe, self.loop.look_soon)
        self._network.on_room = partial(aio.call_soon_threadsafe, self.loop.try_again)
        serving = asyncio.create_task(self.loop.run())
        submitting = asyncio.create_task(self._submit(jobs, on_entry))
        try:
            done, _ = await asyncio.wait({serving, submitting}, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()
        finally:
            self.runs.on_end = self._network.on_room = lambda: None
            for task in (submitting, serving):
                task.cancel()
            await asyncio.gather(submitting, serving, return_exceptions=True)
            self.runs.close()
            for held in list(self._network.held.values()):
                self._network.leave(held)

    async def _submit(self, jobs: Sequence[Submitted], on_entry: Callable[[LogEntry], None]) -> None:
        loop, core = self.loop, self.core
        coming = deque(sorted(jobs, key=lambda each: each.at_s))
        while loop.ready:
            await loop.changed(LOOK_S)
        while coming or core.jobs or self._ledger.holds:
            if self._ending.is_set():
                coming.clear()
                for name in [*core.jobs]:
                    await loop.end(name, "interrupted")
            now_s = loop.ledger.now_s
            arrived = []
            while coming and coming[0].at_s <= now_s:
                arrived.append(structs.replace(coming.popleft(), at_s=now_s))
            await loop.add_jobs(arrived)
            self._report(on_entry)
            self._check(waits=not coming)
            await loop.changed(min(LOOK_S, max(0.0, coming[0].at_s - now_s)) if coming else LOOK_S)
        self._report(on_entry)

    def _check(self, *, waits: bool) -> None:
        self.runs.check()
        if not self._scheduled:
            return
        if why := self._network.ended:
            raise ProcessFailed(why)
        if waits and self.core.stuck:
            if self.core.policy_failure:
                raise BadDecision(self.core.policy_failure)
            raise Stuck(f"no job runs, and {', '.join(self.core.jobs)} would wait forever")

    def _report(self, on_entry: Callable[[LogEntry], None]) -> None:
        entries = self._ledger.log.entries
        for entry in entries[self._reported :]:
            on_entry(entry)
        self._reported = len(entries)


# --------------------------------------------------------------------------- jobs that run at once


@dataclass(frozen=True, slots=True)
class RunReport:
    """The result of `run`."""

    ends: Sequence[JobEnd]
    """How each job has ended, in the order of the argument `specs`."""
    refused: Mapping[str, int]
    """Number of packets that the switches refused because they belonged to no job, by reason; empty if the
    switches were gone."""
    interrupt: BaseException | None
    """The KeyboardInterrupt or SystemExit that ended the jobs; None: none did."""


def run(
    fabric: SwitchFabric,
    specs: Sequence[LaunchSpec],
    *,
    on_output: OnOutput,
    on_progress: OnProgress = lambda reports: None,
) -> RunReport:
    """Run jobs at the same time; return how they ended, and how many packets the switches have refused.

    If a job fails, the other jobs continue.

    Args:
        fabric: The switches.
        specs: The jobs.
        on_output: Called with the output of workers.
        on_progress: Called several times per second with the reports of all ranks.
    """
    # switches started by this process have counted only this run's packets
    before = _refused(fabric) if fabric.spec.lease_s is not None else {}
    live = _all_at_once(fabric, specs, WorkerOptions(on_output=on_output))
    interrupt: BaseException | None = None
    try:
        live.run_blocking(_submitted(specs), on_tick=lambda: on_progress(live.reports(specs)))
    except (KeyboardInterrupt, SystemExit) as error:
        interrupt = error
    return RunReport(live.ends(specs), _since(before, _refused(fabric)), interrupt)


def run_on(
    fabric: SwitchFabric,
    specs: Sequence[LaunchSpec],
    how: WorkerOptions,
    on_progress: OnProgress = lambda reports: None,
) -> list[JobEnd]:
    """Run jobs at the same time; return how each has ended. If a job fails, the other jobs continue.

    Args:
        fabric: The switches.
        specs: The jobs.
        how: How their workers run.
        on_progress: Called several times per second with the reports of all ranks.

    An interrupt such as KeyboardInterrupt ends the jobs, and is raised again.
    """
    live = _all_at_once(fabric, specs, how)
    live.run_blocking(_submitted(specs), on_tick=lambda: on_progress(live.reports(specs)))
    return live.ends(specs)


class AtOnce:
    """A scheduling policy that runs all jobs at once, on the GPUs in their `Submission`.

    Jobs on the same GPUs form a group.
    """

    name = "at-once"

    def decide(self, view: View) -> Decision:
        """Return a decision that runs all jobs."""
        groups: dict[int, list[JobState]] = {}
        for job in view.jobs.values():
            groups.setdefault(int(job.spec.extra["first_gpu"]), []).append(job)
        return Decision(
            [
                Group(
                    tuple(jobs),
                    tuple(range(first, first + jobs[0].spec.gpus)),
                    fused=len(jobs) > 1,
                    stage_order=tuple(int(job.spec.extra["stage"]) for job in jobs),
                )
                for first, jobs in groups.items()
            ]
        )


class _Policies(Policies):
    """Policies with the scheduler `AtOnce`, made without importing the registry of schedulers."""

    def core(self, cluster: Topology) -> Core:
        """Return a new core that decides about a cluster with `AtOnce`."""
        return Core(self.servers(cluster), Setup(AtOnce(), ExclusiveSpeed()), rules=self._rules, log=Log())


def _all_at_once(fabric: SwitchFabric, specs: Sequence[LaunchSpec], how: WorkerOptions) -> LiveJobs:
    """Return a service that runs all of these jobs at once: its cluster has enough GPUs for them."""
    gpus = max(1, sum(spec.job.workers for spec in specs))
    room = Topology(
        servers=(Server("here", gpus=gpus),), switches=(Switch("switch"),), links=(Link("here", "switch"),)
    )
    jobs = {spec.name: spec for spec in specs}
    return LiveJobs(room, _Policies(AtOnce.name, None), fabric, jobs, how, scheduled=False)


def _submitted(specs: Sequence[LaunchSpec], stages: Sequence[int] | None = None) -> list[Submitted]:
    """Return the submissions of jobs.

    With `stages`, the jobs form one group. `stages` has, for each job, the index in
    `hostlib.interleave.STAGES` of the stage that the job may run first.
    """
    firsts = [0, *itertools.accumulate(spec.job.workers for spec in specs)]
    return [
        Submitted(
            job.arrival_s,
            Submission(
                job.name,
                job.arrival_s,
                job.workers,
                1,
                extra={"first_gpu": str(0 if stages else first), "stage": str(stages[at] if stages else 0)},
            ),
            replace(job, deadline_s=None),
        )
        for at, (job, first) in enumerate(zip((spec.job for spec in specs), firsts, strict=False))
    ]


@contextlib.contextmanager
def grouped(
    fabric: SwitchFabric, specs: Sequence[LaunchSpec], offsets: Sequence[int], on_output: OnOutput
) -> Iterator[GroupRun]:
    """Start jobs that take turns, as one group, and yield their run; end it at the end of the context.

    Args:
        fabric: The switches.
        specs: The jobs.
        offsets: Index in `hostlib.interleave.STAGES` of the stage that each job may run first.
        on_output: Called with the output of workers.

    Raises the error if the group cannot be started.
    """
    live = _all_at_once(fabric, specs, WorkerOptions(on_output=on_output, takes_turns=True))
    with ThreadPoolExecutor(1) as pool:
        serving = pool.submit(lambda: asyncio.run(live.run(_submitted(specs, offsets))))
        try:
            while live.runs.latest is None and not serving.done():
                wait([serving], timeout=TICK_S)
            for end in live.ends(specs) if live.runs.latest is None else ():
                end.check()
            assert live.runs.latest is not None
            yield live.runs.latest
        finally:
            live.end()
            serving.result()


def run_one(
    fabric: SwitchFabric,
    spec: LaunchSpec,
    how: WorkerOptions,
    on_progress: OnProgress = lambda reports: None,
) -> JobResult:
    """Run one job; return its result.

    Args:
        fabric: The switches.
        spec: The job; its `command` is ignored if another launcher starts its workers.
        how: How its workers run.
        on_progress: Called several times per second with the reports of all ranks.

    Raises the error that prevented the job's start, and WorkerFailed if the job failed; if another launcher
    has started its workers, their failures are in the result. An interrupt such as KeyboardInterrupt ends the
    job, and is raised again.
    """
    (end,) = run_on(fabric, [spec], how, on_progress)
    if how.attendance is None:
        end.check()
    if end.error is not None:
        raise end.error
    assert end.result is not None
    return end.result


def _refused(fabric: SwitchFabric) -> dict[str, int]:
    try:
        return {} if fabric.switch_ended() or fabric.silent else fabric.refused()
    except ControllerError:
        return {}


def _since(before: Mapping[str, int], now: Mapping[str, int]) -> dict[str, int]:
    """Return the increase of each count from `before` to `now`; leave out counts without an increase.

    A count that is smaller in `now` began again at 0, because its switch was restarted.
    """
    grown = {
        name: count - (before.get(name, 0) if count >= before.get(name, 0) else 0)
        for name, count in now.items()
    }
    return {name: count for name, count in grown.items() if count}
