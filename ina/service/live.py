"""A service of one command: submits jobs as they arrive, and ends when all of them are over.

Its one switch stands for the root of each job's tree, its fallback server for those of the cluster, and its
runs are threads of this process: all of it ends with the command.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections import deque
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import partial
from types import MappingProxyType

from controller.core import Core, Entry, Place, Submitted
from controller.errors import BadSpec, ControllerError, OutOfMemory, OutOfRows
from controller.p4runtime_shim.ports import SwitchReport
from controller.policies.scheduling import BadDecision, Stuck
from controller.switches.fleet import Report
from controller.switches.layout import TreeAdmission
from controller.switches.model import Registration
from controller.vocabulary import Job, Region, Topology
from ina.runtime.admission import at_one_switch
from ina.runtime.errors import ProcessFailed
from ina.runtime.fabric import SwitchFabric
from ina.runtime.fallback_process import description
from ina.runtime.jobs import GroupRun, OnOutput
from ina.runtime.launch import JobRun
from ina.runtime.programs import bundle
from ina.runtime.spec import LaunchSpec
from ina.service.clock import Clock
from ina.service.executor import Executor
from ina.service.ledger import Ledger
from ina.service.loop import Loop
from ina.service.memory import Memory
from ina.service.network import Network
from ina.service.orders import RunOrder, RunStatus
from ina.service.policies import Policies
from ina.service.runner import GivenLauncher
from ina.service.threads import Threads
from ina.service.wiring import Wiring

LOOK_S = 0.1
"""Interval at which the service is asked how it is, and told how far jobs are."""


class OneSwitch(Network):
    """The one switch of a fabric, which stands for the root of each job's tree; each rank has a port."""

    def __init__(self, fabric: SwitchFabric, jobs: Mapping[str, LaunchSpec]) -> None:
        """Serve `jobs`, by name, as they are launched."""
        assert fabric.topology is not None
        assert fabric.spec.program is not None
        super().__init__(
            lambda name, address: fabric.fleet.controllers[name],
            bundle(fabric.spec.program, fabric.offers.lanes),
            watch=lambda address: None,
        )
        self._fabric, self._jobs = fabric, jobs
        self._wiring = Wiring.of(fabric.topology)

    def admit(
        self, job: Job, place: Place, udp_ports: Sequence[int], registration: Registration, wiring: Wiring
    ) -> TreeAdmission:
        """Admit a job to the switch, and to the fabric's fallback server if it shares slots.

        Args:
            job: The job.
            place: Its slots; its servers are not here.
            udp_ports: Not used: each rank has a port.
            registration: What the switch keeps of it for people.
            wiring: Not used: the switch has a topology of its own.

        Raises OutOfMemory or OutOfRows if others have the room that it needs; else BadSpec.
        """
        topology, root = self._wiring.whole, self._fabric.root
        ports = [topology.port_to(root, host) for host in topology.servers_for("worker")]
        asked = at_one_switch(self._fabric, self._jobs[job.name], _at_root(place))
        self._follow(self._wiring)
        try:
            tree = self._fleet.admit(asked, ports={root: ports}, registration=registration)
        except ControllerError as error:
            if isinstance(error, OutOfMemory | OutOfRows) and self._fleet.read():
                raise
            raise BadSpec(str(error)) from error
        if self._fabric.fallback is not None:
            self._fabric.fallback.add(tree.job, description(tree))
        return tree

    def remove(self, admission: TreeAdmission) -> None:
        """Take a job off the fallback server and the switch. Raises ControllerError."""
        if self._fabric.fallback is not None:
            self._fabric.fallback.remove(admission.job)
        super().remove(admission)

    def resized(self, job: str, admission: TreeAdmission, place: Place) -> TreeAdmission:
        """Return a job as the switch should hold it with these slots; `reconcile` has it move there."""
        region = _at_root(place)
        return admission if region is None else admission.at(dict.fromkeys(admission.switches, region))

    def at_rest(
        self, admissions: Collection[TreeAdmission], wiring: Wiring, told: Mapping[str, SwitchReport]
    ) -> bool:
        """Return whether `reconcile` would find nothing to do."""
        return super().at_rest(admissions, self._wiring, told)

    def reconcile(
        self,
        admissions: Collection[TreeAdmission],
        wiring: Wiring,
        told: Mapping[str, SwitchReport] = MappingProxyType({}),
    ) -> Report:
        """Have the switch hold these jobs, and no others. Raises ControllerError."""
        return super().reconcile(admissions, self._wiring, told)


