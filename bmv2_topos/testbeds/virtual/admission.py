"""Admits jobs to the switches of a testbed: the controller's plans and rows, straight into the tables.

What is left out of a live controller is only P4Runtime between it and the switches, which takes longer than
many a simulation.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import KW_ONLY, dataclass, replace

from bmv2_topos.spec import Topology
from bmv2_topos.testbeds.virtual.placement import Placement, Ports, job_tree
from bmv2_topos.testbeds.virtual.trees import shortest_tree
from controller import forwarding, names
from controller.errors import naming
from controller.jobs import change_row, job_row, supporting_rows
from controller.layout import JobTree, lay_out
from controller.model import AGEING, INA_UDP_PORT, Admission, Mode, Region, RegionChange, SwitchInfo, Uplink
from controller.outcomes import COLUMNS, OUTCOMES
from controller.p4runtime_shim.rows import Group, Match, Row
from controller.planning import Identity, plan
from controller.tree import TreeAdmission
from hostlib.tree import Tree
from softswitch import Switch
from softswitch.compiler import ir
from softswitch.engine.pipeline import Pipeline

MAX_MEMBERS = 32


@dataclass(frozen=True, slots=True)
class Request:
    """What a job asks for: `slots` of its own or, shared, a `region` at every switch."""

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


@dataclass(frozen=True, slots=True)
class Admitted:
    """A job on its switches."""

    identity: Identity
    switches: Mapping[str, Admission]
    tree: Tree

    @property
    def root(self) -> Admission:
        """Its admission to the root."""
        return next(iter(self.switches.values()))


class Controller:
    """Admits, resizes and removes jobs; `slots` is the memory of a switch that aggregates.

    With `moves_at_once` a job's region changes for sums that are under way, too: to compare with.
    """

    def __init__(
        self,
        topology: Topology,
        switches: Mapping[str, Switch],
        pipelines: Mapping[str, Pipeline],
        program: ir.Program,
        *,
        mode: Mode,
        lanes: int,
        slots: int,
        moves_at_once: bool = False,
    ) -> None:
        self._topology = topology
        self._switches = switches
        self._pipelines = pipelines
        self._program = program
        self._mode = mode
        self._moves_at_once = moves_at_once
        self._present: dict[str, dict[int, Admission]] = {name: {} for name in switches}
        self._info = SwitchInfo(
            lanes=lanes,
            slots=slots,
            jobs=program.counters[names.OUTCOMES].size // COLUMNS - 1,
            max_members=MAX_MEMBERS,
            program=mode,
        )
        self._generation = 0
        self._moving: list[tuple[str, int]] = []
        """Switches and the jobs that are on their way to another region there."""
        self._wanted: dict[tuple[str, int], Region] = {}
        """The same: where they are to go next."""

    def admit(self, job: int, request: Request) -> Admitted:
        """Admit a job under this id to all switches of its tree, with a generation of its own.

        Raises a ControllerError, with nothing admitted, if it does not fit.
        """
        self._generation += 1
        identity = Identity(job, self._generation)
        topology, server = self._topology, request.placement.server
        shares = self._mode == "shared"
        region = request.region if shares else None
        root = job_tree(topology, request.placement, dict.fromkeys(self._switches, region), request.ports)
        fallback = None
        if server is not None:
            port = topology.port_to(root.name, server)
            udp_port = INA_UDP_PORT if request.ports is None else request.ports.server
            fallback = Uplink(port, topology.mac(server), topology.ip(server), udp_port)
        tree = JobTree(
            root,
            request.slots,
            mode=self._mode,
            preempt=shares and request.preempt,
            ageing=request.ageing,
            window=request.window if shares else None,
            max_age_us=request.max_age_us,
            fallback=fallback,
        )
        admissions = {}
        for name, part in lay_out(tree, max_members=MAX_MEMBERS, shared_ports=True).items():
            with naming(name):
                present = self._present[name].values()
                admissions[name] = plan(part, identity, info=self._info, present=present, ports=())
        for name, admission in admissions.items():
            first = admission.counter_row * COLUMNS
            for column in OUTCOMES.values():
                self._pipelines[name].write_counter(names.OUTCOMES, first + column, 0, 0)
            for row in (*_supporting_rows(admission), job_row(admission)):
                self._write(name, row)
            self._present[name][job] = admission
        return Admitted(identity, admissions, _logical_tree(admissions))

    def resize(self, job: int, region: Region, *, switches: Collection[str] | None = None) -> None:
        """Have a shared job move to other slots, at every switch or only at these.

        It begins when an earlier move there is over.
        """
        for name, present in self._present.items():
            if switches is not None and name not in switches:
                continue
            if job in present and not present[job].transit:
                self._wanted[name, job] = region
        self.settle()

    def settle(self) -> None:
        """End the moves that are over, and begin those that waited for that."""
        for name, job in list(self._moving):
            self._end_move(name, job)
        for (name, job), region in list(self._wanted.items()):
            if (name, job) not in self._moving:
                del self._wanted[name, job]
                self._begin_move(name, job, region)

    def _begin_move(self, switch: str, job: int, region: Region) -> None:
        admission = self._present[switch][job]
        if self._moves_at_once:
            self._present[switch][job] = replace(admission, region=region)
            self._write(switch, job_row(self._present[switch][job]), modify=True)
            return
        change = RegionChange(self._move_number(switch, admission), region)
        self._present[switch][job] = replace(admission, change=change)
        self._moving.append((switch, job))
        self._write(switch, change_row(self._present[switch][job]))

    def _end_move(self, switch: str, job: int) -> None:
        moving = self._present[switch][job]
        if moving.change is None or self._move_number(switch, moving) == moving.change.number:
            return
        self._present[switch][job] = replace(moving, region=moving.change.region, change=None)
        self._moving.remove((switch, job))
        self._write(switch, job_row(self._present[switch][job]), modify=True)
        self._delete(switch, change_row(moving))

    def _move_number(self, switch: str, admission: Admission) -> int:
        """Return what a move that begins now is called (`RegionChange`)."""
        packets = self._pipelines[switch].read_counter(names.SETTLED, admission.counter_row)[0]
        return admission.generation << 32 | packets & 0xFFFFFFFF

    def remove(self, job: int) -> None:
        """Take a job off all switches, its row in the job table first."""
        for name, present in self._present.items():
            self._wanted.pop((name, job), None)
            if (name, job) in self._moving:
                self._moving.remove((name, job))
            if admission := present.pop(job, None):
                moves = [] if admission.change is None else [change_row(admission)]
                for row in (job_row(admission), *moves, *_supporting_rows(admission)):
                    self._delete(name, row)

    def current(self, admitted: Admitted) -> Admitted:
        """Return how a job that is there stands on its switches by now, moves to other regions included."""
        job = admitted.identity.job
        return replace(admitted, switches={name: self._present[name][job] for name in admitted.switches})

    def regions(self, admitted: Admitted) -> dict[str, Region]:
        """Return the slots that a job that is there uses, moves to or is to move to, by switch."""
        found = {}
        for name, on_switch in self.current(admitted).switches.items():
            if not on_switch.transit:
                here = on_switch.region if on_switch.change is None else on_switch.change.region
                found[name] = self._wanted.get((name, on_switch.job), here)
        return found

    def bridge(self, host: str) -> None:
        """Let ordinary frames for a host's MAC address find their way to it, from every switch."""
        topology = self._topology
        ways = shortest_tree(topology, topology.switch_of(host)).parents
        for switch in self._switches:
            towards = ways.get(switch, host)
            self._write(switch, forwarding.bridge(topology.mac(host), topology.port_to(switch, towards)))

    def set_ecn_threshold(self, depth: int) -> None:
        """Let all switches mark packets that leave this many behind in their queue."""
        for pipeline in self._pipelines.values():
            pipeline.set_default(names.ECN, ir.Invocation(names.SET_ECN, (depth,)))

    def counters(self, admission: Admitted) -> dict[str, dict[str, int]]:
        """Return how many packets of a job met which outcome since its admission, by switch."""
        return {
            name: {
                outcome: self._pipelines[name].read_counter(
                    names.OUTCOMES, on_switch.counter_row * COLUMNS + column
                )[0]
                for outcome, column in OUTCOMES.items()
            }
            for name, on_switch in admission.switches.items()
        }

    def _write(self, switch: str, entry: Row | Group, *, modify: bool = False) -> None:
        if isinstance(entry, Group):
            self._switches[switch].set_multicast_group(entry.id, entry.replicas)
            return
        pipeline = self._pipelines[switch]
        with self._switches[switch].locked():
            (pipeline.modify if modify else pipeline.insert)(entry.table, _encode(self._program, entry))

    def _delete(self, switch: str, entry: Row | Group) -> None:
        if isinstance(entry, Group):
            self._switches[switch].set_multicast_group(entry.id, None)
            return
        with self._switches[switch].locked():
            self._pipelines[switch].delete(entry.table, _encode(self._program, entry))


def _supporting_rows(admission: Admission) -> list[Row | Group]:
    """Make what a job has besides its row in the job table, with one row for all members at one port."""
    members: dict[Match, Row] = {}
    others: list[Row | Group] = []
    for row in supporting_rows(admission):
        if isinstance(row, Row) and row.action == names.SET_MEMBER:
            port = row.match[names.INGRESS_PORT]
            bits = members[port].params["bitmap"] if port in members else 0
            members[port] = replace(row, params={**row.params, "bitmap": row.params["bitmap"] | bits})
        else:
            others.append(row)
    return [*others, *members.values()]


def _encode(program: ir.Program, row: Row) -> ir.ConstEntry:
    patterns = []
    for key in program.tables[row.table].keys:
        value = row.match[key.name]
        assert isinstance(value, int), "the controller's tables match exactly"
        patterns.append(ir.Pattern("exact", value))
    params = program.actions[row.action].params
    arguments = tuple(row.params[param.name] for param in params)
    return ir.ConstEntry(tuple(patterns), ir.Invocation(row.action, arguments), 0)


def _logical_tree(admissions: Mapping[str, Admission]) -> Tree:
    return Tree.of(TreeAdmission(admissions).tree)
