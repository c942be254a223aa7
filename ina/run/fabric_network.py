"""The switches of a fabric (`ina.run.switches.fabric`), for a service inside one command such as ``ina run``.

Each job is admitted to the switches, and registered there. While the job runs, this process renews its
registration and its lease. So other programs can read each job's process and progress from a switch, and can
remove a job whose process has died. When a job ends, this process reads the switches' counters of the job's
packets, and removes the job.
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
from typing import NoReturn

from controller import ControllerError, NoSuchJob, ReconcileReport, Registration, TreeAdmission
from controller.core import Place
from controller.errors import BadSpec, OutOfMemory, OutOfRows, SwitchRestarted
from controller.switches.leases import RENEWALS_PER_LEASE, this_process
from controller.switches.model import SwitchInfo
from controller.vocabulary import Region
from hostlib.launch.launcher import JobLog, WorkerExit
from ina.errors import RunError
from ina.run.clock import since_boot_s
from ina.run.launch.job_run import JobEnd, JobRun
from ina.run.launch.spec import (
    JobResult,
    LaunchSpec,
    RankReports,
    add_group,
    add_reports,
    goodput_bps,
    metrics,
)
from ina.run.network import Key, Links, counted
from ina.run.records import JobRecord, Wiring
from ina.run.steps import HeldRun
from ina.run.switches.admission import desired
from ina.run.switches.fabric import SwitchFabric
from ina.run.switches.programs import bundle
from ina.run.switches.switch_process import EmbeddedSwitch
from ina.run.switches.topology import has_slow_links

_log = logging.getLogger(__name__)

RENEW_S = 15.0
"""Maximum time, in s, between two renewals of a job's registration, which also report the job's progress."""
CHECK_S = 0.1
"""Interval, in s, at which the processes of the fabric's switches are checked."""
AT_ROOT = ""
"""Name of a fabric's fallback server: it has only one, whose host the core does not choose."""
KEEP_S = 1.0
"""Interval, in s, at which each job's switches are asked whether they still have the job."""
RESTARTS = 5
"""Maximum number of times that switches are restarted, over all switches."""
LONGEST_COMMAND = 200
"""Maximum number of characters of a job's command in its registration, which other users can read."""


