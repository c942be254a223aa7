"""Lower instances of Tofino's externs: add them to the program, and keep data for calls of their methods."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from softswitch.compiler import ir
from softswitch.compiler.errors import CompileError, Unsupported
from softswitch.compiler.frontend import ast
from softswitch.compiler.ir.crc import Crc
from softswitch.compiler.lowering import types as t
from softswitch.compiler.lowering.architectures.tna.calls import Colours, Hashing
from softswitch.compiler.lowering.architectures.tna.stateful import (
    Filter,
    MathTable,
    RegisterAction,
    RegisterCells,
    direct_cells,
    initial_values,
    make_filter_registers,
    table_of,
)
from softswitch.compiler.lowering.check import known
from softswitch.compiler.lowering.extern_calls import (
    Making,
    leaves,
    make_counter,
    make_direct_counter,
    make_direct_meter,
    make_meter,
    make_profile,
    plain_object,
)
from softswitch.compiler.lowering.instances import make_register
from softswitch.compiler.lowering.types import data_type
from softswitch.compiler.lowering.unit import remark
from softswitch.compiler.lowering.values import Object, Scope, number_of

_COUNT = ir.Bits(9, signed=True)
_PARTIES = ("red", "yellow", "green")


# --------------------------------------------------------------------------- registers


def _register(making: Making) -> Object:
    made, body = making.object, making.body
    type_ = made.type.args[0]
    first = known(body, making.args["initial_value"], type_) if "initial_value" in making.args else None
    initial = initial_values(first, type_, making.decl.pos)
    size = making.size() if "size" in making.args else 1
    make_register(body, type_, size, made.name, making.decl, making.annotations, initial)
    return replace(made, details=RegisterCells(type_))


def _direct_register(making: Making) -> Object:
    made, body = making.object, making.body
    type_ = made.type.args[0]
    first = known(body, making.args["initial_value"], type_) if "initial_value" in making.args else None
    lowered = t.stored(type_)
    made = replace(made, colour=body.unit.variable(f"{made.name}.cell", lowered))
    return replace(made, details=direct_cells(made, type_, initial_values(first, type_, making.decl.pos)))


def _action(making: Making) -> Object:
    functions = {
        item.prototype.name: item
        for item in making.decl.initializer or ()
        if isinstance(item, ast.FunctionDecl)
    }
    for name in functions:
        if name != "apply":
            raise Unsupported(f"{name!r} as a method of a register's action", functions[name].pos, "apply")
    register = making.other("reg", "Register", "DirectRegister")
    making.body.unit.instantiated.add(id(functions["apply"]))
    details = RegisterAction(register, functions["apply"], Scope(making.body.scope))
    return replace(making.object, details=details)


# --------------------------------------------------------------------------- hashes


def _polynomial(making: Making) -> Object:
    type_ = making.object.type.args[0]
    if not isinstance(type_, ir.Bits) or not 8 <= type_.width <= 64:
        raise Unsupported(f"a CRC of {t.describe(type_)}", making.decl.pos, "bit<8> to bit<64>")
    crc = Crc(
        type_.width,
        making.number("coeff") & ((1 << type_.width) - 1),
        making.number("init"),
        making.number("xor"),
        reflected=bool(making.number("reversed")),
    )
    return replace(making.object, details=crc)


def _hash(making: Making) -> Object:
    name = making.member("algo", "the algorithm")
    crc = making.other("poly", "CRCPolynomial").details if "poly" in making.args else None
    assert crc is None or isinstance(crc, Crc)
    return replace(making.object, details=Hashing(name, crc))


# --------------------------------------------------------------------------- counters and meters


def _colours(making: Making) -> Colours:
    if "red" not in making.args:
        return Colours()
    return Colours(**{name: making.number(name) for name in _PARTIES})


def _meter(making: Making) -> Object:
    return replace(make_meter(making), details=_colours(making))


def _direct_meter(making: Making) -> Object:
    return replace(make_direct_meter(making), details=_colours(making))


# --------------------------------------------------------------------------- filters and math units


def _filter(function: str) -> Callable[[Making], Object]:
    """Return a function that makes a filter with this arithmetic; an indirect filter gets registers."""

    def make(making: Making) -> Object:
        results = [making.number(name) for name in ("drop_value", "no_drop_value") if name in making.args]
        what = Filter(function, *results)
        if "size" in making.args:
            make_filter_registers(making.body, what, making.size(), making.decl, making.object.name)
        else:
            message = f"no control plane can configure the direct filter {making.object.name!r}"
            remark(message, making.decl.pos)
        return replace(making.object, details=what)

    return make


def _math_unit(making: Making) -> Object:
    made = making.object
    width = made.type.args[0]
    if not isinstance(width, ir.Bits) or width.width > 32:
        raise Unsupported(f"a math unit of {t.describe(width)}", making.decl.pos, "at most bit<32>")
    if "op" not in making.args:
        return replace(made, details=_given_table(making))
    operation = making.member("op", "the operation")
    names = ("factor",) if "factor" in making.args else ("A", "B")
    numbers = [making.number(name) for name in names]
    if min(numbers) < 1:
        name = names[numbers.index(min(numbers))]
        raise CompileError(
            f"{min(numbers)} does not fit parameter {name!r}", making.args[name].pos, "at least 1"
        )
    factor = numbers[0] / numbers[1] if len(numbers) > 1 else float(numbers[0])
    return replace(made, details=table_of(operation, factor))


def _given_table(making: Making) -> MathTable:
    data = leaves(making.value("data"), making.args["data"].pos)
    entries = [number for leaf in data if (number := number_of(leaf)) is not None]
    shift, scale = making.number("shift"), making.number("scale")
    if shift not in (-1, 0, 1):
        raise CompileError(f"{shift} does not fit parameter 'shift'", making.args["shift"].pos, "-1, 0 or 1")
    if not -32 <= scale < 32:
        raise CompileError(f"{scale} does not fit parameter 'scale'", making.args["scale"].pos, "-32 to 31")
    if len(entries) != 16 or not all(0 <= entry < 256 for entry in entries):
        raise CompileError(
            "the data of the math unit is wrong", making.args["data"].pos, "16 numbers, each from 0 to 255"
        )
    return MathTable(bool(making.number("invert")), shift, scale, tuple(reversed(entries)))


# --------------------------------------------------------------------------- other externs


def _variable(type_: ir.Bits) -> Callable[[Making], Object]:
    """Return a function that makes an instance of an extern with one variable of `type_`.

    The instance's `Object.colour` is the name of this variable.
    """

    def make(making: Making) -> Object:
        name = making.body.unit.variable(f"{making.object.name}.value", type_)
        return replace(making.object, colour=name)

    return make


def _digest(making: Making) -> Object:
    made, digests = making.object, making.body.unit.digests
    data = data_type(made.type.args[0], making.decl.pos)
    digests[made.name] = ir.Digest(made.name, data, pos=made.pos, annotations=making.annotations)
    return made


def _selector(making: Making) -> Object:
    """Let an action profile have groups: the one that is given, whose name P4Info then has, or a new one."""
    made, profiles = making.object, making.body.unit.action_profiles
    if "action_profile" in making.args:
        made = replace(made, name=making.other("action_profile", "ActionProfile").name)
        plain, limit = profiles[made.name], making.number("max_group_size")
        annotations = (*plain.annotations, ir.Annotation("max_group_size", str(limit)))
        profiles[made.name] = replace(plain, selector=True, annotations=annotations)
    else:
        profiles[made.name] = ir.ActionProfile(made.name, making.size(), True, **making.common)
    how = making.other("hash", "Hash").details
    assert isinstance(how, Hashing)
    algorithm = {"CRC16": "crc16", "XOR16": "xor16", "IDENTITY": "identity"}.get(how.name, "crc32")
    return replace(made, unit=algorithm)


MAKERS: Mapping[str, Callable[[Making], Object]] = {
    "Register": _register,
    "RegisterParam": _register,
    "DirectRegister": _direct_register,
    "DirectRegisterAction": _action,
    "RegisterAction": _action,
    "RegisterAction2": _action,
    "RegisterAction3": _action,
    "RegisterAction4": _action,
    "CRCPolynomial": _polynomial,
    "Hash": _hash,
    "Random": plain_object,
    "Counter": make_counter,
    "DirectCounter": make_direct_counter,
    "Meter": _meter,
    "DirectMeter": _direct_meter,
    "Lpf": _filter("Lpf"),
    "DirectLpf": _filter("Lpf"),
    "Wred": _filter("Wred"),
    "DirectWred": _filter("Wred"),
    "MathUnit": _math_unit,
    "Checksum": _variable(ir.Bits(16)),
    "ParserCounter": _variable(_COUNT),
    "ParserPriority": plain_object,
    "Mirror": plain_object,
    "Resubmit": plain_object,
    "Digest": _digest,
    "ActionProfile": make_profile,
    "ActionSelector": _selector,
    "Atcam": plain_object,
    "Alpm": plain_object,
    "IdleTimeout": plain_object,
}
