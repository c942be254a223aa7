"""Lower calls of methods of Tofino's externs, and of its extern functions.

Hashes by identity and XOR become expressions; a CRC becomes a ``hash`` call with the polynomial in the name
of the algorithm.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from softswitch.compiler import ir
from softswitch.compiler.errors import CompileError, Unsupported
from softswitch.compiler.ir.crc import STANDARD, Crc
from softswitch.compiler.lowering import types as t
from softswitch.compiler.lowering.architectures.tna.stateful import (
    call_arithmetic,
    call_register,
    execute,
    execute_filter,
    execute_math,
)
from softswitch.compiler.lowering.convert import bits_cast, expression, flatten
from softswitch.compiler.lowering.extern_calls import (
    ExternCall,
    MethodCall,
    hash_into,
    scalar,
)
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
"""The algorithm used for ``HashAlgorithm_t.RANDOM``: programs must not rely on a particular algorithm."""


@dataclass(frozen=True, slots=True)
class Colours:
    """The values that ``execute`` of a meter returns for green, yellow and red."""

    green: int = 0
    yellow: int = 1
    red: int = 3


@dataclass(frozen=True, slots=True)
class Hashing:
    """The algorithm of a hash: its name in HashAlgorithm_t and, if the name is CUSTOM, its CRC."""

    name: str
    crc: Crc | None = None


def hashed(body: Body, how: Hashing, data: Sequence[ir.Expr], width: int, pos: ir.Position) -> ir.Expr:
    """Return the hash of scalars as ``bit<width>``; for a CRC, emit the statement that computes it."""
    result = ir.Bits(width)
    if how.name == "IDENTITY":
        return _low_bits(data, width, pos)
    if how.name in _XORS:
        return ir.Cast(result, _xor(data, _XORS[how.name], pos), pos=pos)
    crc = how.crc or STANDARD.get(_RANDOM if how.name == "RANDOM" else how.name)
    if crc is None:
        raise Unsupported(f"HashAlgorithm_t.{how.name} without a polynomial", pos, "a CRCPolynomial")
    own = min(width, crc.width)
    variable = body.temporary(ir.Bits(own), "hash", pos)
    # pad to whole bytes in front; v1model's algorithms pad at the end
    if lacking := -sum(_unsigned(each)[1] for each in data) % 8:
        data = (ir.Const(ir.Bits(lacking), 0, pos=pos), *data)
    body.out.append(_hash_into(variable, crc.name, data, own, pos))
    return _repeated(variable, own, width, pos)


def _repeated(value: ir.Expr, width: int, wanted: int, pos: ir.Position) -> ir.Expr:
    """Return a value whose bits are repeated up to the width `wanted`.

    p4testgen's tests expect this of a hash that is wider than its CRC.
    """
    whole, filled = value, width
    while filled < wanted:
        more = min(width, wanted - filled)
        filled += more
        whole = ir.Binary(ir.Bits(filled), "++", _cut(value, more - 1, 0, pos), whole, pos=pos)
    return whole


def _hash_into(
    target: ir.Var, algorithm: str, data: Sequence[ir.Expr], width: int, pos: ir.Position
) -> ir.Extern:
    """Return the statement ``target = H(data)`` for a hash of `width` bits."""
    return hash_into(target, algorithm, data, ir.Const(ir.Bits(72), 1 << min(width, 64), pos=pos), pos)


def _unsigned(expr: ir.Expr) -> tuple[ir.Expr, int]:
    if isinstance(expr.type, ir.Bool):
        return ir.Cast(ir.Bits(1), expr, pos=expr.pos), 1
    assert isinstance(expr.type, ir.Bits)
    width = expr.type.width
    return (ir.Cast(ir.Bits(width), expr, pos=expr.pos) if expr.type.signed else expr), width


def _low_bits(data: Sequence[ir.Expr], width: int, pos: ir.Position) -> ir.Expr:
    """Return the last `width` bits of the concatenated values."""
    joined: ir.Expr | None = None
    filled = 0
    for expr in reversed(data):
        if filled >= width:
            break
        plain, bits = _unsigned(expr)
        if filled + bits > width:
            plain, bits = _cut(plain, width - filled - 1, 0, pos), width - filled
        filled += bits
        joined = plain if joined is None else ir.Binary(ir.Bits(filled), "++", plain, joined, pos=pos)
    if joined is None:
        return ir.Const(ir.Bits(width), 0, pos=pos)
    return joined if filled == width else ir.Cast(ir.Bits(width), joined, pos=pos)


def _xor(data: Sequence[ir.Expr], width: int, pos: ir.Position) -> ir.Expr:
    """Return the exclusive or of the words of the concatenated values.

    Words have `width` bits; the values are padded with zero bits at the end.
    """
    word = ir.Bits(width)
    total: ir.Expr = ir.Const(word, 0, pos=pos)
    at = 0
    for expr in data:
        plain, bits = _unsigned(expr)
        while bits:
            room = width - at
            taken = min(room, bits)
            part = (
                ir.Cast(word, _cut(plain, bits - 1, bits - taken, pos), pos=pos)
                if taken < width
                else (_cut(plain, bits - 1, bits - taken, pos))
            )
            if room > taken:
                part = ir.Binary(word, "<<", part, ir.Const(ir.Bits(8), room - taken, pos=pos), pos=pos)
            zero = isinstance(total, ir.Const)
            total = part if zero else ir.Binary(word, "^", total, part, pos=pos)
            at, bits = (at + taken) % width, bits - taken
    return total


def _cut(expr: ir.Expr, high: int, low: int, pos: ir.Position) -> ir.Expr:
    assert isinstance(expr.type, ir.Bits)
    if high - low + 1 == expr.type.width:
        return expr
    return ir.Slice(ir.Bits(high - low + 1), expr, high, low, pos=pos)


_SUM = ir.Bits(16)
_ONES = 0xFFFF


def _checksum(call: MethodCall) -> Value:
    pos = call.pos
    match call.name:
        case "add":
            _accumulate(call, flatten(call.body, call.values[0], pos))
        case "subtract":
            _accumulate(call, tuple(map(_negative, _whole(flatten(call.body, call.values[0], pos), pos))))
        case "verify":
            ones = ir.Const(_SUM, _ONES, pos=pos)
            return Run(t.BOOL, ir.Binary(t.BOOL, "!=", _sum(call.on, pos), ones, pos=pos))
        case "get":
            return Run(_SUM, _sum(call.on, pos))
        case "subtract_all_and_deposit":
            target = call.values[0]
            if not isinstance(target, Run) or target.expr.type != _SUM:
                raise Unsupported("a residual checksum that is no bit<16>", pos, "a variable of type bit<16>")
            call.body.out.append(ir.Assign(target.expr, _sum(call.on, pos), pos=pos))
        case "update":
            return _computed(call)
        case _:
            raise Unsupported(f"Checksum.{call.name}", pos)
    return Nothing()


def _sum(base: Object, pos: ir.Position) -> ir.Var:
    return ir.Var(_SUM, base.colour, pos=pos)


def _accumulate(call: MethodCall, data: tuple[ir.Expr, ...]) -> None:
    total = _sum(call.on, call.pos)
    call.body.out.append(_hash_into(total, "csum16", (total, *data), 16, call.pos))
    call.body.out.append(ir.Assign(total, ir.Unary(_SUM, "~", total, pos=call.pos), pos=call.pos))


def _whole(data: tuple[ir.Expr, ...], pos: ir.Position) -> tuple[ir.Expr, ...]:
    """Return data padded with zero bits at the end to whole 16-bit words."""
    bits = sum(expr.type.width if isinstance(expr.type, ir.Bits) else 1 for expr in data)
    return (*data, ir.Const(ir.Bits(-bits % 16), 0, pos=pos)) if bits % 16 else data


def _negative(expr: ir.Expr) -> ir.Expr:
    if isinstance(expr.type, ir.Bool):
        expr = ir.Cast(ir.Bits(1), expr, pos=expr.pos)
    assert isinstance(expr.type, ir.Bits)
    if isinstance(expr, ir.Const):
        plain = ir.Bits(expr.type.width)
        return ir.Const(plain, ~expr.value & ((1 << plain.width) - 1), pos=expr.pos)
    return ir.Unary(expr.type, "~", expr, pos=expr.pos)


def _computed(call: MethodCall) -> Value:
    pos = call.pos
    variable = call.body.temporary(_SUM, "checksum", pos)
    call.body.out.append(_hash_into(variable, "csum16", call.data(0), 16, pos))
    if len(call.values) == 1:
        return Run(_SUM, variable)
    instead = expression(call.body, call.values[1], pos)
    zero = ir.Binary(t.BOOL, "==", variable, ir.Const(_SUM, 0, pos=pos), pos=pos)
    both = ir.Binary(t.BOOL, "&&", instead, zero, pos=pos)
    return Run(_SUM, ir.Mux(_SUM, both, ir.Const(_SUM, _ONES, pos=pos), variable, pos=pos))


_BYTE = ir.Bits(8)
_COUNT = ir.Bits(9, signed=True)
_COLOUR = ir.Bits(2)
_NO_PORT = 511


def _run(call: MethodCall) -> Value:
    if call.name != "execute":
        raise Unsupported(f"{call.on.type.name}.{call.name}", call.pos, "execute")
    return execute(call)


def _hash(call: MethodCall) -> Value:
    result, how = call.on.type.args[0], call.on.details
    assert isinstance(how, Hashing)
    if not isinstance(result, ir.Bits):
        raise Unsupported(f"a hash of type {t.describe(result)}", call.pos, "bit<W>")
    return Run(result, hashed(call.body, how, call.data(0), result.width, call.pos))


def _random(call: MethodCall) -> Value:
    result, pos = call.on.type.args[0], call.pos
    if not isinstance(result, ir.Bits) or result.width > 64:
        raise Unsupported(f"random numbers of type {t.describe(result)}", pos, "at most bit<64>")
    variable = call.body.temporary(result, "random", pos)
    most = ir.Const(result, (1 << result.width) - 1, pos=pos)
    call.emit("random", (variable,), (ir.Const(result, 0, pos=pos),), (most,))
    return Run(result, variable)


def _count(call: MethodCall) -> Value:
    index = call.scalar(0, "the index")
    if len(call.values) > 1:
        remark("the adjustment of a counter's bytes is ignored", call.place(1))
    return call.emit("counter.count", (index,), instance=call.on.name)


_BLIND = "the meter ignores the packet's colour and the adjustment of its bytes"


def _meter(call: MethodCall) -> Value:
    if len(call.values) > 1:
        remark(_BLIND, call.place(1))
    index = call.scalar(0, "the index")
    variable = call.body.temporary(_COLOUR, "colour", call.pos)
    call.emit("meter.execute_meter", (variable,), (index,), instance=call.on.name)
    return _colour(call.on, variable, call.pos)


def _meter_directly(call: MethodCall) -> Value:
    if call.values:
        remark(_BLIND, call.place(0))
    return _colour(call.on, ir.Var(_COLOUR, call.on.colour, pos=call.pos), call.pos)


def _colour(base: Object, found: ir.Expr, pos: ir.Position) -> Run:
    """Return the value that the meter `base` returns for the colour `found` (0 green, 1 yellow, 2 red)."""
    colours = base.details
    assert isinstance(colours, Colours)
    result: ir.Expr = ir.Const(_BYTE, colours.red, pos=pos)
    for number, stands in ((1, colours.yellow), (0, colours.green)):
        same = ir.Binary(t.BOOL, "==", found, ir.Const(_COLOUR, number, pos=pos), pos=pos)
        result = ir.Mux(_BYTE, same, ir.Const(_BYTE, stands, pos=pos), result, pos=pos)
    return Run(_BYTE, result)


# --------------------------------------------------------------------------- parsers and deparsers


def _parser_counter(call: MethodCall) -> Value:
    pos = call.pos
    counter, zero = ir.Var(_COUNT, call.on.colour, pos=pos), ir.Const(_COUNT, 0, pos=pos)
    match call.name:
        case "is_zero":
            return Run(t.BOOL, ir.Binary(t.BOOL, "==", counter, zero, pos=pos))
        case "is_negative":
            return Run(t.BOOL, ir.Binary(t.BOOL, "<", counter, zero, pos=pos))
        case "set" if len(call.values) == 1:
            value = _counted(call)
        case "set" if len(call.values) == 5:
            value = _from_field(call)
        case "increment" | "decrement":
            value = ir.Binary(
                _COUNT, "+" if call.name == "increment" else "-", counter, _counted(call), pos=pos
            )
        case _:
            raise Unsupported(
                f"ParserCounter.{call.name}", pos, "set, increment, decrement, is_zero, is_negative"
            )
    call.body.out.append(ir.Assign(counter, value, pos=pos))
    return Nothing()


def _counted(call: MethodCall) -> ir.Expr:
    value, pos = call.values[0], call.pos
    if isinstance(value, Number):
        return ir.Const(_COUNT, value.value & 0xFF, pos=pos)
    return _cast(_COUNT, _cast(_BYTE, scalar(call.body, value, pos, "the count"), pos), pos)


def _from_field(call: MethodCall) -> ir.Expr:
    """Return the value to which ``ParserCounter.set`` sets the counter from a field.

    The mask has one bit more than its argument states: four one bits for the argument 3.
    """
    pos, numbers = call.pos, []
    for value in call.values[1:]:
        if not isinstance(value, Run) or not isinstance(value.expr, ir.Const):
            raise CompileError(f"{show(value)} cannot be an argument of ParserCounter.set", pos, "a constant")
        numbers.append(value.expr.value)
    maximum, rotate, mask, add = numbers
    ones = (1 << (mask + 1)) - 1 if mask < 8 else mask
    field = _cast(_BYTE, scalar(call.body, call.values[0], pos, "the field"), pos)
    args = {"field": field, "maximum": maximum, "rotate": rotate % 8, "ones": ones & 0xFF, "add": add & 0xFF}
    return call_arithmetic(call.body, "counter_of_field", args, pos).expr


def _cast(type_: ir.Bits, expr: ir.Expr, pos: ir.Position) -> ir.Expr:
    """Return a number converted to `type_`: cut off, or padded with zero bits in front."""
    plain = ir.Bits(type_.width)
    wide = expr if expr.type == plain else ir.Cast(plain, expr, pos=pos)
    return wide if type_ == plain else bits_cast(type_, wide, pos)


def _mirror(call: MethodCall) -> Value:
    session = call.scalar(0, "the session")
    data = flatten(call.body, call.values[1], call.place(1)) if call.values[1:] else ()
    return call.emit("mirror", (session,), data)


METHODS: Mapping[str, Callable[[MethodCall], Value]] = {
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
    "DirectCounter": lambda call: call.emit("direct_counter.count", instance=call.on.name),
    "Meter": _meter,
    "DirectMeter": _meter_directly,
    "Lpf": execute_filter,
    "DirectLpf": execute_filter,
    "Wred": execute_filter,
    "DirectWred": execute_filter,
    "MathUnit": execute_math,
    "Checksum": _checksum,
    "ParserCounter": _parser_counter,
    "ParserPriority": lambda call: Nothing(),
    "Mirror": _mirror,
    "Resubmit": lambda call: call.emit("resubmit", call.data(0) if call.values else ()),
    "Digest": lambda call: call.emit("digest", call.data(0, enums=True), instance=call.on.name),
}

# --------------------------------------------------------------------------- functions


def _port_metadata(call: ExternCall) -> Value:
    """Emit the read of the port's metadata and the advance past these bits; return the metadata."""
    body, expr = call.body, call.expr
    size = body.scope.root().lookup("PORT_METADATA_SIZE", expr.pos)
    assert isinstance(size, Variable)
    assert isinstance(size.value, Run)
    value = lookahead(body, expr)
    if isinstance(value, Run) and not isinstance(value.expr, ir.Var):
        value = Run(value.type, body.held(value.expr, "port_metadata", expr.pos))
    body.out.append(ir.Advance(size.value.expr, pos=expr.pos))
    return value


