"""Walks over the IR that several parts of the C back end need."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import pairwise

from softswitch.compiler import ir
from softswitch.compiler.ir.walk import (
    all_statements,
    nested_bodies,
    statement_expressions,
    subexpressions,
    with_operands,
)
from softswitch.compiler.source import NOWHERE


def without_positions(expr: ir.Expr) -> ir.Expr:
    """Return `expr` with all positions alike, so that equal text compares equal."""
    return replace(with_operands(expr, lambda name, operand: without_positions(operand)), pos=NOWHERE)


def frame_sums(body: Sequence[ir.Stmt]) -> dict[int, int]:
    """Return the Internet checksums over a value and a header that has just been extracted: by id, its bytes.

    They can be summed in the frame, and need not be put together again from fields.
    """
    found = {}
    for before, statement in pairwise(body):
        match before, statement:
            case ir.Extract(header, None), ir.Extern(
                "hash", _, (_, (ir.Const(ir.Enum() as kinds, kind),), *rest)
            ):
                if not isinstance(header.type, ir.Header) or kinds.members[kind] != "csum16":
                    continue
                fields = [ir.Member(type_, header, name, NOWHERE) for name, type_ in header.type.fields]
                bits = sum(type_.width for _, type_ in header.type.fields if isinstance(type_, ir.Bits))
                summed = list(map(without_positions, rest[1][1:]))
                if bits % 16 == 0 and list(map(without_positions, fields)) == summed:
                    found[id(statement)] = bits // 8
    return found


def variables_read_first(body: Iterable[ir.Stmt], assigned: set[str]) -> set[str]:
    """Return the scalar variables that `body` may read before it has assigned them.

    `assigned` holds those assigned before; it is extended by what `body` assigns on every path.
    Conservative: after a statement that may leave, only what was assigned before it counts.
    """
    exposed: set[str] = set()
    for statement in body:
        target: ir.Expr | None = None
        reads: list[ir.Expr] = []
        match statement:
            case ir.Assign(target=target, value=value):
                reads = [value]
            case ir.Extern(function="register.read" | "meter.execute_meter" | "hash" | "random", args=args):
                target, reads = args[0][0], [expr for arg in args[1:] for expr in arg]
            case ir.Apply(hit=hit, action=action):
                assigned |= {var.name for var in (hit, action) if var is not None}
            case _:
                reads = list(statement_expressions(statement))
        if target is not None and not isinstance(target, ir.Var):
            reads.append(target)
        for read in reads:
            exposed |= {expr.name for expr in subexpressions(read) if isinstance(expr, ir.Var)} - assigned
        if isinstance(target, ir.Var):
            assigned.add(target.name)
        nested = [set(assigned) for _ in nested_bodies(statement)]
        for inner, inner_assigned in zip(nested_bodies(statement), nested, strict=True):
            exposed |= variables_read_first(inner, inner_assigned)
        match statement:
            case ir.If():
                assigned |= nested[0] & nested[1]
            case ir.Scope(body=inner) if not any(isinstance(s, ir.Return) for s in all_statements(inner)):
                assigned |= nested[0]
            case _:
                pass
    return exposed


def indirect_meters(program: ir.Program) -> list[ir.Meter]:
    """Return the meters that are arrays, in the order of ``p4_meters``."""
    return [meter for meter in program.meters.values() if meter.table is None]
