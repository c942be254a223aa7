"""Methods of Tofino's externs, and its extern functions.

Of hashes, identity and XOR are expressions, a CRC is a call with its polynomial in its name.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from softswitch.compiler import ir
from softswitch.compiler.errors import CompileError, Unsupported
from softswitch.compiler.frontend import ast
from softswitch.compiler.ir.crc import STANDARD, Crc
from softswitch.compiler.lowering import types as t
from softswitch.compiler.lowering.architectures.tna.filters import execute_lpf, execute_math, execute_wred
from softswitch.compiler.lowering.architectures.tna.stateful import call_register, execute
from softswitch.compiler.lowering.convert import bits_cast, expression, flatten
from softswitch.compiler.lowering.extern_calls import extern_arguments, foreign_call, scalar
from softswitch.compiler.lowering.known_externs import lookahead
from softswitch.compiler.lowering.unit import Body, remark
from softswitch.compiler.lowering.values import (
    Nothing,
    Number,
    Object,
    Run,
    Value,
    Variable,
    constant,
    show,
    type_of,
)

_XORS = {"XOR8": 8, "XOR16": 16, "XOR32": 32}
_RANDOM = "CRC32"
"""A random hash function is one that nobody relies on; here it is always the same."""


@dataclass(frozen=True, slots=True)
class Colours:
    """What a meter's execute gives for green, yellow and red."""

    green: int = 0
    yellow: int = 1
    red: int = 3


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


def call_checksum(body: Body, base: Object, method: str, values: list[Value], expr: ast.CallExpr) -> Value:
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


def _computed(body: Body, values: list[Value], expr: ast.CallExpr) -> Value:
    variable = body.temporary(_SUM, "checksum", expr.pos)
    data = flatten(body, values[0], expr.args[0].value.pos)
    body.out.append(hash_call(variable, "csum16", data, 16, expr.pos))
    if len(values) == 1:
        return Run(_SUM, variable)
    instead = expression(body, values[1], expr.pos)
    zero = ir.Binary(t.BOOL, "==", variable, ir.Const(_SUM, 0, expr.pos), expr.pos)
    both = ir.Binary(t.BOOL, "&&", instead, zero, expr.pos)
    return Run(_SUM, ir.Mux(_SUM, both, ir.Const(_SUM, _ONES, expr.pos), variable, expr.pos))


_BYTE = ir.Bits(8)
_COUNT = ir.Bits(9, signed=True)
_COLOUR = ir.Bits(2)
_NO_PORT = 511

_Known = Mapping[str, t.Type]


def call_object(
    body: Body, base: Object, prototype: ast.Prototype, expr: ast.CallExpr, known: _Known
) -> Value:
    """Emit a call of a method. Raises CompileError."""
    what, method = base.type.name, prototype.name
    handler = _METHODS.get(what)
    if handler is None:
        return foreign_call(body, prototype, expr, f"{what}.{method}", known)
    values = extern_arguments(body, prototype, expr, f"{what}.{method}", known)
    return handler(body, base, method, values, expr)


def _place(expr: ast.CallExpr, number: int) -> ir.Position:
    return expr.args[number].value.pos if number < len(expr.args) else expr.pos


def _run(body: Body, base: Object, method: str, values: list[Value], expr: ast.CallExpr) -> Value:
    if method != "execute":
        raise Unsupported(f"{base.type.name}.{method}", expr.pos, "execute")
    return execute(body, base, values, expr)


def _hash(body: Body, base: Object, method: str, values: list[Value], expr: ast.CallExpr) -> Value:
    del method
    result, how = base.type.args[0], base.details
    assert isinstance(how, Hashing)
    if not isinstance(result, ir.Bits):
        raise Unsupported(f"a hash of type {t.describe(result)}", expr.pos, "bit<W>")
    data = flatten(body, values[0], _place(expr, 0))
    return Run(result, hashed(body, how, data, result.width, expr.pos))


