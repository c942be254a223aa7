"""The switches and workers of one fabric in this process, as the daemon uses them; all of it ends with it."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import TypeVar

from controller.core import Place
from controller.errors import BadSpec, ControllerError, OutOfMemory, OutOfRows
from controller.p4runtime_shim.ports import Told
from controller.switches.fleet import Report
from controller.switches.layout import TreeAdmission
from controller.switches.model import Registration, SwitchInfo
from controller.switches.reconcile import Waiting
from controller.vocabulary import Job, Region, Topology
from ina.runtime.admission import admitted
from ina.runtime.errors import RunError
from ina.runtime.fabric import SwitchFabric
from ina.runtime.fabric_jobs import FabricLauncher
from ina.runtime.job_group import Cancelled, GroupRun
from ina.runtime.jobs import JobEnd, OnOutput
from ina.runtime.launch import JobRun
from ina.runtime.served import ServedJob, held
from ina.runtime.spec import LaunchSpec
from ina.service.executor import Executor
from ina.service.records import Audit
from ina.service.runner import RunOrder, RunStatus
from ina.service.wiring import Wiring

_Key = TypeVar("_Key")


def slots_at_root(place: Place) -> Region | None:
    """Return a job's slots at the root of its tree, which the one switch here stands for; None: no tree."""
    return None if place.tree is None else place.regions.get(place.tree.root)


class FabricPlane:
    """The one switch of a fabric, which stands for the root of each job's tree: a `DataPlane`."""

    def __init__(self, fabric: SwitchFabric, jobs: Mapping[str, LaunchSpec]) -> None:
        """Admit `jobs`, by name, as they are launched."""
        self._fabric = fabric
        self._jobs = jobs
        self._held: dict[int, contextlib.ExitStack] = {}
        """By id: what the removal of a job undoes."""
        self._there: Sequence[TreeAdmission] = ()
        """The jobs as they were, with slots decided on, when none was moving."""

    @property
    def addresses(self) -> Mapping[str, str]:
        """Where the switch's P4Runtime service is."""
        return {name: switch.address for name, switch in self._fabric.switches.items()}

    @property
    def offers(self) -> SwitchInfo:
        """What the program offers to jobs."""
        return self._fabric.offers

    @property
    def paced(self) -> bool:
        """Whether workers have to pace their packets."""
        return self._fabric.queue_packets is not None

    def admit(
        self, job: Job, place: Place, udp_ports: Sequence[int], registration: Registration, wiring: Wiring
    ) -> TreeAdmission:
        """Admit a job, with its fallback server, to the switch.

        Args:
            job: The job.
            place: Its servers, tree and slots.
            udp_ports: UDP port of each server.
            registration: What the switches keep of it for people.
            wiring: The cluster.

        Raises OutOfMemory or OutOfRows if others have the room that it needs; else BadSpec.
        """
        spec, alone = self._jobs[job.name], not self._held
        with contextlib.ExitStack() as stack:
            admitting = admitted(self._fabric, spec, None, threading.Event(), region=slots_at_root(place))
            try:
                tree = stack.enter_context(admitting)
            except (ControllerError, RunError) as error:
                if not alone and isinstance(error, OutOfMemory | OutOfRows):
                    raise
                raise BadSpec(str(error)) from error
            self._held[tree.job] = stack.pop_all()
            return tree

    def resized(self, job: str, admission: TreeAdmission, place: Place) -> TreeAdmission:
        """Return a job with these slots; `reconcile` has it move there."""
        region = slots_at_root(place)
        if region is None:
            return admission
        return admission.at(dict.fromkeys(admission.switches, region))

    def remove(self, admission: TreeAdmission) -> None:
        """Take a job off the switch and its fallback server."""
        if (stack := self._held.pop(admission.job, None)) is not None:
            stack.close()

    def close(self) -> None:
        """Remove all jobs."""
        while self._held:
            self._held.popitem()[1].close()

    def look(self, silent: Collection[str]) -> Mapping[str, Told]:
        """Return nothing: nobody else changes the switch."""
        return {}

    def at_rest(
        self, admissions: Collection[TreeAdmission], wiring: Wiring, told: Mapping[str, Told]
    ) -> bool:
        """Return whether all have the slots that were decided on."""
        return self._there == [*admissions]

    def reconcile(
        self, admissions: Collection[TreeAdmission], wiring: Wiring, told: Mapping[str, Told]
    ) -> Report:
        """Go on with the moves of jobs to other slots. Raises ControllerError; then they wait."""
        if self.offers.shared and not self._fabric.move(admissions):
            root = self._fabric.root
            return Report((), tuple(Waiting(root, tree.job, "jobs are moving") for tree in admissions))
        self._there = [*admissions]
        return Report(())

    def links(self, wiring: Wiring, told: Mapping[str, Told]) -> dict[tuple[str, str], str]:
        """Return nothing: the links of this machine do not go."""
        return {}

    def audit(self, admissions: Mapping[str, TreeAdmission], leaving: Collection[int], now_s: float) -> Audit:
        """Return that nothing differs: its jobs are those of this process."""
        return Audit(now_s)

    def counters(
        self, jobs: Mapping[_Key, TreeAdmission], outcomes: Collection[str]
    ) -> dict[_Key, dict[str, int]]:
        """Return nothing: launches count."""
        return {}


class OwnFallback:
    """Nothing to do: `FabricPlane` admits a job to the fabric's fallback server, too. A `FallbackServing`."""

    def serve(self, wanted: Mapping[str, Sequence[TreeAdmission]]) -> None:
        """Do nothing."""

    def lives(self, server: str) -> bool:
        """Return True: the fabric ends the jobs whose fallback server has ended."""
        return True

    def counters(self, server: str, job: int) -> dict[str, float]:
        """Return nothing: launches count."""
        return {}

    def change_cluster(self, cluster: Topology) -> None:
        """Do nothing: the fabric has one."""


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
        except Cancelled:
            pass
        except BaseException as error:
            self.error = error
            self.status.failure = f"{type(error).__name__}: {error}"
        finally:
            self.status.over = True


class _AdmittedLauncher(FabricLauncher):
    """Runs jobs that the `FabricPlane` of the same fabric has admitted."""

    def serving(self, run: JobRun) -> AbstractContextManager[ServedJob]:
        """Keep the meeting point of a job while it runs."""
        return held(self._fabric, run.spec, self._fabric.jobs[run.spec.job.name], None)


class FabricRuns(Executor):
    """Runs in threads of this process: an `Executor`.

    Args:
        fabric: The switch.
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

        def ended(end: JobEnd) -> None:
            failure = end.failure()
            run.status.note_end(group, end.spec.job.name, "" if failure is None else self._describe(failure))
            self.on_end()

        group = GroupRun(
            _AdmittedLauncher(self._fabric),
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
