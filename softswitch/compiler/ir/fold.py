"""Arithmetic at compile time, on canonical values of the IR and on ``int``."""

from __future__ import annotations

from collections.abc import Callable

from softswitch.compiler import ir
from softswitch.compiler.errors import CompileError

_MAX_SHIFT = 1 << 16
MAX_INT_BITS = 14_000
"""Maximum number of bits of a constant of type ``int``. Python refuses to print much longer numbers."""


def wrap(type_: ir.Bits, value: int) -> int:
    """Return the canonical value of `type_` that is congruent to `value`."""
    value &= (1 << type_.width) - 1
    if type_.signed and value >> (type_.width - 1):
        value -= 1 << type_.width
    return value


def limits(type_: ir.Bits | ir.Bool) -> tuple[int, int]:
    """Return the smallest and the largest value of a type."""
    signed = isinstance(type_, ir.Bits) and type_.signed
    half = 1 << (ir.width_of(type_) - 1)
    return (-half, half - 1) if signed else (0, 2 * half - 1)


PLAIN: dict[str, Callable[[int, int], int]] = {
    "+": lambda a, b: a + b,
    "-": lambda a, b: a - b,
    "*": lambda a, b: a * b,
    "&": lambda a, b: a & b,
    "|": lambda a, b: a | b,
    "^": lambda a, b: a ^ b,
}

COMPARISONS: dict[str, Callable[[int, int], bool]] = {
    "==": lambda a, b: a == b,
    "!=": lambda a, b: a != b,
    "<": lambda a, b: a < b,
    "<=": lambda a, b: a <= b,
    ">": lambda a, b: a > b,
    ">=": lambda a, b: a >= b,
}


def compare(op: str, left: int, right: int) -> int:
    """Return the outcome of a comparison, 0 or 1."""
    return int(COMPARISONS[op](left, right))


def bounded(value: int, pos: ir.Position) -> int:
    """Return `value`, an ``int``. Raises CompileError if it has more than `MAX_INT_BITS` bits."""
    if value.bit_length() > MAX_INT_BITS:
        raise CompileError(f"a number of {value.bit_length()} bits", pos, f"at most {MAX_INT_BITS} bits")
    return value


def arithmetic(op: str, left: int, right: int, pos: ir.Position) -> int:
    """Return the exact value of an operation on ``int``. Raises CompileError if P4 defines no value."""
    if op in PLAIN:
        return PLAIN[op](left, right)
    if op in ("/", "%"):
        if right == 0:
            raise CompileError(f"{left} {op} 0 has no value", pos, "a divisor other than 0")
        if left < 0 or right < 0:
            raise CompileError(
                f"{left} {op} {right} is undefined in P4", pos, "operands that are not negative"
            )
        return left // right if op == "/" else left % right
    if not 0 <= right <= _MAX_SHIFT:
        raise CompileError(f"cannot shift by {right} bits", pos, f"0 to {_MAX_SHIFT}")
    return left << right if op == "<<" else left >> right


def bits(op: str, type_: ir.Bits, left: ir.Const, right: ir.Const, pos: ir.Position) -> int:
    """Return the value, wrapped or saturated to `type_`, of an operation on constants of known width.

    Raises CompileError for a division by zero.
    """
    a, b = left.value, right.value
    match op:
        case "|+|" | "|-|":
            low, high = limits(type_)
            return min(max(a + b if op == "|+|" else a - b, low), high)
        case "++":
            assert isinstance(right.type, ir.Bits)
            return wrap(type_, a << right.type.width | (b & ((1 << right.type.width) - 1)))
        case "<<" | ">>":
            # Shifting by the width or more is defined: zero, or only the sign, remains.
            return wrap(type_, arithmetic(op, a, min(b, type_.width), pos))
        case _:
            return wrap(type_, arithmetic(op, a, b, pos))
