"""Admits jobs to the switches of a testbed, each under control of a `controller.Controller` of its own."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import KW_ONLY, dataclass, replace

from bmv2_topos.testbeds.virtual.placement import Placement, Ports, branches
from bmv2_topos.testbeds.virtual.target import PipelineTarget
from bmv2_topos.testbeds.virtual.trees import shortest_tree
from controller import (
    Admission,
    Controller,
    Deployment,
    Identity,
    Region,
    TreeAdmission,
    Uplink,
    admit_tree,
    remove_tree,
)
from controller.switches import forwarding
from controller.switches.jobs import change_row, job_row
from controller.switches.model import AGEING, INA_UDP_PORT
from controller.vocabulary import Topology
from softswitch import Switch
from softswitch.engine.pipeline import Pipeline


@dataclass(frozen=True, slots=True)
class Request:
    """Request of a job: `slots` of its own or, shared, a `region` at every switch."""

    placement: Placement
    _: KW_ONLY
    window: int
    """Range of the PSNs that may be under way."""
    slots: int = 0
    preempt: bool = False
    ageing: int = AGEING
    region: Region | None = None
    """None: all slots."""
    max_age_us: int = 100_000
    ports: Ports | None = None
    """None: `INA_UDP_PORT` everywhere, which takes a host for each worker."""


class Controllers:
    """The controllers of a topology's switches; `slots` is the memory of a switch that aggregates.

    With `moves_at_once` a job's region changes for sums that are under way, too: to compare with.
    """

    def __init__(
        self,
        topology: Topology,
        switches: Mapping[str, Switch],
        pipelines: Mapping[str, Pipeline],
        *,
        slots: int,
        moves_at_once: bool = False,
    ) -> None:
        self._topology = topology
        self._moves_at_once = moves_at_once
        self.targets = {
            name: PipelineTarget(name, switch, pipelines[name], slots=slots)
            for name, switch in switches.items()
        }
        self.of = {name: Controller(target) for name, target in self.targets.items()}
        """By switch."""
        self._generation = 0
        self._admitted: dict[int, TreeAdmission] = {}
        self._moving: dict[tuple[str, int], Admission] = {}
        """By switch and job: jobs that are on their way to another region there."""
        self._wanted: dict[tuple[str, int], Region] = {}
        """The same: where they are to go next."""

    def admit(self, job: int, request: Request, generation: int | None = None) -> TreeAdmission:
        """Admit a job under this id to all switches of its tree; by default with the next generation.

        Raises a ControllerError, with nothing admitted, if it does not fit.
        """
        self._generation = self._generation + 1 if generation is None else generation
        identity = Identity(job, self._generation)
        self._admitted[job] = admit_tree(self.of, self._tree(request), identity=identity)
        return self._admitted[job]

    def _tree(self, request: Request) -> Deployment:
        topology, server = self._topology, request.placement.server
        mode = next(iter(self.of.values())).info().program
        shares = mode == "shared"
        region = request.region if shares else None
        root = branches(topology, request.placement, dict.fromkeys(self.of, region), request.ports)
        fallback = None
        if server is not None:
            port = topology.port_to(root.name, server)
            udp_port = INA_UDP_PORT if request.ports is None else request.ports.server
            fallback = Uplink(port, topology.mac(server), topology.ip(server), udp_port)
        return Deployment(
            root,
            request.slots,
            mode=mode,
            preempt=shares and request.preempt,
            ageing=request.ageing,
            window=request.window if shares else None,
            max_age_us=request.max_age_us,
            fallback=fallback,
            shared_ports=True,
        )

    def resize(self, job: int, region: Region, *, switches: Collection[str] | None = None) -> bool:
        """Have a shared job move to other slots, at every switch or only at these.

        It begins when an earlier move there is over. Returns False if the job has no slots there.
        """
        places = [name for name, on in self._admitted[job].switches.items() if not on.transit]
        if switches is not None:
            places = [name for name in places if name in switches]
        self._wanted |= {(name, job): region for name in places}
        self.settle()
        return bool(places)

    def settle(self) -> None:
        """End the moves that are over, and begin those that waited for that."""
        for (name, job), moving in list(self._moving.items()):
            if self.of[name].moved(moving) and self.of[name].settle(job):
                del self._moving[name, job]
        for (name, job), region in list(self._wanted.items()):
            if (name, job) not in self._moving:
                del self._wanted[name, job]
                self._begin_move(name, job, region)

    def _begin_move(self, switch: str, job: int, region: Region) -> None:
        if self._moves_at_once:
            self.rewrite(switch, replace(self.of[switch].jobs()[job], region=region))
        else:
            self._moving[switch, job] = self.of[switch].resize(job, region)

    def rewrite(self, switch: str, admission: Admission) -> None:
        """Have a switch serve a job otherwise at once, what is under way included; a move there is given up.

        No controller does that to a job that runs. Only the job's row in the job table changes.
        """
        key = switch, admission.job
        self._wanted.pop(key, None)
        if moving := self._moving.pop(key, None):
            self.targets[switch].write("DELETE", [change_row(moving)])
        self.targets[switch].write("MODIFY", [job_row(admission)])

    def remove(self, job: int) -> None:
        """Take a job off all its switches. Raises KeyError if it is on none."""
        admitted = self._admitted.pop(job)
        for name in admitted.switches:
            self._wanted.pop((name, job), None)
            self._moving.pop((name, job), None)
        remove_tree(self.of, admitted)

    def current(self) -> dict[int, TreeAdmission]:
        """Return how the jobs stand on their switches by now, moves to other regions included, by id."""
        found = {name: controller.jobs() for name, controller in self.of.items()}
        return {
            job: TreeAdmission({name: found[name][job] for name in admitted.switches})
            for job, admitted in self._admitted.items()
        }

    def regions(self, current: TreeAdmission) -> dict[str, Region]:
        """Return the slots that a job uses, moves to or is to move to, by switch."""
        found = {}
        for name, on_switch in current.switches.items():
            if not on_switch.transit:
                here = on_switch.region if on_switch.change is None else on_switch.change.region
                found[name] = self._wanted.get((name, on_switch.job), here)
        return found

    def bridge(self, host: str) -> None:
        """Let ordinary frames for a host's MAC address find their way to it, from every switch."""
        topology = self._topology
        ways = shortest_tree(topology, topology.rack_of[host]).parents
        for name, controller in self.of.items():
            port = topology.port_to(name, ways.get(name, host))
            controller.install([forwarding.bridge(topology.mac(host), port)])

    def set_ecn_threshold(self, depth: int) -> None:
        """Let all switches mark packets that leave this many behind in their queue."""
        for controller in self.of.values():
            controller.set_ecn_threshold(depth)

    def counters(self, admission: TreeAdmission) -> dict[str, dict[str, int]]:
        """Return how many packets of a job met which outcome since its admission, by switch."""
        rows = {name: on_switch.counter_row for name, on_switch in admission.switches.items()}
        return {name: self.of[name].row_counters(row) for name, row in rows.items()}
