"""Checksums: a parser adds up words in one's complement, a deparser computes the complement of a sum."""

from __future__ import annotations

from softswitch.compiler import ir
from softswitch.compiler.errors import Unsupported
from softswitch.compiler.frontend import ast
from softswitch.compiler.lowering import types as t
from softswitch.compiler.lowering.emit import expression, flatten
from softswitch.compiler.lowering.tofino.hashing import hash_call
from softswitch.compiler.lowering.unit import Body
from softswitch.compiler.lowering.values import Nothing, Object, Run, Value

_SUM = ir.Bits(16)
_ONES = 0xFFFF


def call_checksum(body: Body, base: Object, method: str, values: list[Value], expr: ast.Call) -> Value:
    """Emit a method of ``Checksum``. Raises CompileError."""
    pos = expr.pos
    match method:
        case "add":
            _accumulate(body, base, flatten(body, values[0], pos), pos)
        case "subtract":
            _accumulate(body, base, tuple(map(_negative, _whole(flatten(body, values[0], pos), pos))), pos)
        case "verify":
            ones = ir.Const(_SUM, _ONES, pos)
            return Run(t.BOOL, ir.Binary(t.BOOL, "!=", _sum(base, pos), ones, pos))
        case "get":
            return Run(_SUM, _sum(base, pos))
        case "subtract_all_and_deposit":
            target = values[0]
            if not isinstance(target, Run) or target.expr.type != _SUM:
                raise Unsupported("a residual checksum that is no bit<16>", pos, "a variable of type bit<16>")
            body.out.append(ir.Assign(target.expr, _sum(base, pos), pos))
        case "update":
            return _computed(body, values, expr)
        case _:
            raise Unsupported(f"Checksum.{method}", pos)
    return Nothing()


def _sum(base: Object, pos: ir.Position) -> ir.Var:
    return ir.Var(_SUM, base.colour, pos)


def _accumulate(body: Body, base: Object, data: tuple[ir.Expr, ...], pos: ir.Position) -> None:
    total = _sum(base, pos)
    body.out.append(hash_call(total, "csum16", (total, *data), 16, pos))
    body.out.append(ir.Assign(total, ir.Unary(_SUM, "~", total, pos), pos))


def _whole(data: tuple[ir.Expr, ...], pos: ir.Position) -> tuple[ir.Expr, ...]:
    """Return data in whole words, which zero bits fill up at the end."""
    bits = sum(expr.type.width if isinstance(expr.type, ir.Bits) else 1 for expr in data)
    return (*data, ir.Const(ir.Bits(-bits % 16), 0, pos)) if bits % 16 else data


def _negative(expr: ir.Expr) -> ir.Expr:
    if isinstance(expr.type, ir.Bool):
        expr = ir.Cast(ir.Bits(1), expr, expr.pos)
    assert isinstance(expr.type, ir.Bits)
    if isinstance(expr, ir.Const):
        plain = ir.Bits(expr.type.width)
        return ir.Const(plain, ~expr.value & ((1 << plain.width) - 1), expr.pos)
    return ir.Unary(expr.type, "~", expr, expr.pos)


def _computed(body: Body, values: list[Value], expr: ast.Call) -> Value:
    variable = body.temporary(_SUM, "checksum", expr.pos)
    data = flatten(body, values[0], expr.args[0].value.pos)
    body.out.append(hash_call(variable, "csum16", data, 16, expr.pos))
    if len(values) == 1:
        return Run(_SUM, variable)
    instead = expression(body, values[1], expr.pos)
    zero = ir.Binary(t.BOOL, "==", variable, ir.Const(_SUM, 0, expr.pos), expr.pos)
    both = ir.Binary(t.BOOL, "&&", instead, zero, expr.pos)
    return Run(_SUM, ir.Mux(_SUM, both, ir.Const(_SUM, _ONES, expr.pos), variable, expr.pos))
