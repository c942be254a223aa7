"""The switches of the cluster, for the daemon: admits, moves, removes and compares jobs.

All calls block, and are made by one thread at a time.
"""

from __future__ import annotations

import contextlib
import logging
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from types import MappingProxyType
from typing import TYPE_CHECKING, TypeVar

from controller import Fleet, SwitchSession
from controller.core import Place
from controller.errors import ControllerError, NoSuchJob, OtherOwner, SwitchError, switch_in_errors
from controller.p4runtime_shim.ports import SwitchReport, SwitchWatch
from controller.switches.fleet import ReconcileReport
from controller.switches.layout import Deployment, TreeAdmission, deployment_of, members_by_switch
from controller.switches.leases import Owner
from controller.switches.model import Admission, Registration, SwitchInfo
from controller.switches.reconcile import per_switch, reconcile
from controller.switches.target import Revision, TableEntry
from controller.vocabulary import Job, Region, Topology
from ina.faults import fault_point
from ina.service.holds import ON_NO_SWITCH
from ina.service.records import Audit, Discrepancy
from ina.service.wiring import Wiring
from ina.switches.admission import shared_window

if TYPE_CHECKING:
    from controller.switches.programs import ProgramBundle

Key = TypeVar("Key")

CHECK_S = 2.0
"""Interval at which switches are checked."""
_AT_ONCE = 8  # switches that are marked
_log = logging.getLogger(__name__)


def deployment(
    cluster: Topology,
    job: Job,
    place: Place,
    udp_ports: Sequence[int],
    window: int,
    preempt: bool,
    up: Topology | None = None,
) -> Deployment:
    """Return the deployment of a placed job, as `controller.Fleet.admit` takes it.

    Args:
        cluster: Switches, servers and links.
        job: The job.
        place: Its servers, tree and slots.
        udp_ports: The UDP port of each of its servers.
        window: Its window (`ina.switches.admission.shared_window`).
        preempt: Whether it takes slots from less urgent packets.
        up: The part of the cluster that works; None: all of it.

    Raises BadSpec: its root does not sum, or its fallback server is behind a switch of the tree.
    """
    assert place.tree is not None
    placed = replace(job, servers=place.servers, fallback=place.fallback, tree=place.tree, mode="shared")
    found = deployment_of(
        cluster,
        placed,
        place.tree,
        regions={name: place.regions.get(name, Region(0, 0)) for name in place.tree.switches},
        udp_ports=udp_ports,
        up=up,
    )
    return replace(found, window=window, preempt=preempt)


