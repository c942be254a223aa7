"""Access to switches: admits, moves and removes jobs, and keeps switches in the desired state.

All calls block, and only one thread at a time may make them.
"""

from __future__ import annotations

import contextlib
import logging
import shlex
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Protocol, TypeVar

from controller import Fleet, ReconcileReport, SwitchSession
from controller.core import Place
from controller.errors import ControllerError, NoSuchJob, OtherOwner, SwitchError, switch_in_errors
from controller.p4runtime_shim.ports import SwitchReport, SwitchWatch
from controller.switches.layout import TreeAdmission, members_by_switch
from controller.switches.leases import Owner
from controller.switches.model import Admission, Registration, SwitchInfo
from controller.switches.reconcile import per_switch, reconcile
from controller.switches.target import Revision, TableEntry
from controller.vocabulary import Region, Topology
from ina.faults import fault_point
from ina.run.launch.orders import ON_NO_SWITCH
from ina.run.records import JobRecord, Wiring
from ina.run.steps import HeldRun
from ina.run.switches.admission import deployment
from ina.run.views import AuditView, DifferenceView

if TYPE_CHECKING:
    from controller.switches.programs import ProgramBundle

Key = TypeVar("Key")

CHECK_S = 2.0
"""Interval, in s, at which switches are checked."""
_AT_ONCE = 8  # number of switches that are marked as owned at once
_log = logging.getLogger(__name__)


Links = Mapping[tuple[str, str], str]
"""Why each link is down ("": it is up), by the names of the link's ends. Unknown links are missing."""


class Network(Protocol):
    """The switches on which a service runs jobs.

    An interface, because two kinds of services decide differently what belongs on their switches. A
    controller owns a cluster's switches, and admits jobs to the places that its core has chosen
    (`ClusterNetwork`). A service inside one command shares its switches with other processes: it chooses free
    hosts and ports, renews leases, and may have to restart switches (`fabric_network.FabricNetwork`).
    """

    @property
    def offers(self) -> SwitchInfo:
        """Features and sizes that the switch program offers to jobs."""

    @property
    def check_s(self) -> float:
        """Interval, in s, at which to check whether switches answer and have the desired state."""

    @property
    def paced(self) -> bool:
        """Whether workers' time-outs must follow the pace of results, because the switches are slow."""

    def admit(self, record: JobRecord, hold: HeldRun, wiring: Wiring) -> TreeAdmission:
        """Admit a job of a held run to switches.

        Args:
            record: The job.
            hold: The run, with the job's place and UDP ports.
            wiring: The cluster in which the core has chosen the place.

        Raises ControllerError; the job then has no entries on any switch.
        """

    def resized(self, admission: TreeAdmission, place: Place) -> TreeAdmission:
        """Return `admission` with the slots of `place`. A later `compare` moves the job to these slots."""

    def remove(self, admission: TreeAdmission) -> None:
        """Remove a job from its switches. Raises ControllerError; `compare` then removes the job later."""

    def compare(
        self,
        admissions: Collection[TreeAdmission],
        wiring: Wiring,
        *,
        whole: bool,
        silent: Collection[str],
    ) -> tuple[ReconcileReport, Links]:
        """Change the switches to their desired state; return the changes, and the state of links.

        Args:
            admissions: The jobs that the switches should have.
            wiring: The cluster.
            whole: Whether to compare all table entries of switches that report no changes, too.
            silent: The switches that did not answer at the last comparison.

        Switches that do not answer are left out. Raises ControllerError.
        """

    def counters(
        self, jobs: Mapping[Key, TreeAdmission], outcomes: Collection[str]
    ) -> dict[Key, dict[str, int]]:
        """Return the number of each job's packets by outcome, summed over the job's switches.

        All calls must have the same `outcomes`. A job is missing if one of its switches cannot be read.
        """


