"""Storage paths that expressions read or name, to decide which values may be shared and which are copied.

A path is the name of a variable followed by the fields, and numbers of stack elements, that lead to
a part of it. Two paths overlap if one leads to a part of the other.
"""

from __future__ import annotations

from collections.abc import Iterator

from softswitch.compiler import ir
from softswitch.compiler.ir.walk import child_expressions

Path = tuple[str | int, ...]


def path_of(expr: ir.Expr) -> Path | None:
    """Return the path of an l-value, or None if it depends on a run-time index or is none."""
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


def storage_of(expr: ir.Expr) -> Path | None:
    """Return the shortest known path that the storage of `expr` lies in (None: no storage)."""
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


def overlap(a: Path, b: Path) -> bool:
    """Return True if one path leads to a part of what the other leads to."""
    shorter = min(len(a), len(b))
    return a[:shorter] == b[:shorter]


def reads(expr: ir.Expr) -> Iterator[Path]:
    """Yield the paths of all storage that evaluating `expr` looks at."""
    storage = storage_of(expr)
    if storage is not None:
        yield storage
        yield from _index_reads(expr)
    else:
        for operand in child_expressions(expr):
            yield from reads(operand)


def _index_reads(expr: ir.Expr) -> Iterator[Path]:
    if isinstance(expr, ir.Index):
        yield from reads(expr.index)
    for operand in child_expressions(expr)[:1]:
        yield from _index_reads(operand)
