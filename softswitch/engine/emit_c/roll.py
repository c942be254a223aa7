"""Lane rolling: finds runs of statements that do the same to consecutive fields and registers.

P4 has no loops, so a program that handles 256 lanes spells out 256 times what it does to one. Two
statements are alike if they differ only in which elements of arrays (`ArrayRef`) they name. A run is
a group of statements repeated with every such index either the same or one higher each time; it
becomes a C loop, which the C compiler vectorises.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass, fields

from softswitch.compiler import ir
from softswitch.compiler.ir.walk import all_statements, child_expressions, statement_expressions
from softswitch.engine.emit_c.layout import ArrayRef
from softswitch.engine.emit_c.text import is_wide

MIN_REPEATS = 8
MAX_GROUP = 16


@dataclass(frozen=True, slots=True)
class Shape:
    """A statement with its array indices taken out."""

    key: Hashable
    elements: tuple[ArrayRef, ...]


@dataclass(frozen=True, slots=True)
class Run:
    """`repeats` groups of `length` statements; in each group, element k is `steps[k]` further."""

    start: int
    length: int
    repeats: int
    elements: tuple[ArrayRef, ...]  # of the first group
    steps: tuple[int, ...]


Locate = Callable[[ir.Expr], ArrayRef | None]
LocateRegister = Callable[[str], ArrayRef | None]


def find_runs(body: Sequence[ir.Stmt], locate: Locate, locate_register: LocateRegister) -> Iterator[Run]:
    """Yield the runs in `body`, in order and without overlap."""
    if len(body) < MIN_REPEATS:
        return
    shapes = [_shape(statement, locate, locate_register) for statement in body]
    position = 0
    while position < len(body):
        run = _longest_run(shapes, position)
        if run is None:
            position += 1
        else:
            yield run
            position += run.length * run.repeats


def _longest_run(shapes: Sequence[Shape | None], start: int) -> Run | None:
    best: Run | None = None
    for length in range(1, MAX_GROUP + 1):
        if start + length * MIN_REPEATS > len(shapes):
            break
        first = shapes[start : start + length]
        if None in first:
            break
        run = _run(shapes, start, length)
        if run is not None and (best is None or run.length * run.repeats > best.length * best.repeats):
            best = run
    return best


def _run(shapes: Sequence[Shape | None], start: int, length: int) -> Run | None:
    first = _elements(shapes, start, length)
    steps: tuple[int, ...] | None = None
    repeats = 1
    while start + (repeats + 1) * length <= len(shapes):
        here = start + repeats * length
        for offset in range(length):
            one, other = shapes[start + offset], shapes[here + offset]
            if one is None or other is None or one.key != other.key:
                break
        else:
            moved = tuple(
                b.index - a.index for a, b in zip(first, _elements(shapes, here, length), strict=True)
            )
            if steps is None:
                steps = moved
            if (
                all(step in (0, 1) for step in steps)
                and any(steps)
                and moved == tuple(repeats * step for step in steps)
            ):
                repeats += 1
                continue
        break
    if repeats < MIN_REPEATS or steps is None:
        return None
    if len(set(zip(first, steps, strict=True))) > len(set(first)):
        return None  # the first group has one element that both moves and stays
    return Run(start, length, repeats, first, steps)


def _elements(shapes: Sequence[Shape | None], start: int, length: int) -> tuple[ArrayRef, ...]:
    return tuple(
        element for shape in shapes[start : start + length] if shape is not None for element in shape.elements
    )


def _shape(statement: ir.Stmt, locate: Locate, locate_register: LocateRegister) -> Shape | None:
    """Return the shape of a statement that may be in a loop, else None."""
    elements: list[ArrayRef] = []

    def expression(expr: ir.Expr) -> Hashable:
        element = locate(expr)
        if element is not None:
            elements.append(element)
            return element.array
        if _escapes(expr):
            raise _NotRollable
        own = tuple(
            getattr(expr, item.name)
            for item in fields(expr)
            if item.name != "pos" and not isinstance(getattr(expr, item.name), ir.Expr)
        )
        return type(expr).__name__, own, tuple(expression(child) for child in child_expressions(expr))

    def body(statements: Sequence[ir.Stmt]) -> Hashable:
        return tuple(visit(inner) for inner in statements)

    def visit(inner: ir.Stmt) -> Hashable:
        match inner:
            case ir.Assign(target=target, value=value):
                return "assign", expression(target), expression(value)
            case ir.If(condition=condition, then=then, otherwise=otherwise):
                return "if", expression(condition), body(then), body(otherwise)
            case ir.Extern(function="register.read" | "register.write" as function, instance=name, args=args):
                element = locate_register(name)
                if element is not None:
                    elements.append(element)
                where = name if element is None else element.array
                return function, where, tuple(expression(expr) for arg in args for expr in arg)
            case _:
                raise _NotRollable

    try:
        key = visit(statement)
    except _NotRollable:
        return None
    return Shape(key, tuple(elements))


def _escapes(expr: ir.Expr) -> bool:
    """Return True if `expr` reads memory that scalars in C locals would be missing from.

    A rolled loop keeps scalars in locals meanwhile; whole headers and elements of stacks that only
    run time knows would still see the old values.
    """
    match expr:
        case ir.Const() | ir.Var(type=ir.Header() | ir.Stack() | ir.Struct()):
            return False
        case ir.Member(type=ir.Header() | ir.Stack() | ir.Struct()):
            return False
        case ir.Index(index=index):
            return not isinstance(index, ir.Const)
        case ir.Binary(left=left) if isinstance(left.type, ir.Header | ir.Stack | ir.Struct):
            return True
        case _:
            return not isinstance(expr.type, ir.Bits | ir.Bool | ir.Enum) or is_wide(expr.type)


class _NotRollable(Exception):
    """A statement that cannot be in a rolled loop."""


def independent(run: Run) -> bool:
    """Return True if no repetition of a run touches an array element that another one touches.

    Registers that are in no array are not looked at here.
    """
    first_index: dict[str, int] = {}
    for element, step in zip(run.elements, run.steps, strict=True):
        if step == 0 or first_index.setdefault(element.array, element.index) != element.index:
            return False
    return True


def mentioned(body: Sequence[ir.Stmt]) -> Iterator[ir.Expr]:
    """Yield the outermost expressions of all statements in `body`."""
    for statement in all_statements(body):
        yield from statement_expressions(statement)