class ClusterNetwork:
    """The switches of a cluster, with a session for each. Sessions open and close as the cluster changes.

    Attributes:
        offers: Features and sizes that the switch program offers to jobs.
        check_s: Interval, in s, at which to check whether switches answer and have the desired state.
        paced: Whether workers' time-outs must follow the pace of results. Only slow switches, such as BMv2,
            have a known `queue_packets`.

    Args:
        connect: Returns a session with a switch, given the switch's name and address. The switch need not
            answer yet.
        program: The program to load on switches without a program.
        queue_packets: Number of packets that fit into the queue of a switch's port; None: the packets of any
            window fit.
        watch: Returns the latest report of the switch at an address, or None if the switch makes none. None:
            read reports by gNMI.
    """

    def __init__(
        self,
        connect: Callable[[str, str], SwitchSession],
        program: ProgramBundle,
        queue_packets: int | None = None,
        watch: Callable[[str], SwitchReport | None] | None = None,
    ) -> None:
        self._connect = connect
        self._owner: Owner | None = None
        self._watch = watch or SwitchWatch()
        self._reporting: frozenset[str] = frozenset()
        """Switches of which the last `reconcile` got a report."""
        self._received: dict[str, tuple[int, int]] = {}
        """By switch, from the switch's last report: the time of the switch's start, in ns, and the number of
        packets that the switch has received since its start."""
        self.check_s = CHECK_S
        self.paced = queue_packets is not None
        self._queue_packets = queue_packets
        self._fleet = Fleet({})
        self._at: dict[str, str] = {}
        """By switch with a session, its address in the cluster."""
        self._forwards: dict[str, tuple[Wiring, list[TableEntry]]] = {}
        """By switch: a cluster, and the forwarding entries that the switch should have in that cluster."""
        self._adjusted: dict[str, tuple[Wiring, Revision | None]] = {}
        """By switch, the cluster of the forwarding entries that were last written to the switch, and the
        switch's `Revision` before that write."""
        self._program = program
        self.offers = program.offers()

    def own(self, cluster: Topology, owner: Owner, *, take_over: bool = False) -> None:
        """Mark the switches of a cluster, and switches that join it later, as owned by `owner`.

        A switch that does not answer is marked once it answers. Raises OtherOwner if another controller owns
        a switch, unless `take_over` is set.
        """
        self._owner = owner
        self._follow(Wiring.of(cluster))

        def own(controller: SwitchSession, claims: bool) -> None:
            try:
                if claims:
                    controller.claim(owner, take_over=take_over)
                else:
                    controller.check_owner(owner)
            except OtherOwner:
                raise
            except SwitchError as error:
                level = logging.WARNING if claims else logging.DEBUG
                _log.log(
                    level, "cannot mark switch %s as this controller's yet: %s", controller.address, error
                )

        with ThreadPoolExecutor(max_workers=_AT_ONCE, thread_name_prefix="own") as threads:
            for claims in (True,) if take_over else (False, True):  # all are checked before any is marked
                switches = self._fleet.controllers
                owning = {name: threads.submit(own, each, claims) for name, each in switches.items()}
                for name, done in owning.items():
                    with switch_in_errors(name):
                        done.result()

    def close(self) -> None:
        """Close the connections to all switches."""
        for controller in self._fleet.controllers.values():
            controller.close()

    @property
    def addresses(self) -> Mapping[str, str]:
        """The address of each switch's P4Runtime service, by the switch's name."""
        return {name: controller.address for name, controller in self._fleet.controllers.items()}

    def admit(self, record: JobRecord, hold: HeldRun, wiring: Wiring) -> TreeAdmission:
        """Admit a job to the switches of its tree, if it has one: a job on one server needs no switch.

        See `Network.admit`. Users can read the job's registration at the switches.
        """
        job = record.job
        place = hold.run.places[job.name]
        if place.tree is None:
            return without_switch(wiring.whole, place)
        self._follow(wiring)
        desired = deployment(
            wiring.whole,
            replace(job, servers=place.servers, fallback=place.fallback, tree=place.tree),
            {name: place.regions.get(name, Region(0, 0)) for name in place.tree.switches},
            self.offers,
            self._queue_packets,
            udp_ports=hold.udp_ports[job.name],
            up=wiring.up,
        )
        registered = Registration(
            "ina controller",
            name=job.name,
            user=record.tenant,
            command=shlex.join(job.command or ()),
            priority=job.priority,
        )
        return self._fleet.admit(desired, registration=registered)

    def resized(self, admission: TreeAdmission, place: Place) -> TreeAdmission:
        """Return `admission` with the slots of `place`. A later `compare` moves the job to these slots."""
        return admission.at({name: place.regions.get(name, Region(0, 0)) for name in admission.switches})

    def remove(self, admission: TreeAdmission) -> None:
        """Remove a job from its switches. Raises ControllerError; `compare` then removes the job later."""
        if admission.job == ON_NO_SWITCH:
            return
        known = self._fleet.controllers
        here = {name: held for name, held in admission.switches.items() if name in known}
        if here:  # otherwise all of its switches have left the cluster, and have removed it
            with contextlib.suppress(NoSuchJob):
                self._fleet.remove(TreeAdmission(here))

    def compare(
        self,
        admissions: Collection[TreeAdmission],
        wiring: Wiring,
        *,
        whole: bool,
        silent: Collection[str],
    ) -> tuple[ReconcileReport, Links]:
        """Change the switches to their desired state (`reconcile`); see `Network.compare`.

        No report is requested from the switches in `silent`.
        """
        reports = self._look(silent)  # before any comparison, so later changes are seen next time
        # A switch with a revision has not changed if its revision has not.
        whole = whole and len(_revisions(reports)) < len(self._fleet.controllers)
        if not whole and self._at_rest(admissions, wiring, reports):
            return ReconcileReport(()), _links(wiring, reports)
        report = self.reconcile(admissions, wiring, reports)
        reports = {name: each for name, each in reports.items() if name not in report.left_out}
        return report, _links(wiring, reports)

    def _look(self, silent: Collection[str]) -> Mapping[str, SwitchReport]:
        """Request a report from each switch that is not in `silent`; return the reports by switch.

        Switches that make no reports, such as BMv2, and switches that do not answer are missing.
        """
        reports = {
            name: report
            for name, controller in self._fleet.controllers.items()
            if name not in silent and (report := self._watch(controller.address)) is not None
        }
        self._received = {
            name: (each.revision.booted_ns, each.packets)
            for name, each in reports.items()
            if each.revision is not None and each.packets is not None
        }
        return reports

    def _at_rest(
        self, admissions: Collection[TreeAdmission], wiring: Wiring, told: Mapping[str, SwitchReport]
    ) -> bool:
        """Return True if, according to the reports in `told`, `reconcile` would probably change nothing.

        See `Fleet.seems_reconciled`.
        """
        known = (self._forwards.get(name) for name in wiring.whole.switch)
        forwards = all(each is not None and each[0] is wiring for each in known)
        complete = told.keys() >= self._reporting  # otherwise one has stopped
        return forwards and complete and self._fleet.seems_reconciled(admissions, _revisions(told))

    def reconcile(
        self,
        admissions: Collection[TreeAdmission],
        wiring: Wiring,
        told: Mapping[str, SwitchReport] = MappingProxyType({}),
    ) -> ReconcileReport:
        """Change the switches so that they have exactly the jobs in `admissions` from this controller.

        Jobs under leases of other processes stay. A switch that has lost its program in a restart gets it
        again. Forwarding entries route ordinary traffic over working parts of the cluster only. Switches that
        have left the cluster lose their jobs, and are ignored from then on. Switches that do not answer are
        left out.

        `told` is the last result of `_look`. A switch is not read if it reports no change since it was last
        found in the desired state. A switch whose reports have stopped must answer within a second. Raises
        ControllerError.
        """
        self._follow(wiring, {name for each in admissions for name in each.switches})
        doubtful = self._fleet.controllers.keys() & self._reporting - told.keys()
        self._reporting = frozenset(told)
        revisions = _revisions(told)
        report = self._fleet.reconcile(
            admissions, program=self._program, revisions=revisions, doubtful=doubtful
        )
        fault_point("reconciled")
        from bmv2_topos.testbeds.netns import forwarding  # imports all of the testbeds

        left = {name for name in self._fleet.controllers if name not in wiring.whole.switch}
        for name, controller in self._fleet.controllers.items():
            revision = revisions.get(name)
            as_before = revision is not None and self._adjusted.get(name) == (wiring, revision)
            if name in report.left_out or name in left or as_before:
                continue
            # It may have been restarted, and have lost these entries.
            controller.update_entries(
                self._forwarding(name, wiring), without=forwarding.left_hosts(wiring.macs)
            )
            fault_point("forwards")
            self._adjusted[name] = wiring, revision
        self._disconnect(left - {name for each in admissions for name in each.switches})
        return report

    def _follow(self, wiring: Wiring, held: Collection[str] = ()) -> None:
        """Open the missing sessions with switches of the cluster, and with the switches in `held`.

        The switches in `held` still have jobs, although they may have left the cluster.
        """
        wanted = {switch.name: switch.p4runtime for switch in wiring.whole.switches}
        wanted |= {name: wiring.left.get(name, "") for name in held if name not in wanted}
        for name, address in wanted.items():
            if self._at.get(name) != address:
                self._disconnect([name] if name in self._at else [])
                controller = self._connect(name, address)
                controller.owner = self._owner
                self._fleet.add(name, controller)
                self._at[name] = address

    def _disconnect(self, names: Iterable[str]) -> None:
        for name in names:
            self._fleet.drop(name).close()
            del self._at[name]
            self._forwards.pop(name, None)
            self._adjusted.pop(name, None)

    def _forwarding(self, switch: str, wiring: Wiring) -> list[TableEntry]:
        from bmv2_topos.testbeds.netns import forwarding

        known = self._forwards.get(switch)
        if known is None or known[0] is not wiring:
            rows = forwarding.entries(wiring.whole, switch, wiring.up)
            rows = forwarding.offered(rows, self._fleet.controllers[switch].program)
            known = self._forwards[switch] = wiring, rows
        return known[1]

    def audit(
        self, admissions: Mapping[str, TreeAdmission], leaving: Collection[int], now_s: float
    ) -> AuditView:
        """Compare the desired admissions, by job name, with the entries of the switches; write nothing.

        `leaving` has the numbers of jobs that are being removed. If a switch still has such a job, this does
        not count as a difference. `now_s` is the current time.
        """
        left_out, observed = {}, {}
        for name, controller in self._fleet.controllers.items():
            try:
                observed[name] = controller.observe()
            except ControllerError as error:
                left_out[name] = str(error)
        names = {admission.job: name for name, admission in admissions.items()}
        decision = reconcile(per_switch(admissions.values()), observed)
        found: list[DifferenceView] = [
            {
                "where": action.switch,
                "what": f"{action.verb} job {names.get(action.job, action.job)}: {action.why}",
            }
            for action in decision.actions
            if action.job not in leaving
        ]
        clean = not found and not left_out
        return {"at_s": now_s, "clean": clean, "found": found, "left_out": left_out}

    def counters(
        self, jobs: Mapping[Key, TreeAdmission], outcomes: Collection[str]
    ) -> dict[Key, dict[str, int]]:
        """Return the number of each job's packets by outcome; see `Network.counters`.

        A switch that has reported no new packets since it was last read is not read again.
        """
        return counted(self._fleet, jobs, outcomes, self._received)


