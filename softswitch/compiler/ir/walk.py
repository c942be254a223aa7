"""Traverse expressions and statements, for the compiler and the back ends.

A storage path is the name of a variable followed by the fields and stack indices that lead to a part of the
variable. Two paths overlap if one leads to a part of the storage of the other.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import fields, replace
from itertools import pairwise
from typing import Any, get_args

from softswitch.compiler import ir
from softswitch.compiler.errors import NOWHERE
from softswitch.compiler.ir.nodes import Expr, Extern, Member, Stmt, Switch, Var
from softswitch.compiler.ir.program import Action, Key, ParserState, Program, Table

Path = tuple[str, ...]
"""The name of a variable, followed by the names of nested fields."""


def member_path(expr: Expr) -> Path | None:
    """Return the path of a variable or nested field; None for elements of stacks and other expressions."""
    match expr:
        case Var(_, name):
            return (name,)
        case Member(_, base, name):
            inner = member_path(base)
            return None if inner is None else (*inner, name)
        case _:
            return None


def _fields(kinds: Any, *annotations: str) -> dict[type, tuple[str, ...]]:
    """Return, for each class of nodes, its fields whose type annotation is one of `annotations`."""
    return {
        kind: tuple(field.name for field in fields(kind) if field.type in annotations)
        for kind in get_args(kinds)
    }


_OPERANDS = _fields(Expr, "Expr")
"""The fields of each class of expressions that hold an expression."""
_EXPRESSIONS = _fields(Stmt, "Expr", "Expr | None", "Var | None")
"""The fields of each class of statements that hold an expression or None."""
_BODIES = _fields(Stmt, "tuple[Stmt, ...]")
"""The fields of each class of statements that hold a list of statements."""


def child_expressions(expr: Expr) -> tuple[Expr, ...]:
    """Return the direct operands of `expr`."""
    return tuple(getattr(expr, name) for name in _OPERANDS[type(expr)])


def with_operands(expr: Expr, changed: Callable[[str, Expr], Expr]) -> Expr:
    """Return `expr` with each direct operand replaced by ``changed(name of its field, operand)``."""
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
    """Yield the outermost expressions of a statement, without the expressions of nested statements."""
    for name in _EXPRESSIONS[type(statement)]:
        if (expr := getattr(statement, name)) is not None:
            yield expr
    if isinstance(statement, Extern):
        for arg in statement.args:
            yield from arg


TARGETED = ("register.read", "meter.execute_meter", "hash", "random")
"""Externs that assign to their first argument, and only read the other arguments."""


def targets(statement: Stmt) -> tuple[Expr, ...]:
    """Return the places to which a statement assigns values, without those of nested statements."""
    match statement:
        case ir.Assign(target):
            return (target,)
        case ir.Extern(function, _, args) if function in TARGETED:
            return args[0]
        case ir.Apply(_, hit, action):
            return tuple(variable for variable in (hit, action) if variable is not None)
        case _:
            return ()


def sources(statement: Stmt) -> Iterator[Expr]:
    """Yield the outermost expressions of a statement except its `targets`."""
    places = targets(statement)
    for expr in statement_expressions(statement):
        if not any(expr is place for place in places):
            yield expr


def nested_bodies(statement: Stmt) -> Iterator[tuple[Stmt, ...]]:
    """Yield the statement lists inside one statement."""
    for name in _BODIES[type(statement)]:
        yield getattr(statement, name)
    if isinstance(statement, Switch):
        for _, body in statement.cases:
            yield body


def with_expressions(
    statement: Stmt,
    changed: Callable[[str, Expr], Expr],
    body: Callable[[tuple[Stmt, ...]], tuple[Stmt, ...]],
) -> Stmt:
    """Return a statement with `changed` applied to its expressions and `body` to its lists of statements.

    `changed` is called in the order of the fields, with the name of the expression's field (for an extern,
    the argument's number) and the expression.
    """
    new: dict[str, Any] = {
        name: changed(name, expr)
        for name in _EXPRESSIONS[type(statement)]
        if (expr := getattr(statement, name)) is not None
    }
    new |= {name: body(getattr(statement, name)) for name in _BODIES[type(statement)]}
    match statement:
        case Switch(cases=cases):
            new["cases"] = tuple((constants, body(inner)) for constants, inner in cases)
        case Extern(args=args):
            new["args"] = tuple(
                tuple(changed(str(number), expr) for expr in arg) for number, arg in enumerate(args)
            )
    return replace(statement, **new)


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
    """Return the P4 notation of an expression that names a place; "a value" for other expressions."""
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
        case ParserState():
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
    state: Callable[[ParserState], ParserState],
    keys: Callable[[Table], tuple[Key, ...]],
) -> Program:
    """Return a program with statement lists mapped by `body`, parser states by `state`, keys by `keys`."""
    blocks: dict[str, Any] = {name: body(block) for name, block in program.blocks.items()}
    return replace(
        program,
        states={name: state(old) for name, old in program.states.items()},
        egress_states={name: state(old) for name, old in program.egress_states.items()},
        **blocks,
        actions={name: replace(action, body=body(action.body)) for name, action in program.actions.items()},
        tables={name: replace(table, keys=keys(table)) for name, table in program.tables.items()},
    )


StoragePath = tuple[str | int, ...]


def path_of(expr: ir.Expr) -> StoragePath | None:
    """Return the path of an l-value; None if it depends on a run-time index or is not an l-value."""
    match expr:
        case ir.Var(_, name):
            return (name,)
        case ir.Member(_, base, field):
            path = path_of(base)
            return None if path is None else (*path, field)
        case ir.Index(_, base, ir.Const(_, value)):
            path = path_of(base)
            return None if path is None else (*path, value)
        case _:
            return None


def storage_of(expr: ir.Expr) -> StoragePath | None:
    """Return the longest known path that contains the storage of `expr`; None if `expr` has no storage."""
    match expr:
        case ir.Var(_, name):
            return (name,)
        case ir.Member(_, base, field):
            path = path_of(base)
            return storage_of(base) if path is None else (*path, field)
        case ir.Index(_, base, index):
            path = path_of(base)
            if path is not None and isinstance(index, ir.Const):
                return (*path, index.value)
            return storage_of(base)
        case ir.Next(_, base) | ir.Last(_, base) | ir.LastIndex(_, base) | ir.Slice(_, base):
            return storage_of(base)
        case _:
            return None


def overlap(a: StoragePath, b: StoragePath) -> bool:
    """Return True if one path leads to a part of the other path's storage."""
    shorter = min(len(a), len(b))
    return a[:shorter] == b[:shorter]


