"""Standard metadata: only what the program looks at is told to a packet."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Set

from softswitch.compiler import ir
from softswitch.compiler.ir.walk import (
    all_statements,
    bodies,
    child_expressions,
    member_path,
    statement_expressions,
)
from softswitch.engine.emit_c.text import c_integer, storage_bits, width_of
from softswitch.engine.emit_c.unit import Unit

ROOT = "standard_metadata"
_OURS = frozenset(("ingress_port", "egress_spec", "mcast_grp", "priority"))
"""What the functions that the engine calls look at themselves."""


def told_fields(program: ir.Program) -> frozenset[str]:
    """Return the fields of standard metadata that a program, or its back end, may look at."""
    return _mentioned(program) | _OURS


def answered(program: ir.Program) -> Iterator[str]:
    """Yield the C assignments of standard metadata to what is told of a packet besides where it goes."""
    if "priority" in _mentioned(program):
        yield f"    verdict->priority = p->{ROOT}.priority;"


def _mentioned(program: ir.Program) -> frozenset[str]:
    names = {name for name, _ in program.standard_metadata.fields}
    found: set[str] = set()
    for expr in _outermost(program):
        for path in _paths(expr):
            found |= {path[1]} if len(path) > 1 else names
    for paths in program.field_lists.values():
        found |= {path[1] for path in paths if path[0] == ROOT}
    return frozenset(found)


def tell(unit: Unit, told: Set[str], values: Mapping[str, str]) -> Iterator[str]:
    """Yield the C assignments to those of some fields of standard metadata that are `told_fields`."""
    fields = dict(unit.program.standard_metadata.fields)
    for name, value in values.items():
        if name not in told:
            continue
        width = width_of(fields[name])
        c_type = c_integer(storage_bits(width))
        text = value if width == storage_bits(width) else f"({value} & {hex((1 << width) - 1)})"
        yield f"    p->{ROOT}.{name} = ({c_type}){text};"


def _outermost(program: ir.Program) -> Iterator[ir.Expr]:
    for body in bodies(program):
        for statement in all_statements(body):
            yield from statement_expressions(statement)
    for states in program.parsers.values():
        for state in states.values():
            yield from state.transition.subjects
    for table in program.tables.values():
        yield from (key.expr for key in table.keys)
        yield from (cell.place for cell in table.cells)


def _paths(expr: ir.Expr) -> Iterator[tuple[str, ...]]:
    """Yield the paths into standard metadata that an expression mentions, the longest ones."""
    path = member_path(expr)
    if path is not None:
        if path[0] == ROOT:
            yield path
        return
    for child in child_expressions(expr):
        yield from _paths(child)
