"""Make one decision for consecutive tables that always decide alike, so that their actions can be a loop.

A chip has a table for each register. So a program for a chip states, separately for each lane, the operation
on the lane and the condition of the operation. Tables with constant entries and the same keys and patterns
decide alike if none of their actions changes a key. One decision, followed by the tables' actions in order,
is equivalent to such tables.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Sequence
from dataclasses import fields, replace
from itertools import groupby
from typing import Any

from softswitch.compiler import ir
from softswitch.compiler.ir.walk import (
    all_statements,
    statement_expressions,
    subexpressions,
    targets,
    variables_read_first,
    with_expressions,
    without_positions,
)

MIN_TABLES = 2
_BOOL = ir.Bool()


def with_joint_decisions(program: ir.Program) -> ir.Program:
    """Return `program` with one decision in place of each run of tables that decide alike."""
    joiner = _Joiner(program)
    ingress, egress = joiner.body(program.ingress), joiner.body(program.egress)
    return replace(program, variables=joiner.variables, ingress=ingress, egress=egress)


class _Joiner:
    def __init__(self, program: ir.Program) -> None:
        self._program = program
        self.variables = dict(program.variables)
        self._users: dict[str, int] = {}
        for action in program.actions.values():
            for name in _variables(action.body):
                self._users[name] = self._users.get(name, 0) + 1
        states = [state for parser in program.parsers.values() for state in parser.values()]
        elsewhere = [*program.blocks.values(), *(state.body for state in states)]
        self._shared = {name for body in elsewhere for name in _variables(body)}
        self._shared |= {
            expr.name
            for table in program.tables.values()
            for key in table.keys
            for expr in subexpressions(key.expr)
            if isinstance(expr, ir.Var)
        }

    def body(self, statements: Sequence[ir.Stmt]) -> tuple[ir.Stmt, ...]:
        """Return statements with tables that decide alike joined, also in nested statements."""
        joined: list[ir.Stmt] = []
        for key, group in groupby(statements, self._decision):
            run = list(group)
            if key is None or len(run) < MIN_TABLES:
                joined += (with_expressions(s, lambda _, expr: expr, self.body) for s in run)
            else:
                joined += self._join([self._program.tables[s.table] for s in run if isinstance(s, ir.Apply)])
        return tuple(joined)

    def _decision(self, s: ir.Stmt) -> Hashable:
        """Return the keys and patterns of the table that `s` applies; None if `s` cannot be joined."""
        if not isinstance(s, ir.Apply) or s.hit is not None or s.action is not None:
            return None
        table = self._program.tables[s.table]
        plain = not (table.direct_counter or table.direct_meter or table.idle_timeout or table.implementation)
        if not (plain and table.keys and table.const_default and table.const_entries):
            return None
        invoked = [table.default, *(entry.invocation for entry in table.entries)]
        bodies = [self._program.actions[each.action].body for each in invoked]
        keys = tuple(without_positions(key.expr) for key in table.keys)
        if any(each.args for each in invoked) or not all(_is_simple(body) for body in bodies):
            return None
        reads = {_root_and_field(expr) for key in keys for expr in subexpressions(key)} - {None}
        statements = (s for body in bodies for s in all_statements(body))
        if any(_root_and_field(target) in reads for s in statements for target in targets(s)):
            return None
        return keys, tuple((entry.patterns, entry.priority) for entry in table.entries)

    def _join(self, tables: Sequence[ir.Table]) -> Iterator[ir.Stmt]:
        first = tables[0]
        order = sorted(range(len(first.entries)), key=lambda i: -first.entries[i].priority)
        keys = [ir.Var(key.expr.type, self._variable(key.expr.type), pos=key.expr.pos) for key in first.keys]
        for key, place in zip(first.keys, keys, strict=True):
            yield ir.Assign(place, key.expr, pos=first.pos)
        decided = self._actions([table.default for table in tables])
        for i in reversed(order):
            condition = _condition(keys, first.entries[i].patterns, first.pos)
            then = self._actions([table.entries[i].invocation for table in tables])
            decided = (ir.If(condition, then, decided, pos=first.pos),)
        yield from decided

    def _actions(self, invoked: Sequence[ir.Invocation]) -> tuple[ir.Stmt, ...]:
        """Return the bodies of actions in order, with new names for the variables that one action owns.

        New names make the variables local to this block. Actions whose own variables have the same types
        share the new names.
        """
        names: dict[tuple[ir.Type, ...], list[str]] = {}
        result: list[ir.Stmt] = []
        for body in (self._program.actions[each.action].body for each in invoked):
            own = self._own_variables(body)
            types = tuple(own.values())
            if types not in names:
                names[types] = list(map(self._variable, types))
            renamed = dict(zip(own, names[types], strict=True))
            result += (_renamed(statement, renamed) for statement in body)
        return tuple(result)

    def _variable(self, type_: ir.Type) -> str:
        name = f"joint#{len(self.variables)}"
        self.variables[name] = type_
        return name

    def _own_variables(self, body: Sequence[ir.Stmt]) -> dict[str, ir.Type]:
        """Return the variables that only this action uses and that it assigns before any read, in order."""
        exposed = variables_read_first(body, set())
        return {
            name: type_
            for name, type_ in _variables(body).items()
            if self._users.get(name) == 1 and name not in self._shared and name not in exposed
        }


def _is_simple(body: Iterable[ir.Stmt]) -> bool:
    return all(
        isinstance(s, ir.Assign | ir.If)
        or (isinstance(s, ir.Extern) and s.function in ("register.read", "register.write"))
        for s in all_statements(body)
    )


def _root_and_field(expr: ir.Expr) -> tuple[str, ...] | None:
    """Return the path of a scalar: the names of its variable and fields. None for other expressions.

    All elements of a stack have the same path.
    """
    match expr:
        case ir.Var(_, name):
            return (name,)
        case ir.Member(_, base, field):
            inner = _root_and_field(base)
            return None if inner is None else (*inner, field)
        case ir.Index(base=base) | ir.Slice(base=base):
            return _root_and_field(base)
        case _:
            return None


def _variables(body: Iterable[ir.Stmt]) -> dict[str, ir.Type]:
    return {
        expr.name: expr.type
        for s in all_statements(body)
        for outer in statement_expressions(s)
        for expr in subexpressions(outer)
        if isinstance(expr, ir.Var)
    }


def _condition(keys: Sequence[ir.Expr], patterns: Sequence[ir.Pattern], pos: ir.Position) -> ir.Expr:
    """Return the condition under which an entry matches."""
    whole: ir.Expr | None = None
    for key, pattern in zip(keys, patterns, strict=True):
        one = _matches(key, pattern, pos)
        if one is not None:
            whole = one if whole is None else ir.Binary(_BOOL, "&&", whole, one, pos=pos)
    return ir.Const(_BOOL, 1, pos=pos) if whole is None else whole


def _matches(expr: ir.Expr, pattern: ir.Pattern, pos: ir.Position) -> ir.Expr | None:
    scalar = expr.type
    assert isinstance(scalar, ir.Scalar)
    if pattern.kind == "any":
        return None
    if pattern.kind == "range":
        low, high = ir.Const(scalar, pattern.value, pos=pos), ir.Const(scalar, pattern.mask, pos=pos)
        above, below = ir.Binary(_BOOL, ">=", expr, low, pos=pos), ir.Binary(_BOOL, "<=", expr, high, pos=pos)
        return ir.Binary(_BOOL, "&&", above, below, pos=pos)
    if pattern.kind == "mask" and isinstance(scalar, ir.Bits):
        plain = ir.Bits(scalar.width)
        bits = ir.Cast(plain, expr, pos=pos) if scalar.signed else expr
        full = (1 << scalar.width) - 1
        if pattern.mask & full != full:
            bits = ir.Binary(plain, "&", bits, ir.Const(plain, pattern.mask & full, pos=pos), pos=pos)
        value = ir.Const(plain, pattern.value & pattern.mask & full, pos=pos)
        return ir.Binary(_BOOL, "==", bits, value, pos=pos)
    return ir.Binary(_BOOL, "==", expr, ir.Const(scalar, pattern.value, pos=pos), pos=pos)


def _renamed(node: Any, names: dict[str, str]) -> Any:
    """Return a statement or expression with its variables renamed."""
    if not names:
        return node
    match node:
        case ir.Var(_, name):
            return replace(node, name=names.get(name, name))
        case tuple():
            return tuple(_renamed(item, names) for item in node)
        case _ if isinstance(node, ir.Expr | ir.Stmt):
            kept = {"type", "pos"}
            changed = {
                item.name: _renamed(getattr(node, item.name), names)
                for item in fields(node)
                if item.name not in kept
            }
            return replace(node, **changed)
        case _:
            return node
