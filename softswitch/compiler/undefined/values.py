"""Knowledge of a scalar: bounds, excluded values, whether packets can influence it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from softswitch.compiler import ir
from softswitch.compiler.ir import fold

_MOST_HOLES = 16


class Range(NamedTuple):
    """Values low to high but those of `holes`; `trusted`: the program and the control plane alone decide."""

    low: int
    high: int
    trusted: bool = False
    holes: frozenset[int] = frozenset()

    @property
    def only(self) -> int | None:
        """The value, if there is but one."""
        return self.low if self.low == self.high else None

    def meet(self, low: int, high: int) -> Range | None:
        """Return the values that are also in low to high; None if there are none."""
        low, high = max(self.low, low), min(self.high, high)
        while low in self.holes:
            low += 1
        while high in self.holes:
            high -= 1
        return Range(low, high, self.trusted, self.holes) if low <= high else None

    def without(self, value: int) -> Range | None:
        """Return all values but one; None if there are none."""
        if len(self.holes) >= _MOST_HOLES and self.low < value < self.high:
            return self
        return Range(self.low, self.high, self.trusted, self.holes | {value}).meet(self.low, self.high)

    def join(self, other: Range) -> Range:
        """Return the values of both."""
        trusted = self.trusted and other.trusted
        low, high = min(self.low, other.low), max(self.high, other.high)
        return Range(low, high, trusted, self.holes & other.holes)


def anything(type_: ir.Type, *, trusted: bool = False) -> Range:
    """Return all values of a scalar type."""
    match type_:
        case ir.Bits():
            return Range(*fold.limits(type_), trusted)
        case ir.Enum(_, members):
            return Range(0, len(members) - 1, trusted)
        case _:
            return Range(0, 1, trusted)


def constant(value: int) -> Range:
    """Return one value of the program's own."""
    return Range(value, value, True)


def fitted(type_: ir.Type, low: int, high: int, *, trusted: bool) -> Range:
    """Return a result of arithmetic: all values of the type, if it may have wrapped around."""
    full = anything(type_, trusted=trusted)
    return Range(low, high, trusted) if full.low <= low and high <= full.high else full


def calculated(expr: ir.Binary, left: Range, right: Range) -> Range:
    """Return the values of an operation on numbers."""
    trusted = left.trusted and right.trusted
    full = anything(expr.type, trusted=trusted)
    a, b = left.only, right.only
    exact = a is not None and b is not None and expr.op not in ("/", "%", "++")
    if exact and isinstance(expr.type, ir.Bits) and right.low >= 0:
        known = (ir.Const(expr.type, left.low, expr.pos), ir.Const(expr.type, right.low, expr.pos))
        value = fold.bits(expr.op, expr.type, *known, expr.pos)
        return Range(value, value, trusted)
    if left.low < 0 or right.low < 0:
        return full
    match expr.op:
        case "+":
            return fitted(expr.type, left.low + right.low, left.high + right.high, trusted=trusted)
        case "-":
            return fitted(expr.type, left.low - right.high, left.high - right.low, trusted=trusted)
        case "*":
            return fitted(expr.type, left.low * right.low, left.high * right.high, trusted=trusted)
        case "&":
            return Range(0, min(left.high, right.high), trusted)
        case "|" | "^":
            return fitted(expr.type, 0, _all_ones(max(left.high, right.high)), trusted=trusted)
        case "%":
            return Range(0, min(left.high, right.high - 1), trusted) if right.low > 0 else full
        case "/":
            return Range(0, left.high // max(1, right.low), trusted)
        case ">>":
            return Range(0, left.high >> right.low, trusted)
        case "++":
            assert isinstance(expr.right.type, ir.Bits)
            width = expr.right.type.width
            return Range((left.low << width) + right.low, (left.high << width) + right.high, trusted)
        case _:
            return full


def _all_ones(value: int) -> int:
    return (1 << value.bit_length()) - 1


def compared(op: str, left: Range, right: Range) -> Range:
    """Return the outcome of a comparison of numbers: 0, 1 or either."""
    apart = left.high < right.low or right.high < left.low
    apart |= (right.only in left.holes) if right.only is not None else False
    same = left.only is not None and left.only == right.only
    sure: dict[str, tuple[bool, bool]] = {  # what makes it certainly true, certainly false
        "==": (same, apart),
        "!=": (apart, same),
        "<": (left.high < right.low, left.low >= right.high),
        "<=": (left.high <= right.low, left.low > right.high),
        ">": (left.low > right.high, left.high <= right.low),
        ">=": (left.low >= right.high, left.high < right.low),
    }
    true, false = sure[op]
    trusted = left.trusted and right.trusted
    return Range(int(true), int(not false), trusted)


def joined(values: Iterable[Range]) -> Range:
    """Return the values of all."""
    first, *others = values
    for other in others:
        first = first.join(other)
    return first
