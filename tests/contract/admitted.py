"""The compiled switch programs on memory ports, with jobs as the controller admits them."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Mapping
from pathlib import Path

from bmv2_topos.testbeds.virtual.target import PipelineTarget
from controller.switches.jobs import job_row, supporting_rows
from controller.switches.layout import Deployment, TreeAdmission, lay_out
from controller.switches.model import Admission, SwitchInfo
from controller.switches.planning import Identity, plan
from controller.switches.programs import ProgramInfo, objects
from controller.switches.target import TableEntry
from controller.vocabulary import Mode
from softswitch.compiler import ir, p4info
from softswitch.engine.build import build
from softswitch.engine.compiled import CompiledPipeline
from softswitch.engine.ports import MemoryPort, PortImpairments
from softswitch.engine.switch import Switch
from tests.programs import p4src_program

LANES = 32
SLOTS = 128
"""Few, so that a test can fill them."""


@functools.cache
def _built(program: str, slots: int) -> tuple[ir.Program, Path, ProgramInfo]:
    compiled = p4src_program(program, LANES=LANES, SLOTS=slots)
    return compiled, build(compiled), objects(p4info(compiled))


def admit(
    program: Mode, trees: Mapping[Identity, Deployment], slots: int = SLOTS
) -> tuple[list[TreeAdmission], dict[str, list[Admission]]]:
    """Plan jobs on empty switches: what each job gets, and by switch all that it has to serve."""
    info = SwitchInfo(LANES, slots, 255, 32, program)
    present: dict[str, list[Admission]] = {}
    admitted = []
    for identity, tree in trees.items():
        parts = {}
        for name, job in lay_out(tree, max_members=32).items():
            on_switch = present.setdefault(name, [])
            parts[name] = plan(job, identity, info=info, present=on_switch, ports=())
            on_switch.append(parts[name])
        admitted.append(TreeAdmission(parts))
    return admitted, present


def serving(
    program: str,
    admissions: Iterable[Admission],
    *,
    impairments: PortImpairments | None = None,
    seed: int = 0,
    slots: int = SLOTS,
) -> Switch:
    """Return a switch that runs a program and serves these jobs, to be driven in virtual time; `close` it."""
    admissions = list(admissions)
    ends = [end for admission in admissions for end in (*admission.members, admission.uplink) if end]
    ports = {end.port for end in ends if end.port is not None}
    impaired = dict.fromkeys(ports, impairments) if impairments else {}
    switch = Switch({port: MemoryPort() for port in ports}, seed=seed, impairments=impaired)
    load_jobs(switch, program, admissions, slots=slots)
    return switch


def load_jobs(switch: Switch, program: str, admissions: Iterable[Admission], *, slots: int = SLOTS) -> None:
    """Have a switch run a program that has no sums yet and serves these jobs; multicast groups stay."""
    compiled, library, info = _built(program, slots)
    pipeline = CompiledPipeline(compiled, library)
    switch.load(pipeline)
    target = PipelineTarget("the switch", switch, pipeline, info)
    rows = [row for on in admissions for row in (*supporting_rows(on), job_row(on))]
    groups = switch.multicast_groups()
    target.write("INSERT", [row for row in rows if isinstance(row, TableEntry) or row.id not in groups])