def _at_root(place: Place) -> Region | None:
    """Return a job's slots at the root of its tree; None: it has no tree."""
    return None if place.tree is None else place.regions.get(place.tree.root)


class _Run:
    """A run in a thread of its own."""

    def __init__(self, order: RunOrder, group: GroupRun, granted: dict[str, int]) -> None:
        self.names = [job.name for job in order.jobs]
        self.group = group
        self.granted = granted
        self.status = RunStatus()
        self.error: BaseException | None = None
        self.thread = threading.Thread(target=self._carry_out, name=f"run {order.number}")

    def _carry_out(self) -> None:
        try:
            self.group.run()
        except BaseException as error:
            self.error = error
            self.status.failure = f"{type(error).__name__}: {error}"
        finally:
            self.status.over = True


class FabricRuns(Executor):
    """Runs in threads of this process: an `Executor`.

    Args:
        fabric: The switch, with the hosts of workers.
        jobs: What the workers of each job run.
        on_output: Called with what they write.
        describe: Puts into words why a job failed.
    """

    def __init__(
        self,
        fabric: SwitchFabric,
        jobs: Mapping[str, LaunchSpec],
        *,
        on_output: OnOutput,
        describe: Callable[[BaseException], str] = str,
    ) -> None:
        self._fabric = fabric
        self._jobs = jobs
        self._on_output = on_output
        self._describe = describe
        self._runs: dict[int, _Run] = {}
        self.on_end: Callable[[], object] = lambda: None
        """Called, in a thread of its own, when a job has ended."""

    def start(self, order: RunOrder) -> None:
        """Start a run, unless it runs already."""
        if order.number in self._runs:
            return

        granted = {job.name: job.in_flight for job in order.jobs}

        def ended(end: JobRun) -> None:
            failure = end.failure()
            run.status.note_end(group, end.spec.job.name, "" if failure is None else self._describe(failure))
            self.on_end()

        group = GroupRun(
            GivenLauncher(order, self._fabric.hosts),
            [self._jobs[job.name] for job in order.jobs],
            [job.offset for job in order.jobs],
            on_output=self._on_output,
            on_end=ended,
            granted=granted.__getitem__,
        )
        run = self._runs[order.number] = _Run(order, group, granted)
        run.thread.start()

    def grant(self, number: int, in_flight: Mapping[str, int]) -> None:
        """Have the jobs of a run, by name, keep so many packets in flight; 0: no bound."""
        if (run := self._runs.get(number)) is not None:
            run.granted.update(in_flight)

    def stop(self, number: int) -> None:
        """End a run and all of its processes."""
        if (run := self._runs.get(number)) is not None:
            run.group.cancel()
            run.thread.join()

    def close(self) -> None:
        """End all runs."""
        for run in self._runs.values():
            run.group.cancel()
        for run in self._runs.values():
            run.thread.join()

    def check(self) -> None:
        """Raise what a run ended with that could not be carried out."""
        for run in list(self._runs.values()):
            if run.error is not None:
                raise run.error

    def status(self, number: int) -> RunStatus | None:
        """Return the status of a run; None: nobody has started it."""
        run = self._runs.get(number)
        if run is None:
            return None
        run.status.note_progress(run.group, run.names)
        return run.status

    def lives(self, number: int) -> bool:
        """Return whether a run goes on."""
        run = self._runs.get(number)
        return run is not None and not run.status.over

    def forget(self, number: int) -> None:
        """Forget a run that is over."""
        self._runs.pop(number, None)

    def known(self) -> list[int]:
        """Return the runs that are known."""
        return list(self._runs)

    def why_ended(self, number: int) -> str:
        """Return why a run has ended that has not said how its jobs did."""
        return "its launch was cancelled"