def counted(
    fleet: Fleet,
    jobs: Mapping[Key, TreeAdmission],
    outcomes: Collection[str],
    received: Mapping[str, tuple[int, int]] = MappingProxyType({}),
) -> dict[Key, dict[str, int]]:
    """Return the number of each job's packets by outcome; see `Network.counters`.

    `received` has, by switch, the times and numbers of packets of the switch's last report; see
    `Fleet.counters_of`.
    """
    found = {}
    for key, at in fleet.counters_of(jobs, outcomes, received).items():
        if at.keys() == jobs[key].switches.keys():
            total: Counter[str] = Counter()
            for counters in at.values():
                total.update(counters)
            found[key] = dict(total)
    return found


def _links(wiring: Wiring, told: Mapping[str, SwitchReport]) -> Links:
    """Return the state of the links that the switches' reports in `told` mention."""
    found: dict[tuple[str, str], str] = {}
    for name, each in told.items():
        for port, link in wiring.whole.ports.get(name, {}).items():
            if port in each.ports:
                why = "" if each.ports[port].up else f"port {port} of {name} is down"
                found[link.a, link.b] = found.get((link.a, link.b)) or why
    return found


def _revisions(reports: Mapping[str, SwitchReport]) -> dict[str, Revision]:
    return {name: each.revision for name, each in reports.items() if each.revision is not None}


def without_switch(cluster: Topology, place: Place) -> TreeAdmission:
    """Return the admission of a job whose workers are all on one server, and that needs no switch."""
    used = place.hosts
    rack = cluster.rack_of[used[0]]
    here = Admission(
        job=ON_NO_SWITCH,
        counter_row=0,
        region=Region(0, 0),
        generation=1,
        group=0,
        members=tuple(members_by_switch(cluster, used)[rack]),
        fan_in=1,
        window=1,
        result_bitmap=1,
    )
    return TreeAdmission({rack: here})
