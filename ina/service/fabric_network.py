"""The switches of a fabric, as a service of one command has them.

A job that they serve is admitted, registered, counted, and removed. Its registration, and its lease, are
renewed as long as it is served. So a job without a run does not stay, and a switch can tell who holds its
jobs and how they progress.
"""

from __future__ import annotations

import contextlib
import getpass
import logging
import math
import os
import shlex
import socket
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import NoReturn

from controller import ControllerError, NoSuchJob, Registration, SwitchSession
from controller.core import Place
from controller.errors import BadSpec, OutOfMemory, OutOfRows, SwitchRestarted
from controller.p4runtime_shim.ports import SwitchReport
from controller.switches.fleet import Report
from controller.switches.layout import TreeAdmission
from controller.switches.leases import RENEWALS_PER_LEASE, this_process
from controller.switches.model import SwitchInfo
from controller.vocabulary import Job, Region
from hostlib.launch.launcher import JobLog, Rendezvous, WorkerExit
from ina.launch.job_run import Admitted, JobRun
from ina.launch.metrics import goodput_bps, metrics
from ina.launch.spec import JobResult, LaunchSpec
from ina.service.network import Key, Network
from ina.service.wiring import Wiring
from ina.switches.admission import admitted
from ina.switches.fabric import SwitchFabric

_log = logging.getLogger(__name__)

RENEW_S = 15.0
"""Longest time between two renewals, also without a lease: others want to know how the job does."""
CHECK_S = 1.0
"""Interval at which a job is looked for on its switches: one may have been restarted."""
LONGEST_COMMAND = 200
"""Characters of a command that others are shown."""


