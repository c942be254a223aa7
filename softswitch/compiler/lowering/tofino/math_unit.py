"""`MathUnit`: an approximation of powers and reciprocals that a register's action may use.

The four leading bits of a number x choose an entry of a table, which is then shifted by x's exponent: with
x = i/8 * 2**e, i the leading bits, the result is ``table[i] * 2**(scale + e * 2**shift)``, the exponent
negated by `invert`. For square roots e must be even; an odd one takes three leading bits and the next e.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import floor, log2

from softswitch.compiler import ir
from softswitch.compiler.frontend import ast
from softswitch.compiler.lowering import types as t
from softswitch.compiler.lowering.calls.extern_calls import scalar
from softswitch.compiler.lowering.expressions.convert import bits_cast
from softswitch.compiler.lowering.unit import Body
from softswitch.compiler.lowering.values import Object, Run, Value

_ENTRIES = 16
_SCALES = range(-32, 32)
_INPUT = ir.Bits(32)
_EXPONENT = ir.Bits(8)  # in two's complement: -94 to 93
_RESULT = ir.Bits(64)


@dataclass(frozen=True, slots=True)
class MathTable:
    """What a math unit is set to: `shift` is -1 (roots), 0 or 1 (squares); `entries` by leading bits."""

    invert: bool
    shift: int
    scale: int
    entries: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class _Operation:
    invert: bool
    shift: int
    of: Callable[[float], float]


_OPERATIONS: Mapping[str, _Operation] = {
    "MUL": _Operation(False, 0, lambda x: x),
    "SQR": _Operation(False, 1, lambda x: x * x),
    "SQRT": _Operation(False, -1, lambda x: x**0.5),
    "DIV": _Operation(True, 0, lambda x: 1 / x),
    "RSQR": _Operation(True, 1, lambda x: 1 / (x * x)),
    "RSQRT": _Operation(True, -1, lambda x: x**-0.5),
}


def table_of(operation: str, factor: float) -> MathTable:
    """Return the table of ``factor * operation(x)``, with the largest entries of 8 bits that there can be."""
    op = _OPERATIONS[operation]
    values = {i: factor * op.of(i / 8) for i in range(4 if op.shift < 0 else 8, _ENTRIES)}
    most = max(values.values())
    scale = floor(log2(most)) - 7 if most > 0 else 0
    scale = min(max(scale, _SCALES.start), _SCALES.stop - 1)
    entries = tuple(min(round(values.get(i, 0) * 2.0**-scale), 255) for i in range(_ENTRIES))
    return MathTable(op.invert, op.shift, scale, entries)


def execute_math(body: Body, base: Object, method: str, values: list[Value], expr: ast.Call) -> Value:
    """Emit what a math unit makes of a number. Raises CompileError."""
    del method
    unit, result, pos = base.details, base.type.args[0], expr.pos
    assert isinstance(unit, MathTable)
    assert isinstance(result, ir.Bits)
    entry, exponent = _normalised(body, _plain(scalar(body, values[0], pos, "x"), pos), unit.shift, pos)
    power = exponent
    if unit.shift:
        power = _op("<<" if unit.shift > 0 else ">>", exponent, 1, pos)
    if unit.invert:
        power = ir.Binary(_EXPONENT, "-", ir.Const(_EXPONENT, 0, pos), power, pos)
    shift = body.temporary(_EXPONENT, "shift", pos)
    body.out.append(ir.Assign(shift, _op("+", power, unit.scale % 256, pos), pos))
    found = ir.Cast(_RESULT, _chosen(unit.entries, entry, pos), pos)
    negative = ir.Binary(t.BOOL, ">=", shift, ir.Const(_EXPONENT, 128, pos), pos)
    down = ir.Binary(_EXPONENT, "-", ir.Const(_EXPONENT, 0, pos), shift, pos)
    small = ir.Binary(_RESULT, ">>", found, down, pos)
    large = ir.Binary(_RESULT, "<<", found, shift, pos)
    total = ir.Mux(_RESULT, negative, small, large, pos)
    return Run(result, bits_cast(result, total, pos))


def _normalised(body: Body, number: ir.Expr, shift: int, pos: ir.Position) -> tuple[ir.Expr, ir.Expr]:
    """Emit the search for the leading one; return the entry's number (32 bits) and the exponent (8 bits)."""
    rest, exponent = body.temporary(_INPUT, "rest", pos), body.temporary(_EXPONENT, "exponent", pos)
    body.out += [ir.Assign(rest, number, pos), ir.Assign(exponent, ir.Const(_EXPONENT, 31, pos), pos)]
    for step in (16, 8, 4, 2, 1):
        free = ir.Binary(t.BOOL, "<", rest, ir.Const(_INPUT, 1 << (32 - step), pos), pos)
        moved = ir.Assign(rest, _op("<<", rest, step, pos), pos)
        less = ir.Assign(exponent, _op("-", exponent, step, pos), pos)
        body.out.append(ir.If(free, (moved, less), (), pos))
    body.out.append(ir.Assign(rest, _op(">>", rest, 28, pos), pos))
    if shift < 0:
        odd = ir.Binary(t.BOOL, "==", _op("&", exponent, 1, pos), ir.Const(_EXPONENT, 1, pos), pos)
        halved = ir.Assign(rest, _op(">>", rest, 1, pos), pos)
        even = ir.Assign(exponent, _op("+", exponent, 1, pos), pos)
        body.out.append(ir.If(odd, (halved, even), (), pos))
    return rest, exponent


def _chosen(entries: Sequence[int], number: ir.Expr, pos: ir.Position) -> ir.Expr:
    """Return the entry of this number: a tree of choices by its bits, the highest first."""
    if len(entries) == 1:
        return ir.Const(ir.Bits(8), entries[0], pos)
    half = len(entries) // 2
    bit = _op("&", number, half, pos)
    clear = ir.Binary(t.BOOL, "==", bit, ir.Const(_INPUT, 0, pos), pos)
    low, high = (_chosen(part, number, pos) for part in (entries[:half], entries[half:]))
    return ir.Mux(ir.Bits(8), clear, low, high, pos)


def _op(op: str, left: ir.Expr, number: int, pos: ir.Position) -> ir.Expr:
    assert isinstance(left.type, ir.Bits)
    return ir.Binary(left.type, op, left, ir.Const(left.type, number, pos), pos)


def _plain(number: ir.Expr, pos: ir.Position) -> ir.Expr:
    """Return a number as 32 bits without a sign."""
    assert isinstance(number.type, ir.Bits)
    plain = bits_cast(ir.Bits(number.type.width), number, pos) if number.type.signed else number
    return bits_cast(_INPUT, plain, pos)
