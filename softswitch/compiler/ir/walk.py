"""Walks over expressions and statements that several parts of compiler and back ends need."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import fields, replace
from typing import Any, get_args

from softswitch.compiler import ir
from softswitch.compiler.ir.nodes import (
    Advance,
    Apply,
    Assign,
    Emit,
    Expr,
    Extern,
    Extract,
    If,
    Loop,
    Member,
    Scope,
    SetValidity,
    Shift,
    Skip,
    Stmt,
    Switch,
    Var,
    Verify,
)
from softswitch.compiler.ir.program import Action, Key, Program, State, Table

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


_OPERANDS: dict[type, tuple[str, ...]] = {
    kind: tuple(field.name for field in fields(kind) if field.type == "Expr") for kind in get_args(Expr)
}
"""The fields of expressions that are expressions."""


def child_expressions(expr: Expr) -> tuple[Expr, ...]:
    """Return the direct operands of `expr`."""
    return tuple(getattr(expr, name) for name in _OPERANDS[type(expr)])


def with_operands(expr: Expr, changed: Callable[[str, Expr], Expr]) -> Expr:
    """Return `expr` with what `changed` makes of its direct operands, by their fields' names."""
    old = {name: getattr(expr, name) for name in _OPERANDS[type(expr)]}
    all_new = {name: changed(name, operand) for name, operand in old.items()}
    new: dict[str, Any] = {name: each for name, each in all_new.items() if each is not old[name]}
    return replace(expr, **new) if new else expr


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


def nodes(node: object) -> Iterator[Expr | Stmt]:
    """Yield all statements and expressions below a program, a part of it or a tuple of such parts."""
    match node:
        case Program():
            states = [state for parser in node.parsers.values() for state in parser.values()]
            yield from nodes((*node.blocks.values(), *states, *node.actions.values(), *node.tables.values()))
        case State():
            yield from nodes((*node.body, *node.transition.subjects))
        case Action():
            yield from nodes(node.body)
        case Table():
            yield from nodes(tuple(key.expr for key in node.keys))
        case tuple():
            for item in node:
                yield from nodes(item)
        case _ if isinstance(node, Expr | Stmt):
            yield node
            for field in fields(node):
                if field.name not in ("type", "pos"):
                    yield from nodes(getattr(node, field.name))


def with_parts(
    program: Program,
    *,
    body: Callable[[tuple[Stmt, ...]], tuple[Stmt, ...]],
    state: Callable[[State], State],
    keys: Callable[[Table], tuple[Key, ...]],
) -> Program:
    """Return a program with what the functions make of its bodies, states and keys."""
    blocks: dict[str, Any] = {name: body(block) for name, block in program.blocks.items()}
    return replace(
        program,
        states={name: state(old) for name, old in program.states.items()},
        egress_states={name: state(old) for name, old in program.egress_states.items()},
        **blocks,
        actions={name: replace(action, body=body(action.body)) for name, action in program.actions.items()},
        tables={name: replace(table, keys=keys(table)) for name, table in program.tables.items()},
    )
