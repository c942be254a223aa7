"""Keysets: the patterns of select cases and table entries."""

from __future__ import annotations

from softswitch.compiler import ir
from softswitch.compiler.errors import CompileError, Unsupported
from softswitch.compiler.frontend import ast
from softswitch.compiler.ir import fold
from softswitch.compiler.lowering import types as t
from softswitch.compiler.lowering.expressions.check import known
from softswitch.compiler.lowering.unit import Body
from softswitch.compiler.lowering.values import Run, show

ANY = ir.Pattern("any")


def pattern(body: Body, expr: ast.Expr, type_: t.Type) -> ir.Pattern:
    """Return one component of a keyset for values of `type_`. Raises CompileError."""
    match expr:
        case ast.DontCare() | ast.Default():
            return ANY
        case ast.Mask(value_expr, mask_expr):
            bits = _bits(type_, expr.pos)
            mask = _constant(body, mask_expr, bits) & _all_ones(bits)
            value = _constant(body, value_expr, bits) & mask
            if mask == 0:
                return ANY
            if mask == _all_ones(bits):
                return ir.Pattern("exact", fold.wrap(bits, value))
            return ir.Pattern("mask", value, mask)
        case ast.Range(low_expr, high_expr):
            bits = _bits(type_, expr.pos)
            low, high = _constant(body, low_expr, bits), _constant(body, high_expr, bits)
            if low > high:
                raise CompileError(f"the range {low} .. {high} is empty", expr.pos, "the smaller value first")
            return ir.Pattern("range", low, high)
        case _:
            return ir.Pattern("exact", _constant(body, expr, type_))


def _bits(type_: t.Type, pos: ir.Position) -> ir.Bits:
    bits = t.lowered(type_)
    if isinstance(bits, ir.Bits):
        return bits
    raise CompileError(f"a mask or range for {t.describe(type_)}", pos, "a value of bit<W> or int<W>")


def _constant(body: Body, expr: ast.Expr, type_: t.Type) -> int:
    if isinstance(expr, ast.Call) and isinstance(expr.callee, ast.Name):
        raise CompileError("a call in a keyset", expr.pos, "a compile-time constant")
    value = known(body, expr, type_, "the keyset")
    if isinstance(value, Run) and isinstance(value.expr, ir.Const):
        return value.expr.value
    raise Unsupported(f"a keyset of {show(value)}", expr.pos, "a scalar")


def _all_ones(type_: ir.Bits) -> int:
    return (1 << type_.width) - 1


def entry_pattern(body: Body, expr: ast.Expr, key: ir.Key, type_: t.Type) -> ir.Pattern:
    """Return one component of a table entry, in the form that the key's match kind has."""
    found = pattern(body, expr, type_)
    allowed = {
        "exact": ("exact",),
        "optional": ("exact", "any"),
        "lpm": ("exact", "mask", "any"),
        "ternary": ("exact", "mask", "any"),
        "range": ("exact", "range", "any"),
    }[key.match]
    if found.kind not in allowed:
        what = {"any": "don't care", "mask": "a mask", "range": "a range"}[found.kind]
        raise CompileError(
            f"{what} for {key.match} key {key.name!r}", expr.pos, " or ".join(_WRITTEN[k] for k in allowed)
        )
    scalar = key.expr.type
    full = _all_ones(scalar) if isinstance(scalar, ir.Bits) else 1
    if found.kind == "exact" and key.match in ("lpm", "ternary"):
        return ir.Pattern("mask", found.value & full, full)
    if found.kind == "exact" and key.match == "range":
        return ir.Pattern("range", found.value, found.value)
    if key.match == "lpm" and found.kind == "mask" and not _is_prefix(found.mask, full):
        raise CompileError(f"{found.mask:#x} is no prefix mask", expr.pos, "ones from the left, then zeros")
    return found


_WRITTEN = {"exact": "a value", "mask": "value &&& mask", "range": "low .. high", "any": "_"}


def _is_prefix(mask: int, full: int) -> bool:
    zeros = full ^ mask
    return zeros & (zeros + 1) == 0