class Network:
    """The switches of a cluster, through their controllers, which are made and closed as it changes.

    Args:
        connect: Returns the controller of a switch of this name and address; need not reach it.
        program: The program for a switch that has none; None: all have one.
        queue_packets: Packets that a switch holds at a port; None: enough for any window.
        watch: Returns the report of the switch at an address, None without one; None: by gNMI.
    """

    def __init__(
        self,
        connect: Callable[[str, str], SwitchSession],
        program: ProgramBundle | None,
        queue_packets: int | None = None,
        watch: Callable[[str], SwitchReport | None] | None = None,
    ) -> None:
        self._connect = connect
        self._owner: Owner | None = None
        self._watch = watch or SwitchWatch()
        self._telling: frozenset[str] = frozenset()
        """Switches that answered the last request for a report."""
        self._received: dict[str, tuple[int, int]] = {}
        """Their start times, and the packets received since, by their last reports."""
        self._queue_packets = queue_packets
        self._fleet = Fleet({})
        self._at: dict[str, str] = {}
        """The addresses of the fleet's switches, as in the cluster."""
        self._followed: Wiring | None = None
        """The fleet's cluster."""
        self._forwards: dict[str, tuple[Wiring, list[TableEntry]]] = {}
        """The rows of ordinary forwarding by switch, and their cluster."""
        self._adjusted: dict[str, tuple[Wiring, Revision | None]] = {}
        """By switch, the cluster of its rows of ordinary forwarding, and its revision before them."""
        self._program = program
        self._offers = None if program is None else program.offers()

    def own(self, cluster: Topology, owner: Owner, *, take_over: bool = False) -> None:
        """Own a cluster's switches, present and future; silent switches, as soon as they answer.

        Raises OtherOwner, unless `take_over`, if one belongs to another controller.
        """
        self._owner = owner
        self._follow(Wiring.of(cluster))

        def check(controller: SwitchSession) -> None:
            try:
                controller.check_owner(owner)
            except OtherOwner:
                raise
            except SwitchError:
                pass  # `own` reports it

        def own(controller: SwitchSession) -> None:
            try:
                controller.claim(owner, take_over=take_over)
            except OtherOwner:
                raise
            except SwitchError as error:
                _log.warning("switch %s is not owned yet: %s", controller.address, error)

        with ThreadPoolExecutor(max_workers=_AT_ONCE, thread_name_prefix="own") as threads:
            for step in (own,) if take_over else (check, own):  # all are checked before any is marked
                owning = {name: threads.submit(step, each) for name, each in self._fleet.controllers.items()}
                for name, done in owning.items():
                    with switch_in_errors(name):
                        done.result()

    def close(self) -> None:
        """Close the connections to all switches."""
        for controller in self._fleet.controllers.values():
            controller.close()

    @property
    def addresses(self) -> Mapping[str, str]:
        """The address of each switch's P4Runtime service."""
        return {name: controller.address for name, controller in self._fleet.controllers.items()}

    @property
    def offers(self) -> SwitchInfo:
        """The program's offer to jobs."""
        assert self._offers is not None
        return self._offers

    @property
    def check_s(self) -> float:
        """Interval at which switches are checked: whether they answer, and hold the desired state."""
        return CHECK_S

    @property
    def paced(self) -> bool:
        """Whether workers must pace their packets, because switches hold few at a port."""
        return self._queue_packets is not None

    def admit(
        self, job: Job, place: Place, udp_ports: Sequence[int], registration: Registration, wiring: Wiring
    ) -> TreeAdmission:
        """Admit a job to the switches of its tree; a job on one server needs no switch.

        Args:
            job: The job.
            place: Its servers, tree and slots.
            udp_ports: UDP port of each server.
            registration: The switches' record of it for users.
            wiring: The cluster.

        Raises ControllerError; the job is then on none of them.
        """
        if place.tree is None:
            return without_switch(wiring.whole, place)
        self._follow(wiring)
        window = shared_window(job, len(set(place.servers)), self.offers, self._queue_packets)
        preempt = job.preempt and not self.offers.salted  # that program's rule for slots has no preemption
        asked = deployment(wiring.whole, job, place, udp_ports, window, preempt, wiring.up)
        return self._fleet.admit(asked, registration=registration)

    def resized(self, job: str, admission: TreeAdmission, place: Place) -> TreeAdmission:
        """Return the admission of a job with these slots; `reconcile` moves the job there."""
        return admission.at({name: place.regions.get(name, Region(0, 0)) for name in admission.switches})

    def remove(self, admission: TreeAdmission) -> None:
        """Remove a job from its switches; a failed removal is left to `reconcile`. Raises ControllerError."""
        if admission.job == ON_NO_SWITCH:
            return
        known = self._fleet.controllers
        here = {name: held for name, held in admission.switches.items() if name in known}
        if here:  # otherwise all have left the cluster, and have removed it
            with contextlib.suppress(NoSuchJob):
                self._fleet.remove(TreeAdmission(here))

    def look(self, silent: Collection[str]) -> Mapping[str, SwitchReport]:
        """Ask all switches but the `silent` for their reports; return these by switch.

        Switches without reports, as BMv2, and switches that do not answer are missing.
        """
        told = {
            name: told
            for name, controller in self._fleet.controllers.items()
            if name not in silent and (told := self._watch(controller.address)) is not None
        }
        self._received = {
            name: (each.revision.booted_ns, each.packets)
            for name, each in told.items()
            if each.revision is not None and each.packets is not None
        }
        return told

    def at_rest(
        self, admissions: Collection[TreeAdmission], wiring: Wiring, told: Mapping[str, SwitchReport]
    ) -> bool:
        """Return whether `reconcile` would find no difference, by `Fleet.seems_reconciled`."""
        known = (self._forwards.get(name) for name in wiring.whole.switch)
        forwards = all(each is not None and each[0] is wiring for each in known)
        tell = told.keys() >= self._telling  # otherwise one has stopped
        return forwards and tell and self._fleet.seems_reconciled(admissions, _revisions(told))

    def reconcile(
        self,
        admissions: Collection[TreeAdmission],
        wiring: Wiring,
        told: Mapping[str, SwitchReport] = MappingProxyType({}),
    ) -> ReconcileReport:
        """Admit these jobs to the switches, and remove all others but those with another process's lease.

        A switch without a program, because it was restarted, gets one. Ordinary traffic uses working parts
        only. Switches that have left the cluster lose the jobs that they hold, and are then ignored; so are
        switches that do not answer. `told` is the last result of `look`: switches that report no change since
        a reconciliation without differences are not read, switches whose reports have stopped have a second
        to answer. Raises ControllerError.
        """
        self._follow(wiring, {name for each in admissions for name in each.switches})
        doubtful = self._fleet.controllers.keys() & self._telling - told.keys()
        self._telling = frozenset(told)
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
            # It may have been restarted, without it.
            controller.update_entries(
                self._forwarding(name, wiring), without=forwarding.left_hosts(wiring.macs)
            )
            fault_point("forwards")
            self._adjusted[name] = wiring, revision
        self._let_go(left - {name for each in admissions for name in each.switches})
        return report

    def _follow(self, wiring: Wiring, held: Collection[str] = ()) -> None:
        """Keep a controller for each switch of the cluster, and for former switches that hold jobs."""
        if self._followed is wiring and self._at.keys() >= {*held}:
            return
        wanted = {switch.name: switch.p4runtime for switch in wiring.whole.switches}
        wanted |= {name: wiring.left.get(name, "") for name in held if name not in wanted}
        for name, address in wanted.items():
            if self._at.get(name) != address:
                self._let_go([name] if name in self._at else [])
                controller = self._connect(name, address)
                controller.owner = self._owner
                self._fleet.add(name, controller)
                self._at[name] = address
        self._followed = wiring

    def _let_go(self, names: Iterable[str]) -> None:
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

    def links(self, wiring: Wiring, told: Mapping[str, SwitchReport]) -> dict[tuple[str, str], str]:
        """Return, for the links that a switch reports, why they are down; "": they are up."""
        found: dict[tuple[str, str], str] = {}
        for name, each in told.items():
            for port, link in wiring.whole.ports.get(name, {}).items():
                if port in each.ports:
                    why = "" if each.ports[port].up else f"port {port} of {name} is down"
                    found[link.a, link.b] = found.get((link.a, link.b)) or why
        return found

    def audit(self, admissions: Mapping[str, TreeAdmission], leaving: Collection[int], now_s: float) -> Audit:
        """Compare the switches' desired state, by job name, with their actual state; write nothing.

        Jobs in `leaving`, by id, may still be there, or not.
        """
        left_out, observed = {}, {}
        for name, controller in self._fleet.controllers.items():
            try:
                observed[name] = controller.observe()
            except ControllerError as error:
                left_out[name] = str(error)
        names = {admission.job: name for name, admission in admissions.items()}
        decision = reconcile(per_switch(admissions.values()), observed)
        found = [
            Discrepancy(action.switch, f"{action.verb} job {names.get(action.job, action.job)}: {action.why}")
            for action in decision.actions
            if action.job not in leaving
        ]
        return Audit(now_s, tuple(found), left_out)

    def counters(
        self, jobs: Mapping[Key, TreeAdmission], outcomes: Collection[str]
    ) -> dict[Key, dict[str, int]]:
        """Return the packets of jobs with these outcomes, over all their switches; the outcomes never change.

        A switch without new packets between its last reading and the last `look` is not read again. Jobs with
        a failing switch are left out.
        """
        found = {}
        for key, at in self._fleet.counters_of(jobs, outcomes, self._received).items():
            if at.keys() == jobs[key].switches.keys():
                total: Counter[str] = Counter()
                for counted in at.values():
                    total.update(counted)
                found[key] = dict(total)
        return found


def _revisions(told: Mapping[str, SwitchReport]) -> dict[str, Revision]:
    return {name: each.revision for name, each in told.items() if each.revision is not None}


def without_switch(cluster: Topology, place: Place) -> TreeAdmission:
    """Return the admission of a job on one server for its workers: no switch needs to know the job."""
    hosts = tuple(dict.fromkeys(place.servers))
    rack = cluster.rack_of[hosts[0]]
    here = Admission(
        job=ON_NO_SWITCH,
        counter_row=0,
        region=Region(0, 0),
        generation=1,
        group=0,
        members=tuple(members_by_switch(cluster, hosts)[rack]),
        fan_in=1,
        window=1,
        result_bitmap=1,
    )
    return TreeAdmission({rack: here})
