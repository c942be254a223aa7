"""The controller of a virtual testbed's switches: it admits jobs, and makes changes for experiments."""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping
from dataclasses import KW_ONLY, dataclass, replace
from functools import partial

from bmv2_topos.testbeds.virtual.placement import Placement, Ports, branches, drawn_tree
from bmv2_topos.testbeds.virtual.target import PipelineTarget
from controller import (
    Admission,
    Deployment,
    Fleet,
    Identity,
    Region,
    SwitchSession,
    TreeAdmission,
    Uplink,
)
from controller.switches.jobs import change_row, job_row
from controller.switches.model import AGEING, INA_UDP_PORT, Feature
from controller.switches.reconcile import reconcile
from controller.switches.target import ProgramInfo
from controller.vocabulary import Topology
from softswitch import Switch
from softswitch.engine.pipeline import Pipeline


@dataclass(frozen=True, slots=True)
class SlotRequest:
    """A job's request for slots: `slots` of its own or, if jobs share slots, a `region` at every switch."""

    placement: Placement
    _: KW_ONLY
    window: int
    """Length of the range of PSNs that may be in flight."""
    slots: int = 0
    preempt: bool = False
    ageing: int = AGEING
    region: Region | None = None
    """Slots of a job that shares slots; None: all slots."""
    max_age_us: int = 100_000
    ports: Ports | None = None
    """UDP ports of the job's workers and fallback server. None: each is on a host of its own, at
    `INA_UDP_PORT`."""


class VirtualFleet(Fleet):
    """The controller of a topology's switches, with operations that only experiments need.

    `objects` describe the switches' common program; each aggregating switch has `slots` slots.
    """

    def __init__(
        self,
        topology: Topology,
        switches: Mapping[str, Switch],
        pipelines: Mapping[str, Pipeline],
        objects: ProgramInfo,
        *,
        slots: int,
    ) -> None:
        self._topology = topology
        self.targets = {
            name: PipelineTarget(name, switch, pipelines[name], objects, slots=slots, sole=True)
            for name, switch in switches.items()
        }
        super().__init__({name: SwitchSession(target) for name, target in self.targets.items()})
        self.jobs: dict[int, TreeAdmission] = {}
        """Admitted jobs by id; jobs that are moving have their new slots here."""
        self._generation = 0

    def place(self, job: int, request: SlotRequest, generation: int | None = None) -> TreeAdmission:
        """Admit a job under this id to all switches of its tree; by default with the next generation.

        Raises a ControllerError, with nothing admitted, if the job does not fit.
        """
        self._generation = self._generation + 1 if generation is None else generation
        admitted = self.admit(self._deployment(request), identity=Identity(job, self._generation))
        self.jobs[job] = admitted
        return admitted

    def withdraw(self, job: int) -> None:
        """Remove a job from all its switches."""
        self.remove(self.jobs.pop(job))

    def _deployment(self, request: SlotRequest) -> Deployment:
        topology, server = self._topology, request.placement.server
        mode = next(iter(self.controllers.values())).info().mode
        shares = mode == "shared"
        region = request.region if shares else None
        root = branches(topology, request.placement, region, request.ports)
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

    def move(self, job: int, regions: Mapping[str, Region]) -> bool:
        """Move a running job that shares slots to other regions, by switch.

        Return False if the job has no slots at these switches. A move begins when the job's earlier move at
        the switch is over (`settle`). Raises BadJob if a region exceeds the memory; ProgramMismatch if the
        program does not support moves.
        """
        moved = self.jobs[job].at(regions)
        places = [name for name, held in moved.switches.items() if name in regions and not held.transit]
        self.jobs[job] = moved
        for name in places:
            self.controllers[name].info().require(Feature.MOVES)
        self.settle([(name, job) for name in places])
        return bool(places)

    def settle(self, moves: Iterable[tuple[str, int]] = ()) -> None:
        """Finish moves that are over; begin the moves in `moves`, and moves that waited for an earlier move.

        Each item of `moves` is a switch and a job. A job waits only for its own earlier move at the switch.
        While jobs move, two jobs may share slots.
        """
        over = [at for at, moving in self._moving.items() if self.controllers[at[0]].has_moved(moving)]
        for name, job in dict.fromkeys((*over, *moves)):
            self._bring_about(
                [name],
                partial(reconcile, {name: [self.jobs[job].switches[name]]}, may_remove=lambda other: False),
            )

    def rewrite(self, switch: str, admission: Admission) -> None:
        """Replace a job's row in the job table of a switch at once, and abort a move of the job there.

        A fixture for schedules of the soak, between which no job runs. A real controller does not do so while
        the job runs, because the switch would process packets in flight by the new row. `reconcile` would
        remove and add the job, as it has another generation; that takes a tenth of the time of a schedule.
        """
        if moving := self._moving.pop((switch, admission.job), None):
            self.targets[switch].write("DELETE", [change_row(moving)])
        self.targets[switch].write("MODIFY", [job_row(admission)])
        tree = self.jobs[admission.job]
        self.jobs[admission.job] = replace(tree, switches={**tree.switches, switch: admission})

    def bridge_to(self, host: str, sources: Iterable[str], draw: random.Random) -> None:
        """Add rows that forward ordinary frames from the hosts `sources` to a host's MAC address.

        Draw the paths to the host at random from the shortest paths, once for all frames to the host, as
        switches do that choose a path by the receiver (ECMP).
        """
        topology = self._topology
        ways = drawn_tree(topology, topology.rack_of[host], draw)
        ports = {ways.root: topology.port_to(ways.root, host)}
        for source in sources:
            switch = topology.rack_of[source]
            while switch not in ports:
                ports[switch] = topology.port_to(switch, ways.parents[switch])
                switch = ways.parents[switch]
        self.bridge(topology.mac(host), ports)