@dataclass(slots=True, eq=False, kw_only=True)
class FabricJob(JobRun):
    """A job of this process, or a group of a job's ranks, that has been admitted to the switches of a fabric.

    Attributes:
        fabric: The switches.
        registered: The job's registration at the switches, which other processes can read.
        lost: Why the switches no longer have the job; None: no such loss is known.
        groups: The admitted groups of the job's ranks (`ina.run.groups`).
        ranks: The job's rank of each rank, if this is a group.
    """

    fabric: SwitchFabric
    registered: Registration
    lost: str | None = None
    groups: list[FabricJob] = field(default_factory=list)
    ranks: Sequence[int] = ()
    undone: contextlib.ExitStack = field(default_factory=contextlib.ExitStack)
    """Closing this stack removes the job from the switches and the fallback server."""
    due_s: float = 0.0
    """Time of the next renewal of the registration, on the monotonic clock."""
    _of_groups: JobResult = field(default_factory=lambda: JobResult(None, 0.0, {}))
    """Counts of the groups that have ended."""
    _begun_s: float = field(default_factory=since_boot_s)
    _renewed_s: float = field(default_factory=since_boot_s)

    def host(self, rank: int) -> str:
        """Return the name of the host on which a rank runs. The fabric must have a topology with hosts."""
        switch, member = self.worker(rank)
        assert self.fabric.topology is not None
        assert member.port is not None
        return self.fabric.topology.ports[switch][member.port].other(switch)

    def leave_group(self, group: FabricJob) -> None:
        """Remove a group that has ended from `groups`, and keep its counts."""
        self.groups.remove(group)
        if group.result is not None:
            self._of_groups = add_group(self._of_groups, group.ranks, group.result)

    def reports(self) -> RankReports:
        """Return the latest report of each rank; its counts include those of the rank's groups."""
        reports = add_reports(JobRun.reports(self), range(self.spec.job.workers), self._of_groups.reports)
        for group in [*self.groups]:
            reports = add_reports(reports, group.ranks, group.reports())
        return reports

    def fault(self, reason: str) -> None:
        """Tell the workers that the job cannot continue, and why, also as members of groups."""
        JobRun.fault(self, reason)  # super() finds no class that dataclass has made anew
        for group in [*self.groups]:
            group.fault(reason)

    def renew(self) -> None:
        """Renew the job's registration at the switches, with its current progress. Raises ControllerError."""
        self.registered = replace(
            self.registered,
            renewals=self.registered.renewals + 1,
            age_s=round(since_boot_s() - self._begun_s, 3),
            goodput_bps=goodput_bps(self.reports()),
        )
        self.fabric.fleet.renew(self.tree, self.registered)
        self.due_s = time.monotonic() + _interval_s(self.fabric)
        self._renewed_s = since_boot_s()

    def count(self) -> None:
        """Add the counters of the switches and the fallback server to the job's result.

        Call this before the job is removed. If the switches do not answer, the job counts as failed.
        """
        if self.result is None:
            return
        try:
            self.result = self._counted(self.result)
        except Exception as error:
            self.error = error
            return
        if self.spec.log is not None:
            with contextlib.closing(JobLog(self.spec.log)) as log:
                log.write("end", job=self.tree.job, **metrics(self.result))

    def _counted(self, result: JobResult) -> JobResult:
        fabric, tree, failure = self.fabric, self.tree, result.failure
        switches: dict[str, dict[str, int]] = {}
        fallback: dict[str, float] = {}
        try:
            if fabric.switch_ended() is None and fabric.silent is None:
                with fabric.asking():
                    switches = fabric.fleet.counters(tree)
                fallback = fabric.fallbacks.statistics(AT_ROOT, tree.job)
        except NoSuchJob as error:
            self.lost = self.lost or self.why(error)
        except ControllerError as error:
            if failure is None:
                raise
            _log.warning("cannot read the switch's counters: %s", error)
        if self.lost and not result.interrupted:
            # Workers only notice that no answer comes.
            failure = WorkerExit(-1, 1, self.lost)
        elif failure and fabric.silent:
            failure = replace(failure, reason=f"{failure.reason}; {fabric.silent}")
        own = replace(result, failure=failure, switches=switches, fallback=fallback)
        return add_group(own, range(self.spec.job.workers), self._of_groups)

    def why(self, error: NoSuchJob) -> str:
        """Return why a switch no longer has the job: a restart, a removal, or an expired lease.

        `error` is the switch's answer to a request about the job.
        """
        job, lease_s = self.tree.job, self.registered.lease_s
        if isinstance(error, SwitchRestarted):
            return str(error)
        if lease_s is None or since_boot_s() - self._renewed_s < lease_s:
            return f"job {job} was removed from the switch by another program, such as 'ina remove'"
        return f"job {job} is gone: its lease of {lease_s:g} s expired, and other jobs took its slots"


