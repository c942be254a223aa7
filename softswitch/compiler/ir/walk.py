"""Walks over expressions and statements that several parts of compiler and back ends need."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from softswitch.compiler import ir
from softswitch.compiler.ir.nodes import (
    Advance,
    Apply,
    Assign,
    Binary,
    Cast,
    Emit,
    Expr,
    Extern,
    Extract,
    If,
    Index,
    IsValid,
    Last,
    LastIndex,
    Loop,
    Member,
    Mux,
    Next,
    Scope,
    SetValidity,
    Shift,
    Skip,
    Slice,
    Stmt,
    Switch,
    Unary,
    Var,
    Verify,
)
from softswitch.compiler.ir.program import Program

Path = tuple[str, ...]
"""The name of a storage, and those of the members that lead to a place in it."""


def member_path(expr: Expr) -> Path | None:
    """Return the names that lead to a place, None of one in a stack and of what is none."""
    match expr:
        case Var(_, name):
            return (name,)
        case Member(_, base, name):
            inner = member_path(base)
            return None if inner is None else (*inner, name)
        case _:
            return None


def child_expressions(expr: Expr) -> tuple[Expr, ...]:
    """Return the direct operands of `expr`."""
    match expr:
        case Member(base=base) | Next(base=base) | Last(base=base) | LastIndex(base=base):
            return (base,)
        case Slice(base=base):
            return (base,)
        case Index(base=base, index=index):
            return (base, index)
        case Unary(operand=operand) | Cast(operand=operand):
            return (operand,)
        case Binary(left=left, right=right):
            return (left, right)
        case Mux(condition=condition, then=then, otherwise=otherwise):
            return (condition, then, otherwise)
        case IsValid(header=header):
            return (header,)
        case _:
            return ()


def subexpressions(expr: Expr) -> Iterator[Expr]:
    """Yield `expr` and everything inside it."""
    yield expr
    for child in child_expressions(expr):
        yield from subexpressions(child)


def statement_expressions(statement: Stmt) -> Iterator[Expr]:
    """Yield the outermost expressions of one statement, not of statements nested in it."""
    match statement:
        case Assign(target=target, value=value):
            yield from (target, value)
        case If(condition=condition):
            yield condition
        case Switch(subject=subject):
            yield subject
        case Apply(hit=hit, action=action):
            yield from (var for var in (hit, action) if var is not None)
        case SetValidity(header=header) | Emit(header=header):
            yield header
        case Shift(stack=stack) | Skip(stack=stack):
            yield stack
        case Extract(header=header, size=size):
            yield header
            if size is not None:
                yield size
        case Advance(bits=bits):
            yield bits
        case Verify(condition=condition, error=error):
            yield from (condition, error)
        case Extern(args=args):
            for arg in args:
                yield from arg
        case _:
            pass


def nested_bodies(statement: Stmt) -> Iterator[tuple[Stmt, ...]]:
    """Yield the statement lists inside one statement."""
    match statement:
        case If(then=then, otherwise=otherwise):
            yield from (then, otherwise)
        case Switch(cases=cases):
            for _, body in cases:
                yield body
        case Scope(body=body):
            yield body
        case Loop(body=body, update=update):
            yield from (body, update)
        case _:
            pass


def all_statements(body: Iterable[Stmt]) -> Iterator[Stmt]:
    """Yield the statements of `body` and everything nested in them."""
    for statement in body:
        yield statement
        for nested in nested_bodies(statement):
            yield from all_statements(nested)


def bodies(program: Program) -> Iterator[tuple[Stmt, ...]]:
    """Yield every statement list of the program."""
    yield from (state.body for states in program.parsers.values() for state in states.values())
    yield from program.blocks.values()
    yield from (action.body for action in program.actions.values())


def written(expr: ir.Expr) -> str:
    """Return a path as the source has it."""
    match expr:
        case ir.Var(name=name):
            return ir.plain_name(name)
        case ir.Member(base=base, field=name):
            return f"{written(base)}.{name}"
        case ir.Index(base=base, index=ir.Const(value=value)):
            return f"{written(base)}[{value}]"
        case ir.Index(base=base):
            return f"{written(base)}[…]"
        case ir.Next(base=base):
            return f"{written(base)}.next"
        case ir.Last(base=base):
            return f"{written(base)}.last"
        case _:
            return "a value"