def _random(body: Body, base: Object, method: str, values: list[Value], expr: ast.CallExpr) -> Value:
    del method, values
    result = base.type.args[0]
    if not isinstance(result, ir.Bits) or result.width > 64:
        raise Unsupported(f"random numbers of type {t.describe(result)}", expr.pos, "at most bit<64>")
    variable = body.temporary(result, "random", expr.pos)
    low, high = ir.Const(result, 0, expr.pos), ir.Const(result, (1 << result.width) - 1, expr.pos)
    body.out.append(ir.Extern("random", "", ((variable,), (low,), (high,)), expr.pos))
    return Run(result, variable)


def _count(body: Body, base: Object, method: str, values: list[Value], expr: ast.CallExpr) -> Value:
    del method
    index = scalar(body, values[0], _place(expr, 0), "the index")
    if len(values) > 1:
        remark("the adjustment of a counter's bytes is ignored", _place(expr, 1))
    body.out.append(ir.Extern("counter.count", base.name, ((index,),), expr.pos))
    return Nothing()


def _count_directly(body: Body, base: Object, method: str, values: list[Value], expr: ast.CallExpr) -> Value:
    del method, values
    body.out.append(ir.Extern("direct_counter.count", base.name, (), expr.pos))
    return Nothing()


def _meter(body: Body, base: Object, method: str, values: list[Value], expr: ast.CallExpr) -> Value:
    del method
    if len(values) > 1:
        remark("the meter is blind to the packet's colour, and takes its bytes as they are", _place(expr, 1))
    index = scalar(body, values[0], _place(expr, 0), "the index")
    variable = body.temporary(_COLOUR, "colour", expr.pos)
    body.out.append(ir.Extern("meter.execute_meter", base.name, ((variable,), (index,)), expr.pos))
    return _colour(base, variable, expr.pos)


def _meter_directly(body: Body, base: Object, method: str, values: list[Value], expr: ast.CallExpr) -> Value:
    del body, method
    if values:
        remark("the meter is blind to the packet's colour, and takes its bytes as they are", _place(expr, 0))
    return _colour(base, ir.Var(_COLOUR, base.colour, expr.pos), expr.pos)


def _colour(base: Object, found: ir.Expr, pos: ir.Position) -> Run:
    """Return the program's value of a colour: 0 green, 1 yellow, 2 red."""
    colours = base.details
    assert isinstance(colours, Colours)
    result: ir.Expr = ir.Const(_BYTE, colours.red, pos)
    for number, stands in ((1, colours.yellow), (0, colours.green)):
        same = ir.Binary(t.BOOL, "==", found, ir.Const(_COLOUR, number, pos), pos)
        result = ir.Mux(_BYTE, same, ir.Const(_BYTE, stands, pos), result, pos)
    return Run(_BYTE, result)


# --------------------------------------------------------------------------- parsers and deparsers


def _parser_counter(body: Body, base: Object, method: str, values: list[Value], expr: ast.CallExpr) -> Value:
    pos = expr.pos
    counter, zero = ir.Var(_COUNT, base.colour, pos), ir.Const(_COUNT, 0, pos)
    match method:
        case "is_zero":
            return Run(t.BOOL, ir.Binary(t.BOOL, "==", counter, zero, pos))
        case "is_negative":
            return Run(t.BOOL, ir.Binary(t.BOOL, "<", counter, zero, pos))
        case "set" if len(values) == 1:
            body.out.append(ir.Assign(counter, _counted(body, values[0], pos), pos))
        case "set" if len(values) == 5:
            body.out.append(ir.Assign(counter, _from_field(body, values, pos), pos))
        case "increment" | "decrement":
            step = _counted(body, values[0], pos)
            op = "+" if method == "increment" else "-"
            body.out.append(ir.Assign(counter, ir.Binary(_COUNT, op, counter, step, pos), pos))
        case _:
            raise Unsupported(
                f"ParserCounter.{method}", pos, "set, increment, decrement, is_zero, is_negative"
            )
    return Nothing()


def _counted(body: Body, value: Value, pos: ir.Position) -> ir.Expr:
    if isinstance(value, Number):
        return ir.Const(_COUNT, value.value & 0xFF, pos)
    return _cast(_COUNT, _cast(_BYTE, scalar(body, value, pos, "the count"), pos), pos)