class LiveJobs:
    """Jobs that a service in this process runs on a fabric; made by `serving`."""

    def __init__(self, ledger: Ledger, daemon: Loop, fabric: SwitchFabric, runs: FabricRuns) -> None:
        self.daemon = daemon
        """The service."""
        self._ledger = ledger
        self._fabric = fabric
        self._runs = runs
        self._told = 0

    @property
    def core(self) -> Core:
        """What decides."""
        return self._ledger.core

    async def run(
        self, jobs: Sequence[Submitted], *, on_entry: Callable[[Entry], None] = lambda entry: None
    ) -> None:
        """Submit each job at its time, and return when all have ended; `on_entry` gets the core's log.

        Raises ProcessFailed if the switches are gone, Stuck if jobs would wait for ever, and BadDecision if
        the policy cannot decide; nothing runs then. A job that fails is noted (`Core.over`), and the others
        go on.
        """
        loop = asyncio.get_running_loop()
        self._runs.on_end = partial(loop.call_soon_threadsafe, self.daemon.look_soon)
        serving = asyncio.create_task(self.daemon.run())
        submitting = asyncio.create_task(self._submit(jobs, on_entry))
        try:
            done, _ = await asyncio.wait({serving, submitting}, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()
        finally:
            self._runs.on_end = lambda: None
            for task in (submitting, serving):
                task.cancel()
            await asyncio.gather(submitting, serving, return_exceptions=True)
            self._runs.close()

    async def _submit(self, jobs: Sequence[Submitted], on_entry: Callable[[Entry], None]) -> None:
        daemon = self.daemon
        coming = deque(sorted(jobs, key=lambda each: each.at_s))
        while daemon.ready:
            await asyncio.sleep(LOOK_S / 10)
        while coming or self.core.jobs:
            now_s = daemon.now_s
            arrived = []
            while coming and coming[0].at_s <= now_s:
                arrived.append(coming.popleft()._replace(at_s=now_s))
            await daemon.take_in(arrived)
            self._tell(on_entry)
            self._check(waits=not coming)
            until_s = coming[0].at_s - now_s if coming else LOOK_S
            await asyncio.sleep(min(LOOK_S, max(0.0, until_s)))
        self._tell(on_entry)

    def _check(self, *, waits: bool) -> None:
        self._runs.check()
        fabric = self._fabric
        fabric.hosts.strangers()
        if why := fabric.switch_ended() or (fabric.fallback and fabric.fallback.check()):
            raise ProcessFailed(why)
        if waits and self.core.stuck:
            if self.core.undecided:
                raise BadDecision(self.core.undecided)
            raise Stuck(f"no job runs, and {', '.join(self.core.jobs)} would wait forever")

    def _tell(self, on_entry: Callable[[Entry], None]) -> None:
        assert self.core.log is not None
        entries = self.core.log.entries
        for entry in entries[self._told :]:
            on_entry(entry)
        self._told = len(entries)


@contextlib.contextmanager
def serving(
    cluster: Topology,
    policies: Policies,
    fabric: SwitchFabric,
    jobs: Mapping[str, LaunchSpec],
    *,
    on_output: OnOutput,
    describe: Callable[[BaseException], str] = str,
) -> Iterator[LiveJobs]:
    """Make a service of jobs on a fabric; nobody can reach it, and its state goes with it.

    Args:
        cluster: Servers and, unless the policies have no allocation, switches and links, to decide on.
        policies: Who decides.
        fabric: The switch that stands for those of the cluster.
        jobs: What the workers of each job run.
        on_output: Called with what they write.
        describe: Puts into words why a job failed.

    Raises BadSpec for policies that nobody has; ProcessFailed: the fallback server did not start.
    """
    memory = Memory()
    ledger = Ledger(memory, cluster, policies, Clock.of(memory))
    runs = FabricRuns(fabric, jobs, on_output=on_output, describe=describe)
    if fabric.offers.shared:
        assert fabric.topology is not None
        fabric.start_fallback(fabric.topology.port_to(fabric.root, fabric.server_host))
    loop = Loop(
        ledger,
        testbed="",
        switches=OneSwitch(fabric, jobs),
        executor=runs,
        fallbacks=None,
        blocking=Threads(),
        progress_s=0.0,
    )
    yield LiveJobs(ledger, loop, fabric, runs)
