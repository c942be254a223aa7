"""Hashes of Tofino: identity and XOR are expressions, a CRC is a call with its polynomial in its name."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from softswitch.compiler import ir
from softswitch.compiler.errors import Unsupported
from softswitch.compiler.frontend import ast
from softswitch.compiler.ir.crc import STANDARD, Crc
from softswitch.compiler.lowering import types as t
from softswitch.compiler.lowering.emit import expression, flatten
from softswitch.compiler.lowering.unit import Body
from softswitch.compiler.lowering.values import Nothing, Object, Run, Value

_XORS = {"XOR8": 8, "XOR16": 16, "XOR32": 32}
_RANDOM = "CRC32"
"""A random hash function is one that nobody relies on; here it is always the same."""


@dataclass(frozen=True, slots=True)
class Hashing:
    """The algorithm of a hash: its name in HashAlgorithm_t, and the CRC of a CUSTOM one."""

    name: str
    crc: Crc | None = None


def hashed(body: Body, how: Hashing, data: Sequence[ir.Expr], width: int, pos: ir.Position) -> ir.Expr:
    """Return the hash of scalars as ``bit<width>``; a CRC is computed by a statement that is emitted."""
    result = ir.Bits(width)
    if how.name == "IDENTITY":
        return _low_bits(data, width, pos)
    if how.name in _XORS:
        return ir.Cast(result, _xor(data, _XORS[how.name], pos), pos)
    crc = how.crc or STANDARD.get(_RANDOM if how.name == "RANDOM" else how.name)
    if crc is None:
        raise Unsupported(f"HashAlgorithm_t.{how.name} without a polynomial", pos, "a CRCPolynomial")
    own = min(width, crc.width)
    variable = body.temporary(ir.Bits(own), "hash", pos)
    # zeros come first where the values are no whole bytes; v1model's algorithms have them last
    if lacking := -sum(_unsigned(each)[1] for each in data) % 8:
        data = (ir.Const(ir.Bits(lacking), 0, pos), *data)
    body.out.append(hash_call(variable, crc.name, data, own, pos))
    return _repeated(variable, own, width, pos)


def _repeated(value: ir.Expr, width: int, wanted: int, pos: ir.Position) -> ir.Expr:
    """Return a value's bits again and again up to a width, as p4testgen's tests have a CRC that is wider."""
    whole, have = value, width
    while have < wanted:
        more = min(width, wanted - have)
        have += more
        whole = ir.Binary(ir.Bits(have), "++", _cut(value, more - 1, 0, pos), whole, pos)
    return whole


def hash_call(
    target: ir.Var, algorithm: str, data: Sequence[ir.Expr], width: int, pos: ir.Position
) -> ir.Extern:
    """Return the statement ``target = H(data)``, by the name of one of the back ends' algorithms."""
    kind = ir.Const(ir.Enum("HashAlgorithm", (algorithm,)), 0, pos)
    limit = ir.Const(ir.Bits(72), 1 << min(width, 64), pos)
    base = ir.Const(ir.Bits(32), 0, pos)
    return ir.Extern("hash", "", ((target,), (kind,), (base,), tuple(data), (limit,)), pos)


def _unsigned(expr: ir.Expr) -> tuple[ir.Expr, int]:
    if isinstance(expr.type, ir.Bool):
        return ir.Cast(ir.Bits(1), expr, expr.pos), 1
    assert isinstance(expr.type, ir.Bits)
    width = expr.type.width
    return (ir.Cast(ir.Bits(width), expr, expr.pos) if expr.type.signed else expr), width


def _low_bits(data: Sequence[ir.Expr], width: int, pos: ir.Position) -> ir.Expr:
    """Return the last `width` bits of the values in a row."""
    joined: ir.Expr | None = None
    have = 0
    for expr in reversed(data):
        if have >= width:
            break
        plain, bits = _unsigned(expr)
        if have + bits > width:
            plain, bits = _cut(plain, width - have - 1, 0, pos), width - have
        have += bits
        joined = plain if joined is None else ir.Binary(ir.Bits(have), "++", plain, joined, pos)
    if joined is None:
        return ir.Const(ir.Bits(width), 0, pos)
    return joined if have == width else ir.Cast(ir.Bits(width), joined, pos)


def _xor(data: Sequence[ir.Expr], width: int, pos: ir.Position) -> ir.Expr:
    """Return the exclusive or of the words of the values in a row, which zero bits fill up at the end."""
    word = ir.Bits(width)
    total: ir.Expr = ir.Const(word, 0, pos)
    at = 0
    for expr in data:
        plain, bits = _unsigned(expr)
        while bits:
            room = width - at
            taken = min(room, bits)
            part = (
                ir.Cast(word, _cut(plain, bits - 1, bits - taken, pos), pos)
                if taken < width
                else (_cut(plain, bits - 1, bits - taken, pos))
            )
            if room > taken:
                part = ir.Binary(word, "<<", part, ir.Const(ir.Bits(8), room - taken, pos), pos)
            zero = isinstance(total, ir.Const)
            total = part if zero else ir.Binary(word, "^", total, part, pos)
            at, bits = (at + taken) % width, bits - taken
    return total


def _cut(expr: ir.Expr, high: int, low: int, pos: ir.Position) -> ir.Expr:
    assert isinstance(expr.type, ir.Bits)
    if high - low + 1 == expr.type.width:
        return expr
    return ir.Slice(ir.Bits(high - low + 1), expr, high, low, pos)


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