def _from_field(body: Body, values: list[Value], pos: ir.Position) -> ir.Expr:
    """Return min(max, (field rotated right & mask) + add); mask 3 is of 4 ones, for example."""
    numbers = []
    for value in values[1:]:
        if not isinstance(value, Run) or not isinstance(value.expr, ir.Const):
            raise CompileError(f"{show(value)} in the setting of a counter", pos, "a constant")
        numbers.append(value.expr.value)
    maximum, rotate, mask, add = numbers
    field = _cast(_BYTE, scalar(body, values[0], pos, "the field"), pos)
    turned = field
    if rotate % 8:
        down = ir.Binary(_BYTE, ">>", field, ir.Const(_BYTE, rotate % 8, pos), pos)
        up = ir.Binary(_BYTE, "<<", field, ir.Const(_BYTE, 8 - rotate % 8, pos), pos)
        turned = ir.Binary(_BYTE, "|", down, up, pos)
    ones = (1 << (mask + 1)) - 1 if mask < 8 else mask
    kept = ir.Binary(_BYTE, "&", turned, ir.Const(_BYTE, ones & 0xFF, pos), pos)
    total = ir.Binary(_COUNT, "+", _cast(_COUNT, kept, pos), ir.Const(_COUNT, add & 0xFF, pos), pos)
    most = ir.Const(_COUNT, maximum, pos)
    return ir.Mux(_COUNT, ir.Binary(t.BOOL, ">", total, most, pos), most, total, pos)


def _cast(type_: ir.Bits, expr: ir.Expr, pos: ir.Position) -> ir.Expr:
    """Return a number in another width, with zero bits in front."""
    assert isinstance(expr.type, ir.Bits)
    plain = ir.Bits(type_.width)
    wide = expr if expr.type == plain else ir.Cast(plain, expr, pos)
    return wide if type_ == plain else bits_cast(type_, wide, pos)


def _priority(body: Body, base: Object, method: str, values: list[Value], expr: ast.CallExpr) -> Value:
    del body, base, method, values, expr
    return Nothing()


def _mirror(body: Body, base: Object, method: str, values: list[Value], expr: ast.CallExpr) -> Value:
    del base, method
    session = scalar(body, values[0], _place(expr, 0), "the session")
    data = _bytes(body, values[1:], expr, 1)
    body.out.append(ir.Extern("mirror", "", ((session,), data), expr.pos))
    return Nothing()


def _resubmit(body: Body, base: Object, method: str, values: list[Value], expr: ast.CallExpr) -> Value:
    del base, method
    body.out.append(ir.Extern("resubmit", "", (_bytes(body, values, expr, 0),), expr.pos))
    return Nothing()


def _bytes(body: Body, values: list[Value], expr: ast.CallExpr, number: int) -> tuple[ir.Expr, ...]:
    return flatten(body, values[0], _place(expr, number)) if values else ()


def _digest(body: Body, base: Object, method: str, values: list[Value], expr: ast.CallExpr) -> Value:
    del method
    data = flatten(body, values[0], _place(expr, 0), enums=True)
    body.out.append(ir.Extern("digest", base.name, (data,), expr.pos))
    return Nothing()


_METHODS: Mapping[str, Callable[[Body, Object, str, list[Value], ast.CallExpr], Value]] = {
    "Register": call_register,
    "RegisterParam": call_register,
    "RegisterAction": _run,
    "DirectRegisterAction": _run,
    "RegisterAction2": _run,
    "RegisterAction3": _run,
    "RegisterAction4": _run,
    "Hash": _hash,
    "Random": _random,
    "Counter": _count,
    "DirectCounter": _count_directly,
    "Meter": _meter,
    "DirectMeter": _meter_directly,
    "Lpf": execute_lpf,
    "DirectLpf": execute_lpf,
    "Wred": execute_wred,
    "DirectWred": execute_wred,
    "MathUnit": execute_math,
    "Checksum": call_checksum,
    "ParserCounter": _parser_counter,
    "ParserPriority": _priority,
    "Mirror": _mirror,
    "Resubmit": _resubmit,
    "Digest": _digest,
}

# --------------------------------------------------------------------------- functions


