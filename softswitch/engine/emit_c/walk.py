"""Walks over the IR that several parts of the C back end need."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import fields, replace
from itertools import pairwise
from typing import Any

from softswitch.compiler import ir

NOWHERE = ir.Position("", 0, 0)


def child_expressions(expr: ir.Expr) -> tuple[ir.Expr, ...]:
    """Return the direct operands of `expr`."""
    match expr:
        case ir.Member(base=base) | ir.Next(base=base) | ir.Last(base=base) | ir.LastIndex(base=base):
            return (base,)
        case ir.Slice(base=base):
            return (base,)
        case ir.Index(base=base, index=index):
            return (base, index)
        case ir.Unary(operand=operand) | ir.Cast(operand=operand):
            return (operand,)
        case ir.Binary(left=left, right=right):
            return (left, right)
        case ir.Mux(condition=condition, then=then, otherwise=otherwise):
            return (condition, then, otherwise)
        case ir.IsValid(header=header):
            return (header,)
        case _:
            return ()


def subexpressions(expr: ir.Expr) -> Iterator[ir.Expr]:
    """Yield `expr` and everything inside it."""
    yield expr
    for child in child_expressions(expr):
        yield from subexpressions(child)


def statement_expressions(statement: ir.Stmt) -> Iterator[ir.Expr]:
    """Yield the outermost expressions of one statement, not of statements nested in it."""
    match statement:
        case ir.Assign(target=target, value=value):
            yield from (target, value)
        case ir.If(condition=condition):
            yield condition
        case ir.Switch(subject=subject):
            yield subject
        case ir.Apply(hit=hit, action=action):
            yield from (var for var in (hit, action) if var is not None)
        case ir.SetValidity(header=header) | ir.Emit(header=header):
            yield header
        case ir.Shift(stack=stack) | ir.Skip(stack=stack):
            yield stack
        case ir.Extract(header=header, size=size):
            yield header
            if size is not None:
                yield size
        case ir.Advance(bits=bits):
            yield bits
        case ir.Verify(condition=condition, error=error):
            yield from (condition, error)
        case ir.Extern(args=args):
            for arg in args:
                yield from arg
        case _:
            pass


def nested_bodies(statement: ir.Stmt) -> Iterator[tuple[ir.Stmt, ...]]:
    """Yield the statement lists inside one statement."""
    match statement:
        case ir.If(then=then, otherwise=otherwise):
            yield from (then, otherwise)
        case ir.Switch(cases=cases):
            for _, body in cases:
                yield body
        case ir.Scope(body=body):
            yield body
        case ir.Loop(body=body, update=update):
            yield from (body, update)
        case _:
            pass


def all_statements(body: Iterable[ir.Stmt]) -> Iterator[ir.Stmt]:
    """Yield the statements of `body` and everything nested in them."""
    for statement in body:
        yield statement
        for nested in nested_bodies(statement):
            yield from all_statements(nested)


def bodies(program: ir.Program) -> Iterator[tuple[ir.Stmt, ...]]:
    """Yield every statement list of the program."""
    yield from (state.body for states in program.parsers.values() for state in states.values())
    yield from program.blocks.values()
    yield from (action.body for action in program.actions.values())


def without_positions(expr: ir.Expr) -> ir.Expr:
    """Return `expr` with all positions alike, so that equal text compares equal."""
    changes: dict[str, Any] = {"pos": NOWHERE}
    for item in fields(expr):
        value = getattr(expr, item.name)
        if item.name != "pos" and isinstance(value, ir.Expr):
            changes[item.name] = without_positions(value)
    return replace(expr, **changes)


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
