"""Admits jobs to the switches of a testbed: the controller's plans and rows, straight into the tables.

What is left out of a live controller is only P4Runtime between it and the switches, which takes longer than
many a simulation.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass, replace

from bmv2_topos.spec import Topology
from bmv2_topos.testbeds.virtual.placement import Placement, job_tree
from bmv2_topos.testbeds.virtual.settings import Program
from controller import names
from controller.jobs import job_row, supporting_rows
from controller.layout import JobTree, lay_out
from controller.model import Admission, Mode, Region, SwitchInfo, Uplink
from controller.outcomes import COLUMNS, OUTCOMES
from controller.p4runtime_shim.rows import Group, Row
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
    region: Region | None = None
    """None: all slots."""
    max_age_us: int = 100_000


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
    """Admits, resizes and removes jobs; `slots` is the memory of a switch that aggregates."""

    def __init__(
        self,
        topology: Topology,
        switches: Mapping[str, Switch],
        pipelines: Mapping[str, Pipeline],
        program: ir.Program,
        *,
        mode: Program,
        lanes: int,
        slots: int,
    ) -> None:
        self._topology = topology
        self._switches = switches
        self._pipelines = pipelines
        self._program = program
        self._mode: Mode = mode
        self._present: dict[str, dict[int, Admission]] = {name: {} for name in switches}
        self._info = SwitchInfo(
            lanes=lanes,
            slots=slots,
            jobs=program.counters[names.OUTCOMES].size // COLUMNS - 1,
            max_members=MAX_MEMBERS,
            program=mode,
        )
        self._generation = 0

    def admit(self, job: int, request: Request) -> Admitted:
        """Admit a job under this id to all switches of its tree, with a generation of its own.

        Raises a ControllerError, with nothing admitted, if it does not fit.
        """
        self._generation += 1
        identity = Identity(job, self._generation)
        topology, server = self._topology, request.placement.server
        shares = self._mode == "shared"
        region = request.region if shares else None
        fallback = None
        if server is not None:
            port = topology.port_to(topology.root, server)
            fallback = Uplink(port, topology.mac(server), topology.ip(server))
        tree = JobTree(
            job_tree(topology, request.placement, dict.fromkeys(self._switches, region)),
            request.slots,
            mode=self._mode,
            preempt=shares and request.preempt,
            window=request.window if shares else None,
            max_age_us=request.max_age_us,
            fallback=fallback,
        )
        admissions = {
            name: plan(part, identity, info=self._info, present=self._present[name].values(), ports=())
            for name, part in lay_out(tree, max_members=MAX_MEMBERS).items()
        }
        for name, admission in admissions.items():
            first = admission.counter_row * COLUMNS
            for column in OUTCOMES.values():
                self._pipelines[name].write_counter(names.OUTCOMES, first + column, 0, 0)
            for row in (*supporting_rows(admission), job_row(admission)):
                self._write(name, row)
            self._present[name][job] = admission
        return Admitted(identity, admissions, _logical_tree(admissions))

    def resize(self, job: int, region: Region) -> None:
        """Let a shared job use other slots from now on, at every switch."""
        for name, present in self._present.items():
            if job in present and not present[job].transit:
                present[job] = replace(present[job], region=region)
                self._write(name, job_row(present[job]), modify=True)

    def remove(self, job: int) -> None:
        """Take a job off all switches, its row in the job table first."""
        for name, present in self._present.items():
            if admission := present.pop(job, None):
                for row in (job_row(admission), *supporting_rows(admission)):
                    self._delete(name, row)

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
