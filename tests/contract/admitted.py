"""The compiled switch programs on memory ports, with jobs as the controller admits them."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Mapping
from pathlib import Path

from controller.jobs import job_row, supporting_rows
from controller.layout import JobTree, lay_out
from controller.model import Admission, Mode, SwitchInfo
from controller.p4runtime_shim.rows import Group, Row
from controller.planning import Identity, plan
from controller.programs import P4SRC
from controller.tree import TreeAdmission
from softswitch.compiler import compile_file, ir
from softswitch.engine.build import build
from softswitch.engine.compiled import CompiledPipeline
from softswitch.engine.impairments import PortImpairments
from softswitch.engine.ports import MemoryPort
from softswitch.engine.switch import Switch

LANES = 32
SLOTS = 128
"""Few, so that a test can fill them."""


@functools.cache
def _built(program: Mode) -> tuple[ir.Program, Path]:
    compiled = compile_file(P4SRC / f"{program}.p4", defines={"LANES": str(LANES), "SLOTS": str(SLOTS)})
    return compiled, build(compiled)


def admit(
    program: Mode, trees: Mapping[Identity, JobTree]
) -> tuple[list[TreeAdmission], dict[str, list[Admission]]]:
    """Plan jobs on empty switches: what each job gets, and by switch all that it has to serve."""
    info = SwitchInfo(LANES, SLOTS, 255, 32, program)
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
    program: Mode,
    admissions: Iterable[Admission],
    *,
    impairments: PortImpairments | None = None,
    seed: int = 0,
) -> Switch:
    """Return a switch that runs a program and serves these jobs, to be driven in virtual time; `close` it."""
    compiled, library = _built(program)
    pipeline = CompiledPipeline(compiled, library)
    groups: dict[int, list[tuple[int, int]]] = {}
    ports: set[int] = set()
    for admission in admissions:
        for row in (*supporting_rows(admission), job_row(admission)):
            if isinstance(row, Row):
                pipeline.insert(row.table, _entry(compiled, row))
            elif isinstance(row, Group):
                groups[row.id] = list(row.replicas)
        ports |= {end.port for end in (*admission.members, admission.uplink) if end and end.port is not None}
    impaired = dict.fromkeys(ports, impairments) if impairments else {}
    switch = Switch({port: MemoryPort() for port in ports}, seed=seed, impairments=impaired)
    switch.load(pipeline)
    for number, replicas in groups.items():
        switch.set_multicast_group(number, replicas)
    return switch


def _entry(program: ir.Program, row: Row) -> ir.ConstEntry:
    keys = [row.match[key.name] for key in program.tables[row.table].keys]
    arguments = tuple(row.params[param.name] for param in program.actions[row.action].params)
    patterns = tuple(ir.Pattern("exact", key) for key in keys if isinstance(key, int))
    return ir.ConstEntry(patterns, ir.Invocation(row.action, arguments), 0)
