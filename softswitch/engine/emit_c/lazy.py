"""Rolled loops over a large header that need not be loaded into storage first.

A large header stays in the frame until something needs its fields (`HeaderHome.where`). A loop over
its lanes can take them from there in passing; one that overwrites them all need not take them at all.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from softswitch.compiler import ir
from softswitch.compiler.ir.walk import all_statements, statement_expressions, subexpressions
from softswitch.engine.emit_c.layout import ArrayRef, HeaderHome
from softswitch.engine.emit_c.roll import Run, mentioned
from softswitch.engine.emit_c.statements import Body


@dataclass(frozen=True, slots=True)
class Lazy:
    """A run's use of the lanes of a large header, all of which it visits once, in order."""

    home: HeaderHome
    element: ArrayRef
    offset: int  # bytes from the header's start to its first lane
    bits: int
    read: bool  # before they are written
    written: bool


def find_lazy(body: Body, group: Sequence[ir.Stmt], run: Run) -> Lazy | None:
    """Return the use that a run makes of its one large header; None if that should be in storage."""
    fields = list(_large_fields(body, mentioned(group)))
    places = {(place.text, place.array) for place in fields}
    if len(places) != 1:
        return None
    home, element = fields[0].owner, fields[0].array
    if home is None or home.where in body.brought or element is None or element.index != 0:
        return None
    layout = home.layout
    if len(layout.runs) != 1 or layout.varbit is not None:
        return None
    lanes = layout.runs[0]
    if lanes.count != len(layout.slots) or run.repeats != lanes.count:
        return None
    if not all(step == 1 for found, step in zip(run.elements, run.steps, strict=True) if found == element):
        return None
    read = written = False
    for statement in group:
        target = _target(statement)
        sources = [expr for expr in statement_expressions(statement) if expr is not target]
        if target is None or list(_large_fields(body, iter([target]))) == []:
            sources += [] if target is None else [target]
            target = None
        if isinstance(statement, ir.If):
            sources += mentioned(statement.then + statement.otherwise)
            if any(_writes(body, inner) for inner in all_statements(statement.then + statement.otherwise)):
                return None
        read |= not written and any(True for _ in _large_fields(body, iter(sources)))
        written |= target is not None
        read |= isinstance(target, ir.Slice)
    return Lazy(home, element, layout.slots[0].offset // 8, lanes.bits, read, written)


def _large_fields(body: Body, exprs: Iterator[ir.Expr]) -> Iterator[_Field]:
    for outer in exprs:
        for expr in subexpressions(outer):
            if isinstance(expr, ir.Member) and isinstance(expr.base.type, ir.Header):
                place = body.expressions.scalar(expr)
                if place.owner is not None:
                    yield _Field(place.text, place.array, place.owner)


@dataclass(frozen=True, slots=True)
class _Field:
    text: str
    array: ArrayRef | None
    owner: HeaderHome | None


def _target(statement: ir.Stmt) -> ir.Expr | None:
    match statement:
        case ir.Assign(target=target):
            return target
        case ir.Extern(function="register.read", args=args):
            return args[0][0]
        case _:
            return None


def _writes(body: Body, statement: ir.Stmt) -> bool:
    target = _target(statement)
    return target is not None and any(True for _ in _large_fields(body, iter([target])))
