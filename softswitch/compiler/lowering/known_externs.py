"""Lower calls of methods of ``packet_in`` and ``packet_out``, and of functions of v1model and core.p4."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from softswitch.compiler import ir
from softswitch.compiler.errors import CompileError, Unsupported
from softswitch.compiler.frontend import ast
from softswitch.compiler.ir.walk import path_of
from softswitch.compiler.lowering import types as t
from softswitch.compiler.lowering.check import evaluate, evaluate_as, type_at, writable
from softswitch.compiler.lowering.convert import bits_cast, convert, expression, joined, mismatch, store
from softswitch.compiler.lowering.extern_calls import (
    ExternCall,
    MethodCall,
    choose,
    enum_member,
    extern_arguments,
    foreign_call,
    hash_into,
    leaves,
    plain_target,
)
from softswitch.compiler.lowering.types import data_type
from softswitch.compiler.lowering.unit import Body, CodePlace, Stage
from softswitch.compiler.lowering.values import (
    ExternFunctions,
    GroupValue,
    Nothing,
    Number,
    PacketValue,
    Run,
    Text,
    Value,
    constant,
    parts_of,
    show,
    type_of,
    unknown,
)

_METHODS = {"packet_in": ("extract", "lookahead", "advance", "length"), "packet_out": ("emit",)}
_ARGUMENTS = {"extract": (1, 2), "lookahead": (0,), "advance": (1,), "length": (0,), "emit": (1,)}


def call_packet_method(body: Body, base: PacketValue, expr: ast.CallExpr, method: str) -> Value:
    """Emit a call of a packet's method. Raises CompileError."""
    methods = _METHODS[base.type.name]
    declared = [prototype for prototype in base.decl.methods if prototype.name == method]
    if method not in methods or not declared:
        raise unknown(f"method of {base.type.name}", method, methods, expr.callee.pos)
    if len(expr.args) not in _ARGUMENTS[method]:
        expected = " or ".join(map(str, _ARGUMENTS[method]))
        raise CompileError(f"{len(expr.args)} arguments for {method}", expr.pos, expected)
    choose(declared, expr, f"{base.type.name}.{method}")
    match method:
        case "extract":
            return _extract(body, expr)
        case "lookahead":
            return lookahead(body, expr)
        case "length":
            return Run(t.BIT32, ir.PacketLength(t.BIT32, pos=expr.pos))
        case "advance":
            arg = expr.args[0].value
            bits = expression(body, evaluate_as(body, arg, t.BIT32, "the number of bits"), arg.pos)
            body.out.append(ir.Advance(bits, pos=expr.pos))
        case "emit":
            arg = expr.args[0].value
            value, type_ = evaluate(body, arg), _type_argument(body, expr)
            _emit_headers(body, value if type_ is None else convert(value, type_, arg.pos), arg.pos)
    return Nothing()


def _extract(body: Body, expr: ast.CallExpr) -> Value:
    arg = expr.args[0].value
    target = _extract_target(body, expr, arg)
    header = t.base(target.type)
    if not isinstance(header, t.HeaderType):
        raise CompileError(f"cannot extract into {show(target)}", arg.pos, "a header")
    varbits = t.contains_varbits(header)
    if varbits != (len(expr.args) == 2):
        problem = "has a varbit field" if varbits else "has no varbit field"
        expected = "extract(header, size of the varbit in bits)" if varbits else "extract(header)"
        raise CompileError(f"header {header.name} {problem}", expr.pos, expected)
    size = None
    if varbits:
        size_arg = expr.args[1].value
        size = expression(body, evaluate_as(body, size_arg, t.BIT32, "the size of the varbit"), size_arg.pos)
    body.out.append(ir.Extract(target.expr, size, pos=expr.pos))
    return Nothing()


def _type_argument(body: Body, expr: ast.CallExpr) -> t.Type | None:
    """Return the type argument of a method call; None without one. Raises CompileError for several."""
    if len(expr.type_args) > 1:
        raise CompileError(f"{len(expr.type_args)} type arguments", expr.pos, "at most one")
    type_ = type_at(body, expr.type_args[0]) if expr.type_args else t.Infer()
    return None if isinstance(type_, t.Infer) else type_


def _extract_target(body: Body, expr: ast.CallExpr, arg: ast.Expr) -> Run:
    type_ = _type_argument(body, expr)
    if not ast.is_word(arg, "_"):
        target = writable(body, arg)
        if type_ is not None and not t.same(target.type, type_):
            raise mismatch(target, type_, arg.pos, "the argument of extract")
        return target
    if type_ is None:
        raise CompileError("the type of the header to skip is not known", arg.pos, "extract<header type>(_)")
    return Run(type_, body.temporary(type_, "skipped", arg.pos), writable=True)