def awake_s() -> float:
    """Return the time of a clock that goes on while the machine is suspended, unlike `time.monotonic`'s."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


@dataclass(slots=True, eq=False)
class FabricJob:
    """A job that the switches of a fabric serve for this process.

    Attributes:
        fabric: Its switches.
        spec: The job.
        tree: What they hold of it.
        registered: What they keep of it for others.
        ranks: Its run, or where the ranks of a group meet; None: not yet.
        lost: Why the switches have the job no more, once that has shown; None: they have it.
    """

    fabric: SwitchFabric
    spec: LaunchSpec
    tree: TreeAdmission
    registered: Registration
    ranks: JobRun | Rendezvous | None = None
    lost: str | None = None
    undone: contextlib.ExitStack = field(default_factory=contextlib.ExitStack)
    """What its end undoes."""
    _begun_s: float = field(default_factory=awake_s)
    _renewed_s: float = field(default_factory=awake_s)
    _due_s: float = 0.0

    def admitted(self) -> Admitted:
        """Return the job as its workers have to know it."""
        fabric = self.fabric
        return Admitted(fabric.hosts, self.spec, self.tree, fabric.offers, fabric.paced)

    def host(self, rank: int) -> str | None:
        """Return the host of the topology that a rank is on; None where the controller chooses ports."""
        topology = self.fabric.topology
        if topology is None:
            return None
        switch, member = self.admitted().worker(rank)
        if member is self.tree.beside:
            return self.fabric.hosts.machine(member)
        assert member.port is not None
        return topology.ports[switch][member.port].other(switch)

    def keep(self) -> None:
        """Make sure that the switches have it, and renew registration and lease if it is time.

        Ranks are told once the switches no longer have the job. Also removes other jobs whose holders are
        gone. A failed renewal is tried again: until the switch is swept nothing is lost.
        """
        fabric, due = self.fabric, time.monotonic() >= self._due_s
        try:
            with fabric.asking(again=True):
                fabric.fleet.check(self.tree)
                if due:
                    self.registered = self._next()
                    fabric.fleet.renew(self.tree, self.registered)
            fabric.silent = None
            if due:
                self._due_s = time.monotonic() + _interval_s(fabric)
                self._renewed_s = awake_s()
                with fabric.lock:
                    fabric.fleet.sweep()
        except NoSuchJob as error:
            fabric.silent = None
            self.lost = self.lost or self._readmitted(error)
            if self.lost and self.ranks is not None:
                self.ranks.fault(self.lost)
        except ControllerError:
            return

    def count(self, run: JobRun) -> None:
        """Add what switches and fallback server counted to the result of its run, before it is removed.

        The run has failed if the switches cannot be asked, unless it had before.
        """
        if run.result is None:
            return
        try:
            run.result = self._counted(run.result)
        except Exception as error:
            run.error = error
            return
        if self.spec.log is not None:
            with contextlib.closing(JobLog(self.spec.log)) as log:
                log.write("end", job=self.tree.job, **metrics(run.result))

    def _counted(self, result: JobResult) -> JobResult:
        fabric, tree, failure = self.fabric, self.tree, result.failure
        switches: dict[str, dict[str, int]] = {}
        fallback: dict[str, float] = {}
        try:
            if fabric.switch_ended() is None and fabric.silent is None:
                switches = fabric.counters(tree)
                fallback = fabric.fallback.statistics(tree.job) if fabric.fallback else {}
        except NoSuchJob as error:
            self.lost = self.lost or self._why(error)
        except ControllerError as error:
            if failure is None:
                raise
            _log.warning("cannot read the switch's counters: %s", error)
        if self.lost and not result.interrupted:
            # Workers only notice that nobody answers.
            failure = WorkerExit(-1, 1, self.lost)
        elif failure and fabric.silent:
            failure = replace(failure, reason=f"{failure.reason}; {fabric.silent}")
        counters: dict[str, int] = {}
        for found in switches.values():
            for name, number in found.items():
                counters[name] = counters.get(name, 0) + number
        return replace(result, failure=failure, counters=counters, switches=switches, fallback=fallback)

    def _next(self) -> Registration:
        """Return the registration to write now."""
        return replace(
            self.registered,
            renewals=self.registered.renewals + 1,
            age_s=round(awake_s() - self._begun_s, 3),
            goodput_bps=goodput_bps(self.ranks.reports() if self.ranks is not None else {}),
        )

    def _why(self, error: NoSuchJob) -> str:
        """Return why a job that the switch has no more is gone."""
        job, lease_s = self.tree.job, self.registered.lease_s
        if isinstance(error, SwitchRestarted):
            return str(error)
        if lease_s is None or awake_s() - self._renewed_s < lease_s:
            return f"job {job} was removed from the switch by another program, such as 'ina remove'"
        return f"job {job} is gone: its lease of {lease_s:g} s expired, and other jobs took its slots"

    def _readmitted(self, error: NoSuchJob) -> str | None:
        """Put the job on a switch again that was restarted; return why it is lost, or None."""
        why = self._why(error)
        if not isinstance(error, SwitchRestarted):
            return why
        if reason := self.fabric.readmit():
            return f"{why}; the job cannot go on: {reason}"
        _log.warning("%s; its jobs are admitted again, and continue", why)
        return None


class FabricNetwork(Network):
    """The switches of a fabric; where a policy decides on others, its root stands for that of each tree.

    Attributes:
        held: The jobs that are served, by name; groups of their ranks are among them.
        ends: The latest run of each job, by name; of one that could not be admitted, with the error.
        check_s: Interval at which they are compared with what they should hold.
    """

    def __init__(self, fabric: SwitchFabric, specs: Mapping[str, LaunchSpec], *, scheduled: bool) -> None:
        """Serve jobs.

        Args:
            fabric: The switches.
            specs: The jobs, by name; those of later ones may be added.
            scheduled: A policy decides when they run: they wait for room, and are measured.
        """
        super().__init__(self._session, None, fabric.queue_packets, watch=lambda address: None)
        self._fleet = fabric.fleet
        self._fabric, self._specs, self._scheduled = fabric, specs, scheduled
        self._waiting = False
        self._told = False
        self.held: dict[str, FabricJob] = {}
        self.ends: dict[str, JobRun] = {}
        self.on_room: Callable[[], object] = lambda: None
        """Called, in another thread, when a job may find room that found none."""

    def _session(self, name: str, address: str) -> SwitchSession:
        return self._fabric.fleet.controllers[name]

    @property
    def offers(self) -> SwitchInfo:
        """What the program offers to jobs. Raises ControllerError."""
        return self._fabric.offers

    @property
    def check_s(self) -> float:
        """Interval at which the switches are compared: more often where others use them, too."""
        if not self._fabric.asked_by_others:
            return super().check_s
        return min(CHECK_S, _interval_s(self._fabric))

    def admit(
        self, job: Job, place: Place, udp_ports: Sequence[int], registration: Registration, wiring: Wiring
    ) -> TreeAdmission:
        """Admit a job to the switches, and to the fallback server if it shares slots.

        Args:
            job: The job.
            place: Its slots; its servers are not here.
            udp_ports: Not used: each rank has a port, or an address.
            registration: Not used: it names this process.
            wiring: Not used: the fabric has a topology of its own.

        Raises OutOfMemory or OutOfRows if it is to wait for room; else BadSpec, with the reason in `ends`.
        """
        try:
            return self.enter(self._specs[job.name], region=_at_root(place)).tree
        except (OutOfMemory, OutOfRows) as error:
            with self._fabric.lock:
                waits = bool(self._fleet.read()) if self._scheduled else self._may_find_room(error)
            if waits:
                raise
            self._refuse(job.name, error)
        except BadSpec as error:
            if self._scheduled and self.held:  # its hosts are others'
                raise OutOfRows(str(error)) from error
            self._refuse(job.name, error)
        except Exception as error:
            self._refuse(job.name, error)

    def _refuse(self, job: str, error: Exception) -> NoReturn:
        self.ends[job] = JobRun(self._specs[job], error=error, at_s=time.monotonic())
        raise BadSpec(str(error)) from error

    def _may_find_room(self, error: Exception) -> bool:
        """Return whether there are jobs of which it is not known yet that somebody holds them."""
        undecided_s = self._fleet.undecided_s()
        self._waiting = undecided_s is not None
        if undecided_s is not None and not self._told:
            self._told = True
            _log.warning(
                "no room for the job: %s; waiting up to %.0f s to see whether the jobs that are there"
                " still have a holder",
                error,
                undecided_s,
            )
        return self._waiting

    def enter(
        self, spec: LaunchSpec, *, region: Region | None = None, beside: Sequence[str | None] = ()
    ) -> FabricJob:
        """Admit a job; see `ina.switches.admission.admitted`."""
        fabric = self._fabric
        registered = _registration(fabric, spec)
        with contextlib.ExitStack() as stack:
            tree = stack.enter_context(admitted(fabric, spec, registered, region, beside))
            held = FabricJob(fabric, spec, tree, registered, undone=stack.pop_all())
        self.held[spec.job.name] = held
        return held

    def leave(self, held: FabricJob) -> None:
        """Take a job off the fallback server and the switches, after it was counted if it is no group."""
        del self.held[held.spec.job.name]
        with held.undone:
            if isinstance(held.ranks, JobRun):
                held.count(held.ranks)

    def remove(self, admission: TreeAdmission) -> None:
        """Count a job, and take it off the fallback server and the switches."""
        for held in [each for each in list(self.held.values()) if each.tree.job == admission.job]:
            self.leave(held)

    def resized(self, job: str, admission: TreeAdmission, place: Place) -> TreeAdmission:
        """Return a job as the switch should hold it with these slots; `reconcile` has it move there."""
        region = _at_root(place)
        return admission if region is None else admission.at(dict.fromkeys(admission.switches, region))

    def at_rest(
        self, admissions: Collection[TreeAdmission], wiring: Wiring, told: Mapping[str, SwitchReport]
    ) -> bool:
        """Return whether `reconcile` would find nothing to do."""
        others = self._fabric.asked_by_others and (self._waiting or self.held)
        return not others and not self._fleet.moving and not self._moved(admissions)

    def reconcile(
        self,
        admissions: Collection[TreeAdmission],
        wiring: Wiring,
        told: Mapping[str, SwitchReport] = MappingProxyType({}),
    ) -> Report:
        """Keep the jobs' leases, and have jobs move to the slots that they should have."""
        fabric = self._fabric
        if fabric.asked_by_others:
            for held in list(self.held.values()):
                held.keep()
            self._look_for_room()
        moved = self._moved(admissions)
        if not moved and not self._fleet.moving:
            return Report(())
        with fabric.lock:
            report = self._fleet.reconcile(admissions, may_remove=lambda job: False)
            if report.done:
                for held in moved:
                    held.tree = next(each for each in admissions if each.job == held.tree.job)
                    fabric.jobs[held.spec.job.name] = held.tree
        return report

    def _moved(self, admissions: Collection[TreeAdmission]) -> list[FabricJob]:
        wanted = {each.job: each for each in admissions}
        return [
            held
            for held in list(self.held.values())
            if held.tree != wanted.get(held.tree.job, held.tree) and isinstance(held.ranks, JobRun)
        ]

    def _look_for_room(self) -> None:
        """Remove jobs that nobody holds, and tell once there may be room, or will be none."""
        if not self._waiting:
            return
        with self._fabric.lock, contextlib.suppress(ControllerError):
            if any(self._fleet.sweep().values()) or self._fleet.undecided_s() is None:
                self._waiting = False
                self.on_room()

    def counters(
        self, jobs: Mapping[Key, TreeAdmission], outcomes: Collection[str]
    ) -> dict[Key, dict[str, int]]:
        """Return the packets of jobs with these outcomes, for policies."""
        if not self._scheduled:
            return {}
        with self._fabric.lock:
            return super().counters(jobs, outcomes)


def _interval_s(fabric: SwitchFabric) -> float:
    """Return the time between two renewals of a job."""
    return min(RENEW_S, (fabric.lease_s or math.inf) / RENEWALS_PER_LEASE)


def _at_root(place: Place) -> Region | None:
    """Return a job's slots at the root of its tree; None: it has no tree."""
    return None if place.tree is None else place.regions.get(place.tree.root)


def _registration(fabric: SwitchFabric, spec: LaunchSpec) -> Registration:
    """Return a job's registration at the switches."""
    try:
        user = getpass.getuser()
    except (KeyError, OSError):  # a container may not name its users
        user = f"uid {os.getuid()}"
    command = shlex.join(spec.job.command or ())
    return Registration(
        f"{socket.gethostname()} pid {os.getpid()}",
        process=this_process(),
        lease_s=fabric.lease_s,
        age_s=0.0,
        name=spec.job.name,
        user=user,
        command=command if len(command) <= LONGEST_COMMAND else command[: LONGEST_COMMAND - 1] + "…",
        priority=spec.job.priority,
    )