def _extreme(call: ExternCall) -> Value:
    first = next((value for value in call.values if isinstance(value, Run)), None)
    scalar_type = None if first is None else t.lowered(first.type)
    if first is None or not isinstance(scalar_type, ir.Bits):
        raise CompileError(f"{call.name} does not take {show(call.values[0])}", call.pos, "bit<W> or int<W>")
    left, right = (call.expression(number) for number in range(len(call.values)))
    test = ir.Binary(t.BOOL, ">" if call.name == "max" else "<", left, right, pos=call.pos)
    return Run(first.type, ir.Mux(scalar_type, test, left, right, pos=call.pos))


def _size(call: ExternCall) -> Value:
    bits = t.width(type_of(call.values[0]))
    if bits is None:
        raise CompileError(
            f"{call.name} does not take {show(call.values[0])}", call.pos, "a header or struct"
        )
    return constant(t.BIT32, bits if call.name == "sizeInBits" else (bits + 7) // 8, call.pos)


def _invalidate(call: ExternCall) -> Value:
    """Emit the assignment of an invalid port number to the argument, a field of type ``bit<9>``.

    For any other argument, warn that the call has no effect.
    """
    target, pos = call.values[0], call.pos
    if isinstance(target, Run) and target.expr.type == ir.Bits(9) and isinstance(target.expr, ir.Member):
        call.body.out.append(ir.Assign(target.expr, ir.Const(ir.Bits(9), _NO_PORT, pos=pos), pos=pos))
    else:
        remark("invalidate has no effect here: its argument is not a port", pos)
    return Nothing()


def _funnel_shift(call: ExternCall) -> Value:
    target, high, low, amount = call.values
    pos = call.pos
    if not isinstance(target, Run) or not isinstance(amount, Number):
        raise CompileError("the amount of the shift is not known at compile time", pos, "a number")
    type_ = t.lowered(target.type)
    assert isinstance(type_, ir.Bits)
    plain, wide = ir.Bits(type_.width), ir.Bits(2 * type_.width)
    left, right = (_cast(plain, expression(call.body, half, pos), pos) for half in (high, low))
    both = ir.Binary(wide, "++", left, right, pos=pos)
    moved = ir.Binary(wide, ">>", both, ir.Const(ir.Bits(32), amount.value, pos=pos), pos=pos)
    call.body.out.append(
        ir.Assign(target.expr, bits_cast(type_, ir.Cast(plain, moved, pos=pos), pos), pos=pos)
    )
    return Nothing()


FUNCTIONS: Mapping[str, Callable[[ExternCall], Value]] = {
    "max": _extreme,
    "min": _extreme,
    "sizeInBits": _size,
    "sizeInBytes": _size,
    "invalidate": _invalidate,
    "funnel_shift_right": _funnel_shift,
    "port_metadata_unpack": _port_metadata,
}