def lookahead(body: Body, expr: ast.CallExpr) -> Value:
    """Emit a lookahead of a type, and return its value. Raises CompileError."""
    if len(expr.type_args) != 1:
        raise CompileError(
            f"lookahead has {len(expr.type_args)} type arguments", expr.pos, "lookahead<type>()"
        )
    type_ = type_at(body, expr.type_args[0])
    width = t.width(type_)
    if width is None or t.contains_varbits(type_):
        raise CompileError(
            f"lookahead cannot return {t.describe(type_)}", expr.type_args[0].pos, "a type of fixed width"
        )
    if width == 0:
        raise Unsupported(f"lookahead of {t.describe(type_)}, which has no bits", expr.type_args[0].pos)
    value, _ = _ahead(type_, 0, expr.pos)
    if isinstance(value, Run):
        return value
    # All parts are read before one is used, as the packet may be too short.
    variable = Run(type_, body.temporary(type_, "lookahead", expr.pos), writable=True)
    store(body, variable, value, expr.pos)
    return Run(type_, variable.expr)


def _ahead(type_: t.Type, offset: int, pos: ir.Position) -> tuple[Value, int]:
    """Return a value of `type_`, read `offset` bits ahead in the packet, and the offset of what follows."""
    shape = t.base(type_)
    if isinstance(shape, t.StackType):
        parts: list[t.Type] = [shape.element] * shape.size
    else:
        parts = list((t.fields_of(shape) or {}).values())
    scalar = t.lowered(type_)
    if isinstance(scalar, ir.Bits | ir.Bool):
        width = scalar.width if isinstance(scalar, ir.Bits) else 1
        ahead = ir.Lookahead(ir.Bits(offset % 8 + width), offset // 8, pos=pos)
        bits = bits_cast(ir.Bits(width), ahead, pos)
        if isinstance(scalar, ir.Bool):
            return Run(type_, ir.Cast(t.BOOL, bits, pos=pos)), offset + width
        return Run(type_, bits_cast(scalar, bits, pos)), offset + width
    values = []
    for part in parts:
        value, offset = _ahead(part, offset, pos)
        values.append(value)
    return GroupValue(type_, tuple(values)), offset


def _emit_headers(body: Body, value: Value, pos: ir.Position) -> None:
    if isinstance(value, GroupValue) and not isinstance(value.type, t.HeaderType):
        for part in value.parts:
            _emit_headers(body, part, pos)
        return
    shape = t.base(value.type) if isinstance(value, Run) else None
    if isinstance(value, Run) and isinstance(shape, t.StackType) and isinstance(shape.element, t.UnionType):
        for part in parts_of(value, pos):
            _emit_headers(body, part, pos)
    elif isinstance(value, Run) and isinstance(shape, t.HeaderType | t.StackType):
        body.out.append(ir.Emit(value.expr, pos=pos))
    elif isinstance(value, Run) and isinstance(shape, t.StructType | t.UnionType | t.Tuple):
        for part in parts_of(value, pos):
            _emit_headers(body, part, pos)
    elif isinstance(value, GroupValue):
        raise Unsupported("emit of a header given by its fields", pos, "a header variable")
    else:
        raise CompileError(f"cannot emit {show(value)}", pos, "a header, a stack, or a struct of them")


Fields = tuple[tuple[str, ...], ...]

FIRST_LEGACY_LIST = 256
"""Smallest number of a field list that a call such as ``clone3`` passes as data.

``@field_list`` numbers are smaller."""


def annotated_lists(meta: t.Type) -> dict[int, Fields]:
    """Return the field lists of the ``@field_list`` annotations in the metadata, by number."""
    lists: dict[int, list[tuple[str, ...]]] = {}
    _collect(meta, ("meta",), (), lists)
    return {number: tuple(paths) for number, paths in sorted(lists.items())}


def _collect(
    type_: t.Type, path: tuple[str, ...], numbers: tuple[int, ...], lists: dict[int, list[tuple[str, ...]]]
) -> None:
    fields = t.fields_of(t.base(type_))
    if fields is None or isinstance(t.base(type_), t.HeaderType):
        for number in dict.fromkeys(numbers):
            lists.setdefault(number, []).append(path)
        return
    own = type_.lists if isinstance(type_, t.StructType) else {}
    for name, field in fields.items():
        _collect(field, (*path, name), numbers + own.get(name, ()), lists)


def _list_number(call: ExternCall, argument: int) -> ir.Const:
    """Return the number of the field list that an argument names.

    Raises CompileError if the argument is not constant.
    """
    value, pos = call.values[argument], call.place(argument)
    match value:
        case Number(number) | Run(_, ir.Const(_, number)):
            call.body.unit.field_lists.setdefault(number, ())
            return ir.Const(ir.Bits(8), number, pos=pos)
        case _:
            raise CompileError(f"{show(value)} cannot be a field list", pos, "a compile-time constant")


def _legacy_field_list(call: ExternCall, argument: int) -> ir.Const:
    """Return the number of the field list for data passed to clone3, resubmit or recirculate.

    A list with other fields than all earlier lists gets a new number.
    """
    pos, lists = call.place(argument), call.body.unit.field_lists
    paths = tuple(_metadata_path(leaf, pos) for leaf in leaves(call.values[argument], pos))
    for number, known in lists.items():
        if number >= FIRST_LEGACY_LIST and known == paths:
            return ir.Const(t.BIT32, number, pos=pos)
    number = max((FIRST_LEGACY_LIST, *(n + 1 for n in lists)))
    lists[number] = paths
    return ir.Const(t.BIT32, number, pos=pos)


def _metadata_path(value: Value, pos: ir.Position) -> tuple[str, ...]:
    path = path_of(value.expr) if isinstance(value, Run) else None
    if path is None or path[0] != "meta" or not all(isinstance(name, str) for name in path):
        raise Unsupported(f"{show(value)} in a field list", pos, "fields of the user's metadata")
    return tuple(str(name) for name in path)


_CONTROLS = (Stage.INGRESS, Stage.EGRESS)


def call_extern_function(body: Body, symbol: ExternFunctions, expr: ast.CallExpr, name: str) -> Value:
    """Emit a call of an extern function. Raises CompileError."""
    prototype = choose(symbol.overloads, expr, name)
    if name not in _FUNCTIONS:
        architecture = body.unit.architecture
        handler = architecture.functions.get(name)
        if handler is not None:
            return handler(ExternCall(body, name, extern_arguments(body, prototype, expr, name), expr))
        body.unit.refuse(
            architecture.unsupported(f"extern function {name!r}", architecture.functions, expr.pos)
        )
        return foreign_call(body, prototype, expr, name, {})
    stages, counts, lower = _FUNCTIONS[name]
    if len(prototype.params) not in counts:
        message = (
            f"extern function {name!r} of {len(prototype.params)} parameters: v1model declares it differently"
        )
        body.unit.refuse(Unsupported(message, expr.pos, f"{' or '.join(map(str, counts))} parameters"))
        return foreign_call(body, prototype, expr, name, {})
    if stages and body.stage not in stages:
        where = " or ".join(stage.name.lower() for stage in stages)
        raise Unsupported(f"{name} in the {body.stage.name.lower()} block", expr.pos, where)
    if name != "static_assert" and body.place is CodePlace.CONSTANT:
        raise CompileError(
            f"the result of {name!r} is not known at compile time", expr.pos, "a compile-time constant"
        )
    return lower(ExternCall(body, name, extern_arguments(body, prototype, expr, name), expr))


def _bits_target(call: ExternCall, what: str) -> tuple[ir.Expr, tuple[ir.Stmt, ...]]:
    """Return a place for the result and the statements that must follow the call; see `plain_target`.

    The call's first argument is the target.
    """
    target = call.values[0]
    if not isinstance(target, Run) or not isinstance(t.lowered(target.type), ir.Bits):
        raise CompileError(f"{what} {show(target)}", call.place(0), "a variable of type bit<W>")
    return plain_target(call.body, target, call.place(0))


def _hash(call: ExternCall) -> Value:
    variable, after = _bits_target(call, "a hash cannot be stored in")
    algorithm, base = _algorithm(call, 1), call.scalar(2, "the base", 64)
    data, most = call.data(3), call.scalar(4, "the maximum", 64)
    return call.emit("hash", (variable,), (base,), data, (most,), instance=algorithm, after=after)


def _algorithm(call: ExternCall, number: int) -> str:
    pos = call.place(number)
    name = enum_member(call.values[number], pos, "the algorithm")
    if name == "random":
        raise Unsupported("HashAlgorithm.random", pos, "random()")
    return name


def _random(call: ExternCall) -> Value:
    variable, after = _bits_target(call, "a random number cannot be stored in")
    return call.emit("random", (variable,), (call.expression(1),), (call.expression(2),), after=after)


def _checksum(call: ExternCall) -> Value:
    checksum = call.values[2]
    if not isinstance(checksum, Run) or not isinstance(t.lowered(checksum.type), ir.Bits):
        raise CompileError(f"{show(checksum)} cannot be a checksum", call.place(2), "bit<W>")
    if call.name.startswith("update") and path_of(checksum.expr) is None:
        raise Unsupported("a checksum in a slice or behind a run-time index", call.place(2), "a header field")
    condition, data = call.expression(0), call.data(1)
    match checksum.expr:
        case ir.Member(base=header) if call.name.startswith("verify") and isinstance(header.type, ir.Header):
            # BMv2 accepts a checksum whose header is absent.
            condition = joined("&&", ir.IsValid(t.BOOL, header, pos=call.pos), condition, call.pos)
    return call.emit(call.name, (condition,), data, (checksum.expr,), instance=_algorithm(call, 3))


def _mark_to_drop(call: ExternCall) -> Value:
    for value in call.values:
        if not (
            isinstance(value, Run)
            and isinstance(value.expr, ir.Var)
            and value.expr.name == "standard_metadata"
        ):
            raise Unsupported(
                "the argument of mark_to_drop is not the block's standard_metadata",
                call.expr.args[0].pos,
                "the standard_metadata parameter of the pipeline's control",
            )
    return call.emit("mark_to_drop")


def _clone(call: ExternCall) -> Value:
    _check_clone_kind(call)
    session = call.scalar(1, "the session")
    if call.name == "clone3":
        number = _legacy_field_list(call, 2)
    elif len(call.values) == 3:
        number = _list_number(call, 2)
    else:
        return call.emit("clone", (session,))
    return call.emit("clone_preserving_field_list", (session,), (number,))


def _check_clone_kind(call: ExternCall) -> None:
    pos, stage = call.place(0), call.body.stage
    found = enum_member(call.values[0], pos, "the clone type")
    right = "I2E" if stage is Stage.INGRESS else "E2E"
    if found != right:
        raise Unsupported(f"CloneType.{found} in {stage.name.lower()}", pos, f"CloneType.{right}")


def _verify(call: ExternCall) -> Value:
    error = call.values[1]
    if call.body.place is not CodePlace.PARSER:
        raise CompileError(f"verify cannot be called in {call.body.place.value}", call.pos, "a parser state")
    assert isinstance(error, Run)
    call.body.out.append(ir.Verify(call.expression(0), error.expr, pos=call.pos))
    return Nothing()


def _static_assert(call: ExternCall) -> Value:
    condition, *more = call.values
    if not isinstance(condition, Run) or not isinstance(condition.expr, ir.Const):
        raise CompileError(
            "the condition of static_assert is known only at run time", call.place(0), "a constant"
        )
    if not condition.expr.value:
        message = more[0].value if more and isinstance(more[0], Text) else "static_assert failed"
        raise CompileError(message, call.pos, "a condition that holds")
    return constant(t.BOOL, 1, call.pos)


def _digest(call: ExternCall) -> Value:
    place, digests = call.place(1), call.body.unit.digests
    data = data_type(type_of(call.values[1]), place)
    name = data.name or f"digest_{len(digests)}"
    if digests.setdefault(name, ir.Digest(name, data, pos=call.pos)).data != data:
        raise CompileError(f"two types of digests are called {name!r}", place, "another name for one of them")
    return call.emit("digest", call.data(1, enums=True), instance=name)


# For each function: the blocks in which it may be called (none: all), its possible numbers of parameters, and
# the function that lowers a call.
_FUNCTIONS: dict[str, tuple[tuple[Stage, ...], tuple[int, ...], Callable[[ExternCall], Value]]] = {
    "hash": ((), (5,), _hash),
    "random": ((), (3,), _random),
    "verify_checksum": ((Stage.VERIFY,), (4,), _checksum),
    "verify_checksum_with_payload": ((Stage.VERIFY,), (4,), _checksum),
    "update_checksum": ((Stage.COMPUTE,), (4,), _checksum),
    "update_checksum_with_payload": ((Stage.COMPUTE,), (4,), _checksum),
    "mark_to_drop": (_CONTROLS, (0, 1), _mark_to_drop),
    "clone": (_CONTROLS, (2,), _clone),
    "clone_preserving_field_list": (_CONTROLS, (3,), _clone),
    "clone3": (_CONTROLS, (3,), _clone),
    "resubmit_preserving_field_list": (
        (Stage.INGRESS,),
        (1,),
        lambda call: call.emit(call.name, (_list_number(call, 0),)),
    ),
    "resubmit": (
        (Stage.INGRESS,),
        (1,),
        lambda call: call.emit(f"{call.name}_preserving_field_list", (_legacy_field_list(call, 0),)),
    ),
    "recirculate_preserving_field_list": (
        (Stage.EGRESS,),
        (1,),
        lambda call: call.emit(call.name, (_list_number(call, 0),)),
    ),
    "recirculate": (
        (Stage.EGRESS,),
        (1,),
        lambda call: call.emit(f"{call.name}_preserving_field_list", (_legacy_field_list(call, 0),)),
    ),
    "truncate": (_CONTROLS, (1,), lambda call: call.emit("truncate", (call.scalar(0, "the length"),))),
    "assert": ((), (1,), lambda call: call.emit(call.name, (call.expression(0),))),
    "assume": ((), (1,), lambda call: call.emit(call.name, (call.expression(0),))),
    "log_msg": ((), (1, 2), lambda call: call.emit("log_msg")),
    "verify": ((), (2,), _verify),
    "static_assert": ((), (1, 2), _static_assert),
    "digest": ((Stage.INGRESS,), (2,), _digest),
}

# --------------------------------------------------------------------------- methods of v1model's externs


def _checksum16(call: MethodCall) -> Value:
    """Emit the computation of the Internet checksum of the argument, and return the checksum."""
    variable = call.body.temporary(ir.Bits(16), "checksum", call.pos)
    limit = ir.Const(ir.Bits(32), 1 << 16, pos=call.pos)
    call.body.out.append(hash_into(variable, "csum16", call.data(0), limit, call.pos))
    return Run(ir.Bits(16), variable)


def _cell(call: MethodCall, number: int) -> tuple[tuple[str, ...], ir.Expr]:
    """Return the names of the registers that hold a register's scalars, and the index of the call's cell.

    The index is saved in a variable if accesses to several registers could change it.
    """
    parts, index = call.body.unit.register_arrays[call.on.name].parts, call.scalar(number, "the index")
    if len(parts) == 1 or isinstance(index, ir.Const):
        return parts, index
    return parts, call.body.held(index, "index", call.place(number))


def _read_register(call: MethodCall) -> Value:
    parts, index = _cell(call, 1)
    for part, target in zip(parts, leaves(call.values[0], call.place(0)), strict=True):
        variable, after = plain_target(call.body, target, call.place(0))
        call.emit("register.read", (variable,), (index,), instance=part, after=after)
    return Nothing()


def _write_register(call: MethodCall) -> Value:
    parts, index = _cell(call, 0)
    pos = call.place(1)
    stored = [expression(call.body, leaf, pos) for leaf in leaves(call.values[1], pos)]
    for part, value in zip(parts, stored, strict=True):
        call.emit("register.write", (index,), (value,), instance=part)
    return Nothing()


def _execute_meter(call: MethodCall) -> Value:
    index = call.scalar(0, "the index")
    variable, after = plain_target(call.body, call.values[1], call.place(1))
    return call.emit("meter.execute_meter", (variable,), (index,), instance=call.on.name, after=after)


def _read_colour(call: MethodCall) -> Value:
    """Emit ``read`` of a direct meter: the colour that the packet got when the meter's table was applied."""
    target = call.values[0]
    scalar_type = t.lowered(type_of(target))
    if not isinstance(target, Run) or not isinstance(scalar_type, ir.Bits):
        raise CompileError(
            f"a colour cannot be stored in {show(target)}", call.place(0), "a variable of type bit<W>"
        )
    colour = ir.Var(ir.Bits(2), call.on.colour, pos=call.pos)
    call.body.out.append(ir.Assign(target.expr, ir.Cast(scalar_type, colour, pos=call.pos), pos=call.pos))
    return Nothing()


METHODS: Mapping[str, Callable[[MethodCall], Value]] = {
    "register.read": _read_register,
    "register.write": _write_register,
    "counter.count": lambda call: call.emit(
        "counter.count", (call.scalar(0, "the index"),), instance=call.on.name
    ),
    "Checksum16.get": _checksum16,
    "meter.execute_meter": _execute_meter,
    "direct_meter.read": _read_colour,
    "direct_counter.count": lambda call: call.emit("direct_counter.count", instance=call.on.name),
}
"""The methods of v1model's externs."""
