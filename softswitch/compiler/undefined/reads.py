"""Reads of possibly undefined values in expressions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import assert_never

from softswitch.compiler import ir
from softswitch.compiler.ir.text import written
from softswitch.compiler.undefined.conditions import assume
from softswitch.compiler.undefined.state import State


@dataclass(frozen=True, slots=True)
class Finding:
    """A place where the program's outcome depends on something undefined."""

    message: str
    pos: ir.Position

    def __str__(self) -> str:
        return f"{self.pos}: {self.message}"


class Reader:
    """Collects what is read on all paths, each finding once."""

    def __init__(self) -> None:
        self.found: dict[Finding, None] = {}

    def reads(self, expr: ir.Expr, state: State, *, copied: bool = False) -> None:
        """Report what `expr` reads that is undefined; not a value that is only copied."""
        match expr:
            case ir.Const() | ir.Lookahead() | ir.PacketLength() | ir.LastIndex():
                pass
            case ir.Var() | ir.Member():
                self._reads_place(expr, state, copied=copied)
            case ir.Index() | ir.Next() | ir.Last():
                self.indices(expr, state)
            case ir.IsValid(header=header):
                self.indices(header, state)
            case ir.Slice(base=inner) | ir.Unary(operand=inner) | ir.Cast(operand=inner):
                self.reads(inner, state)
            case ir.Binary(op="&&" | "||", left=left, right=right):
                self.reads(left, state)
                for where in assume(state.copy(), left, expr.op == "&&"):
                    self.reads(right, where)
            case ir.Binary(left=left, right=right):
                self.reads(left, state)
                self.reads(right, state)
            case ir.Mux(condition=condition, then=then, otherwise=otherwise):
                self.reads(condition, state)
                for part, holds in ((then, True), (otherwise, False)):
                    if not isinstance(part, ir.Const):
                        for where in assume(state.copy(), condition, holds):
                            self.reads(part, where)
            case _:
                assert_never(expr)

    def _reads_place(self, expr: ir.Var | ir.Member, state: State, *, copied: bool) -> None:
        if isinstance(expr.type, ir.Struct | ir.Header | ir.Stack):
            return
        self.indices(expr, state)
        if (
            isinstance(expr, ir.Member)
            and isinstance(expr.base.type, ir.Header)
            and not state.is_valid(expr.base)
        ):
            self.report(f"{written(expr)} is read, and {written(expr.base)} may be invalid", expr.pos)
            return
        if not copied and state.unset_at(expr) is not None:
            self.report(f"{written(expr)} is read, and nothing has set it", expr.pos)

    def indices(self, expr: ir.Expr, state: State) -> None:
        """Report the indices of stacks in a path that may be out of range."""
        match expr:
            case ir.Member(base=base) | ir.Slice(base=base) | ir.Next(base=base) | ir.Last(base=base):
                self.indices(base, state)
            case ir.Index(base=base, index=index):
                self.indices(base, state)
                self.reads(index, state)
                assert isinstance(base.type, ir.Stack)
                self.bounded(index, base.type.size, written(base), expr.pos, state)
            case _:
                pass

    def report(self, message: str, pos: ir.Position) -> None:
        """Note a finding."""
        self.found[Finding(message, pos)] = None

    def bounded(self, index: ir.Expr, size: int, name: str, pos: ir.Position, state: State) -> None:
        """Report an index that may not be below `size`."""
        value = state.value(index)
        if not value.trusted and not (value.low >= 0 and value.high < size):
            self.report(f"{name} has {size} cells, and the index may be up to {value.high}", pos)
        elif value.low >= size:
            self.report(f"{name} has {size} cells, and the index is at least {value.low}", pos)


def shown(place: str) -> str:
    """Return a place as the source has it."""
    return place.replace("/[", "[").replace("/", ".")