class FabricNetwork:
    """The switches of a fabric, as a `Network`. A job has the same region of slots on all of its switches.

    Attributes:
        held: The admitted jobs, and the admitted groups of their ranks, by their ids on the switches: a group
            may have the name of another job.
        ends: By name of each job, how its latest run ended, or why the job could not be admitted.
        ended: Why a switch or the fallback server is lost for good; None: none is.
        check_s: Interval, in s, at which the processes of switches are checked.
        paced: Whether workers' time-outs must follow the pace of results.
    """

    def __init__(self, fabric: SwitchFabric, specs: Mapping[str, LaunchSpec], *, scheduled: bool) -> None:
        """Prepare to admit jobs.

        Args:
            fabric: The switches.
            specs: The jobs, by name; the caller may add jobs later.
            scheduled: Whether a policy decides when jobs run. If so, jobs wait for slots, and the policy gets
                their numbers of packets.
        """
        self.check_s = CHECK_S
        slow_links = fabric.topology is not None and has_slow_links(fabric.topology)
        self.paced = fabric.queue_packets is not None or slow_links
        self._fleet = fabric.fleet
        self._fabric, self._specs, self._scheduled = fabric, specs, scheduled
        self._waiting = False
        self._warned = False
        self._restarts = 0
        self._kept_s = -math.inf
        self.held: dict[int, FabricJob] = {}
        self.ends: dict[str, JobEnd] = {}
        self.ended: str | None = None
        self.on_room: Callable[[], object] = lambda: None
        """Called when a job that found no free slots may find free slots now, or must fail. Called in a
        thread of this network, not in the thread of the service's loop."""

    @property
    def offers(self) -> SwitchInfo:
        """Features and sizes that the switch program offers to jobs. Raises ControllerError."""
        return self._fabric.offers

    def admit(self, record: JobRecord, hold: HeldRun, wiring: Wiring) -> TreeAdmission:
        """Admit a job to the switches and, if the job shares slots, to the fallback server.

        The core has chosen only the job's slots: the fabric has a topology of its own, in which it chooses
        hosts and ports.

        Raises OutOfMemory or OutOfRows if the job must wait for free slots or table rows. For any other
        error, raises BadSpec, and stores the error in `ends`.
        """
        job = record.job
        try:
            return self.enter(self._specs[job.name], _at_root(hold.run.places[job.name])).tree
        except (OutOfMemory, OutOfRows) as error:
            with self._fabric.lock:
                waits = bool(self._fleet.read()) if self._scheduled else self._may_find_room(error)
            if waits:
                raise
            self._refuse(job.name, error)
        except BadSpec as error:
            if self._scheduled and self.held:  # other jobs use its hosts
                raise OutOfRows(str(error)) from error
            self._refuse(job.name, error)
        except Exception as error:
            self._refuse(job.name, error)

    def _refuse(self, job: str, error: Exception) -> NoReturn:
        self.ends[job] = JobEnd(self._specs[job], error=error, at_s=time.monotonic())
        raise BadSpec(str(error)) from error

    def _may_find_room(self, error: Exception) -> bool:
        """Return True if slots may become free soon, because leases of jobs on the switches may expire.

        A lease expires if the process of its job has died. Return False once each lease has been
        renewed or has expired.

        The first time, also log a warning with `error`, the reason why a job could not be admitted.
        """
        lease_wait_s = self._fleet.lease_wait_s()
        self._waiting = lease_wait_s is not None
        if lease_wait_s is not None and not self._warned:
            self._warned = True
            _log.warning(
                "no room for the job: %s; waiting up to %.0f s to see whether the processes of the jobs on"
                " the switch are alive",
                error,
                lease_wait_s,
            )
        return self._waiting

    def enter(self, spec: LaunchSpec, region: Region | None = None) -> FabricJob:
        """Admit a job, and add it to `held`; see `ina.run.switches.admission.desired` for the arguments.

        Raises ControllerError: a switch refused the job; the job is then on no switch.
        """
        fabric = self._fabric
        registered, attached = _registration(fabric, spec), fabric.spec.attached
        with fabric.lock, contextlib.ExitStack() as stack:  # a restart of a switch finds the job in `held`
            wanted = desired(fabric, spec, region, stack)
            ports = {fabric.root: attached.ports} if attached else {}  # otherwise the topology sets them
            tree = self._fleet.admit(wanted, ports=ports, registration=registered)
            stack.callback(self._take_off, tree)
            stack.callback(self.held.pop, tree.job, None)
            self.held[tree.job] = held = FabricJob(
                spec,
                hosts=fabric.hosts,
                tree=tree,
                offers=fabric.offers,
                paced=self.paced,
                fabric=fabric,
                registered=registered,
            )
            if (uplink := tree.switches[fabric.root].uplink) is not None:
                fabric.fallback_switch_port = uplink.port
                self._serve()
                stack.enter_context(contextlib.suppress(RunError))  # a server that is lost serves no jobs
                stack.callback(self._serve)
            held.undone = stack.pop_all()
        return held

    def _take_off(self, tree: TreeAdmission) -> None:
        """Remove a job from the switches, unless one of them has ended."""
        if self._fabric.switch_ended() is not None:
            return
        try:
            with self._fabric.asking():
                self._fleet.remove(tree)
        except NoSuchJob:
            return  # another process removed it
        except ControllerError as error:
            _log.warning("job %d may still be on the switch: %s", tree.job, error)

    def _serve(self) -> None:
        """Make the fallback server serve all jobs and groups in `held`. Raises RunError."""
        with self._fabric.lock:
            self._fabric.fallbacks.serve({AT_ROOT: [each.tree for each in list(self.held.values())]})

    def leave(self, held: FabricJob) -> None:
        """Add the counters to a job's or group's result; remove it from the switches and fallback server."""
        del self.held[held.tree.job]
        with held.undone:
            held.count()

    def remove(self, admission: TreeAdmission) -> None:
        """Add the counters to a job's result; remove the job from the switches and the fallback server."""
        if (held := self.held.get(admission.job)) is not None:
            self.leave(held)

    def resized(self, admission: TreeAdmission, place: Place) -> TreeAdmission:
        """Return `admission` with the slots of `place`. A later `compare` moves the job to these slots."""
        region = _at_root(place)
        return admission if region is None else admission.at(dict.fromkeys(admission.switches, region))

    def compare(
        self,
        admissions: Collection[TreeAdmission],
        wiring: Wiring,
        *,
        whole: bool,
        silent: Collection[str],
    ) -> tuple[ReconcileReport, Links]:
        """Restart ended processes, renew jobs' leases, and move jobs to the slots of `admissions`.

        See `Network.compare`. Processes and leases are checked in every call. The state of links is unknown.
        """
        fabric = self._fabric
        if why := self._beyond_repair():
            self.lose(why)
        if fabric.asked_by_others and time.monotonic() - self._kept_s >= min(KEEP_S, _interval_s(fabric)):
            self._kept_s = time.monotonic()
            renewed = [self._keep(held) for held in list(self.held.values())]
            if any(renewed) or self._waiting:
                self._sweep()
        wanted = {each.job: each for each in admissions}
        here = list(self.held.values())
        moved = [held for held in here if held.tree != wanted.get(held.tree.job, held.tree)]
        if not moved and not self._fleet.moving:
            return ReconcileReport(()), {}
        with fabric.lock:
            report = self._fleet.reconcile(admissions, may_remove=lambda job: False)
            if report.done:
                for held in moved:
                    held.tree = wanted[held.tree.job]
        return report, {}

    def lose(self, why: str) -> None:
        """Record why a switch or the fallback server is lost for good, and end the jobs.

        If a policy decides when jobs run, the service ends. Any thread may call this.
        """
        self.ended = why
        for held in list(self.held.values()) if not self._scheduled else ():
            held.fault(why)

    def _beyond_repair(self) -> str | None:
        """Restart the switch processes that have ended.

        Return None if all switches run now, or else why one of them cannot be restarted.
        """
        fabric = self._fabric
        fabric.hosts.strangers()
        for name, switch in fabric.processes.items():
            how = switch.ended()
            if how is None:
                continue
            if not isinstance(switch, EmbeddedSwitch) or not fabric.offers.shared:
                return how
            if switch.shares_memory:
                return f"{how}; with --port-kind udp its jobs could have continued on a restarted switch"
            if self._restarts == RESTARTS:
                return f"{how}, after {RESTARTS} restarts"
            self._restarts += 1
            _log.warning("%s; restarting it (%d of %d)", how, self._restarts, RESTARTS)
            if reason := fabric.restart(name) or self._put_again():
                return f"{how}, and its jobs cannot continue: {reason}"
        return None

    def _keep(self, held: FabricJob) -> bool:
        """Check that the switches still have a job; renew the job's registration and lease if this is due.

        If the switches have lost the job, tell the job's ranks. If a renewal fails, the next call retries it.
        A job whose lease has expired stays on the switches until a process removes the job. Return whether
        the lease was renewed.
        """
        fabric, due = self._fabric, time.monotonic() >= held.due_s
        try:
            with fabric.asking(again=True):
                self._fleet.check(held.tree)
                if due:
                    held.renew()
            fabric.silent = None
            return due
        except NoSuchJob as error:
            fabric.silent = None
            if held.lost is None:
                held.lost = self._lost(held, error)
            if held.lost is not None:
                held.fault(held.lost)
        except ControllerError:
            pass
        return False

    def _lost(self, held: FabricJob, error: NoSuchJob) -> str | None:
        """Admit a job again that a restarted switch has lost; return None if that succeeds.

        Otherwise return why the job is lost.
        """
        why = held.why(error)
        if not isinstance(error, SwitchRestarted):
            return why
        if reason := self._put_again():
            return f"{why}; the job cannot continue: {reason}"
        _log.warning("%s; its jobs are admitted again, and continue", why)
        return None

    def _put_again(self) -> str | None:
        """Admit all held jobs to restarted switches again; return None, or why that failed.

        Only jobs that share slots can continue after the restart: their workers and the fallback server still
        have all data that the switch has lost. A worker that sends a packet again repeats its PSN and values.
        So packets that were in flight during the restart can be added to the new sums
        (docs/reference/protocol.md).
        """
        fabric, offers = self._fabric, self._fabric.offers
        if not offers.shared:
            return "with exclusive slots, results that ranks have not received yet are lost with the switch"
        with fabric.lock:
            try:
                for controller in self._fleet.controllers.values():
                    if not controller.has_program():
                        if fabric.spec.program is None:
                            return "its program is not known to this process: give the program with --program"
                        controller.load(bundle(fabric.spec.program, offers.lanes))
                    if not controller.info().covers(offers):
                        return f"the switch runs {controller.info().title} now"
                held = [each.tree for each in list(self.held.values())]
                report = self._fleet.reconcile(held, may_remove=lambda job: False)
            except ControllerError as error:
                return str(error)
        return None if report.done else "; ".join(map(str, (*report.waiting, *report.left_out.values())))

    def _sweep(self) -> None:
        """Remove the jobs from the switches whose processes have died, because their leases have expired.

        If a job waits for slots, call `on_room` when a removal has freed slots, or when no lease is left
        whose expiry could free slots.
        """
        with self._fabric.lock, contextlib.suppress(ControllerError):
            swept = self._fleet.sweep()
            if self._waiting and (any(swept.values()) or self._fleet.lease_wait_s() is None):
                self._waiting = False
                self.on_room()

    def counters(
        self, jobs: Mapping[Key, TreeAdmission], outcomes: Collection[str]
    ) -> dict[Key, dict[str, int]]:
        """Return each job's number of packets by outcome; {} if no policy decides when jobs run."""
        if not self._scheduled:
            return {}
        with self._fabric.lock:
            return counted(self._fleet, jobs, outcomes)


def _interval_s(fabric: SwitchFabric) -> float:
    """Return the time, in s, between two renewals of a job's registration."""
    return min(RENEW_S, (fabric.spec.lease_s or math.inf) / RENEWALS_PER_LEASE)


def _at_root(place: Place) -> Region | None:
    """Return a job's region of slots at the root of its tree, given its place; None: no slots there."""
    return None if place.tree is None else place.regions.get(place.tree.root)


def _registration(fabric: SwitchFabric, spec: LaunchSpec) -> Registration:
    """Return the registration of a job at the switches: this process, its user, and the job's command."""
    try:
        user = getpass.getuser()
    except (KeyError, OSError):  # a container may have no names for its users
        user = f"uid {os.getuid()}"
    command = shlex.join(spec.job.command or ())
    return Registration(
        f"{socket.gethostname()} pid {os.getpid()}",
        process=this_process(),
        lease_s=fabric.spec.lease_s,
        age_s=0.0,
        name=spec.name,
        user=user,
        command=command if len(command) <= LONGEST_COMMAND else command[: LONGEST_COMMAND - 1] + "…",
        priority=spec.job.priority,
    )