def call_function(body: Body, prototype: ast.Prototype, expr: ast.CallExpr, name: str) -> Value:
    """Emit a call of one of Tofino's extern functions. Raises CompileError."""
    if name == "port_metadata_unpack":
        return _port_metadata(body, expr)
    handler = _FUNCTIONS.get(name)
    if handler is None:
        body.unit.refuse(Unsupported(f"extern function {name!r}", expr.pos, ", ".join(_FUNCTIONS)))
        return foreign_call(body, prototype, expr, name, {})
    return handler(body, name, extern_arguments(body, prototype, expr, name), expr)


def _port_metadata(body: Body, expr: ast.CallExpr) -> Value:
    """Emit what reads the metadata of the port, and passes over it."""
    size = body.scope.root().lookup("PORT_METADATA_SIZE", expr.pos)
    assert isinstance(size, Variable)
    assert isinstance(size.value, Run)
    value = lookahead(body, expr)
    if isinstance(value, Run) and not isinstance(value.expr, ir.Var):
        variable = body.temporary(value.type, "port_metadata", expr.pos)
        body.out.append(ir.Assign(variable, value.expr, expr.pos))
        value = Run(value.type, variable)
    body.out.append(ir.Advance(size.value.expr, expr.pos))
    return value


def _extreme(body: Body, name: str, values: list[Value], expr: ast.CallExpr) -> Value:
    first = next((value for value in values if isinstance(value, Run)), None)
    if first is None or not isinstance(t.lowered(first.type), ir.Bits):
        raise CompileError(f"{name} of {show(values[0])}", expr.pos, "bit<W> or int<W>")
    left, right = (expression(body, value, _place(expr, i)) for i, value in enumerate(values))
    test = ir.Binary(t.BOOL, ">" if name == "max" else "<", left, right, expr.pos)
    scalar_type = t.lowered(first.type)
    assert isinstance(scalar_type, ir.Bits)
    return Run(first.type, ir.Mux(scalar_type, test, left, right, expr.pos))


def _size(body: Body, name: str, values: list[Value], expr: ast.CallExpr) -> Value:
    del body
    bits = t.width(type_of(values[0]))
    if bits is None:
        raise CompileError(f"{name} of {show(values[0])}", expr.pos, "a header or struct")
    return constant(t.BIT32, bits if name == "sizeInBits" else (bits + 7) // 8, expr.pos)


def _invalidate(body: Body, name: str, values: list[Value], expr: ast.CallExpr) -> Value:
    """Emit that a port is none to send to; of other fields that means nothing here."""
    del name
    target = values[0]
    is_port = (
        isinstance(target, Run) and target.expr.type == ir.Bits(9) and isinstance(target.expr, ir.Member)
    )
    if is_port:
        assert isinstance(target, Run)
        body.out.append(ir.Assign(target.expr, ir.Const(ir.Bits(9), _NO_PORT, expr.pos), expr.pos))
    else:
        remark("invalidate of something else than a port does nothing", expr.pos)
    return Nothing()


def _funnel_shift(body: Body, name: str, values: list[Value], expr: ast.CallExpr) -> Value:
    del name
    target, high, low, amount = values
    if not isinstance(target, Run) or not isinstance(amount, Number):
        raise CompileError("the amount of a shift is not known", expr.pos, "a number")
    type_ = t.lowered(target.type)
    assert isinstance(type_, ir.Bits)
    plain, wide = ir.Bits(type_.width), ir.Bits(2 * type_.width)
    both = ir.Binary(
        wide,
        "++",
        _cast(plain, expression(body, high, expr.pos), expr.pos),
        _cast(plain, expression(body, low, expr.pos), expr.pos),
        expr.pos,
    )
    moved = ir.Binary(wide, ">>", both, ir.Const(ir.Bits(32), amount.value, expr.pos), expr.pos)
    body.out.append(
        ir.Assign(target.expr, bits_cast(type_, ir.Cast(plain, moved, expr.pos), expr.pos), expr.pos)
    )
    return Nothing()


_FUNCTIONS: Mapping[str, Callable[[Body, str, list[Value], ast.CallExpr], Value]] = {
    "max": _extreme,
    "min": _extreme,
    "sizeInBits": _size,
    "sizeInBytes": _size,
    "invalidate": _invalidate,
    "funnel_shift_right": _funnel_shift,
}