def reads(expr: ir.Expr) -> Iterator[StoragePath]:
    """Yield the paths of all storage read to evaluate `expr`."""
    storage = storage_of(expr)
    if storage is not None:
        yield storage
        yield from _index_reads(expr)
    else:
        for operand in child_expressions(expr):
            yield from reads(operand)


def _index_reads(expr: ir.Expr) -> Iterator[StoragePath]:
    if isinstance(expr, ir.Index):
        yield from reads(expr.index)
    for operand in child_expressions(expr)[:1]:
        yield from _index_reads(operand)


def without_positions(expr: ir.Expr) -> ir.Expr:
    """Return `expr` without positions, so that equal expressions at different positions compare equal."""
    return replace(with_operands(expr, lambda name, operand: without_positions(operand)), pos=NOWHERE)


def frame_sums(body: Sequence[ir.Stmt]) -> dict[int, int]:
    """Find Internet checksums over a value and a header that the previous statement has extracted.

    Such a checksum can be computed from the frame's bytes; the header's fields need not be concatenated.
    Return the header's size in bytes for each of these checksums, by the ``id()`` of its statement.
    """
    found = {}
    for before, statement in pairwise(body):
        match before, statement:
            case ir.Extract(header, None), ir.Extern("hash", "csum16", (_, _, data, _)):
                if not isinstance(header.type, ir.Header):
                    continue
                fields = [ir.Member(type_, header, name, pos=NOWHERE) for name, type_ in header.type.fields]
                bits = sum(type_.width for _, type_ in header.type.fields if isinstance(type_, ir.Bits))
                summed = list(map(without_positions, data[1:]))
                if bits % 16 == 0 and list(map(without_positions, fields)) == summed:
                    found[id(statement)] = bits // 8
    return found


def variables_read_first(body: Iterable[ir.Stmt], assigned: set[str]) -> set[str]:
    """Return the scalar variables that `body` may read before it has assigned them.

    `assigned` holds the variables that are assigned before `body`. This function adds those that `body` is
    known to assign on every path: by a statement of `body` itself, in both branches of an `ir.If`, or in an
    `ir.Inlined` that contains no `ir.Return`.
    """
    exposed: set[str] = set()
    for statement in body:
        places = targets(statement)
        for read in (*sources(statement), *(place for place in places if not isinstance(place, ir.Var))):
            exposed |= {expr.name for expr in subexpressions(read) if isinstance(expr, ir.Var)} - assigned
        assigned |= {place.name for place in places if isinstance(place, ir.Var)}
        nested = [set(assigned) for _ in nested_bodies(statement)]
        for inner, inner_assigned in zip(nested_bodies(statement), nested, strict=True):
            exposed |= variables_read_first(inner, inner_assigned)
        match statement:
            case ir.If():
                assigned |= nested[0] & nested[1]
            case ir.Inlined(body=inner) if not any(isinstance(s, ir.Return) for s in all_statements(inner)):
                assigned |= nested[0]
            case _:
                pass
    return exposed


def indirect_meters(program: ir.Program) -> list[ir.Meter]:
    """Return the meters that are arrays, in the order of ``p4_meters`` in the generated C."""
    return [meter for meter in program.meters.values() if meter.table is None]
