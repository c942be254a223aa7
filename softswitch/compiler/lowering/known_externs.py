"""The methods of ``packet_in`` and ``packet_out``, and the functions of v1model and core.p4."""

from __future__ import annotations

from collections.abc import Callable

from softswitch.compiler import ir
from softswitch.compiler.errors import CompileError, Unsupported
from softswitch.compiler.frontend import ast
from softswitch.compiler.ir.walk import path_of
from softswitch.compiler.lowering import types as t
from softswitch.compiler.lowering.check import evaluate, evaluate_as, type_at, writable
from softswitch.compiler.lowering.convert import bits_cast, convert, expression, flatten, mismatch, store
from softswitch.compiler.lowering.extern_calls import (
    choose,
    enum_constant,
    extern_arguments,
    foreign_call,
    plain_target,
    scalar,
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
    assert isinstance(expr.callee, ast.MemberExpr)
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
            return Run(t.BIT32, ir.PacketLength(t.BIT32, expr.pos))
        case "advance":
            arg = expr.args[0].value
            bits = expression(body, evaluate_as(body, arg, t.BIT32, "the number of bits"), arg.pos)
            body.out.append(ir.Advance(bits, expr.pos))
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
        raise CompileError(f"extract into {show(target)}", arg.pos, "a header")
    varbits = t.contains_varbits(header)
    if varbits != (len(expr.args) == 2):
        has = "has a varbit field" if varbits else "has no varbit field"
        expected = "extract(header, size of the varbit in bits)" if varbits else "extract(header)"
        raise CompileError(f"header {header.name} {has}", expr.pos, expected)
    size = None
    if varbits:
        size_arg = expr.args[1].value
        size = expression(body, evaluate_as(body, size_arg, t.BIT32, "the size of the varbit"), size_arg.pos)
    body.out.append(ir.Extract(target.expr, size, expr.pos))
    return Nothing()


def _type_argument(body: Body, expr: ast.CallExpr) -> t.Type | None:
    """Return the type that a call gives for the method's type parameter, or None."""
    if len(expr.type_args) > 1:
        raise CompileError(f"{len(expr.type_args)} type arguments", expr.pos, "at most one")
    type_ = type_at(body, expr.type_args[0]) if expr.type_args else t.Infer()
    return None if isinstance(type_, t.Infer) else type_


def _extract_target(body: Body, expr: ast.CallExpr, arg: ast.Expr) -> Run:
    type_ = _type_argument(body, expr)
    if not ast.is_word(arg, "_"):
        target = writable(body, arg)
        if type_ is not None and not t.same(target.type, type_):
            raise mismatch(target, type_, arg.pos, "what is extracted into")
        return target
    if type_ is None:
        raise CompileError("the type of the header to skip is not known", arg.pos, "extract<header type>(_)")
    return Run(type_, body.temporary(type_, "skipped", arg.pos), writable=True)


def lookahead(body: Body, expr: ast.CallExpr) -> Value:
    """Emit what reads a type from the packet without moving on, and return its value. Raises CompileError."""
    if len(expr.type_args) != 1:
        raise CompileError(f"lookahead with {len(expr.type_args)} types", expr.pos, "lookahead<type>()")
    type_ = type_at(body, expr.type_args[0])
    width = t.width(type_)
    if width is None or t.contains_varbits(type_):
        raise CompileError(
            f"lookahead of {t.describe(type_)}", expr.type_args[0].pos, "a type of fixed width"
        )
    if width == 0:
        raise Unsupported(f"lookahead of {t.describe(type_)}, which has no bits", expr.type_args[0].pos)
    whole = ir.Lookahead(ir.Bits(width), expr.pos)
    scalar = t.lowered(type_)
    if isinstance(scalar, ir.Bits):
        return Run(type_, bits_cast(scalar, whole, expr.pos))
    if isinstance(scalar, ir.Bool):
        return Run(type_, ir.Cast(t.BOOL, whole, expr.pos))
    # Looked at once, before any part is used: it may find the packet too short.
    ahead = body.temporary(ir.Bits(width), "ahead", expr.pos)
    body.out.append(ir.Assign(ahead, whole, expr.pos))
    value, _ = _unpack(type_, ahead, width, expr.pos)
    variable = Run(type_, body.temporary(type_, "lookahead", expr.pos), writable=True)
    store(body, variable, value, expr.pos)
    return Run(type_, variable.expr)


def _unpack(type_: t.Type, whole: ir.Expr, end: int, pos: ir.Position) -> tuple[Value, int]:
    """Return the value whose most significant bit is below `end` in `whole`, and where it stops."""
    shape = t.base(type_)
    if isinstance(shape, t.StackType):
        parts: list[t.Type] = [shape.element] * shape.size
    else:
        parts = list((t.fields_of(shape) or {}).values())
    scalar = t.lowered(type_)
    if isinstance(scalar, ir.Bits | ir.Bool):
        width = scalar.width if isinstance(scalar, ir.Bits) else 1
        cut: ir.Expr = ir.Slice(ir.Bits(width), whole, end - 1, end - width, pos)
        if isinstance(scalar, ir.Bool):
            return Run(type_, ir.Cast(t.BOOL, cut, pos)), end - width
        return Run(type_, bits_cast(scalar, cut, pos)), end - width
    values = []
    for part in parts:
        value, end = _unpack(part, whole, end, pos)
        values.append(value)
    return GroupValue(type_, tuple(values)), end


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
        body.out.append(ir.Emit(value.expr, pos))
    elif isinstance(value, Run) and isinstance(shape, t.StructType | t.UnionType | t.Tuple):
        for part in parts_of(value, pos):
            _emit_headers(body, part, pos)
    elif isinstance(value, GroupValue):
        raise Unsupported("emit of a header given by its fields", pos, "a header variable")
    else:
        raise CompileError(f"emit of {show(value)}", pos, "a header, a stack, or a struct of them")


Fields = tuple[tuple[str, ...], ...]

FIRST_LEGACY_LIST = 256
"""Numbers below are those of ``@field_list``, a bit<8>."""


def annotated_lists(meta: t.Type) -> dict[int, Fields]:
    """Return the lists that ``@field_list`` annotations in the metadata make."""
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


def list_number(body: Body, value: Value, pos: ir.Position) -> ir.Const:
    """Return the argument that names a field list."""
    match value:
        case Number(number) | Run(_, ir.Const(_, number)):
            body.unit.field_lists.setdefault(number, ())
            return ir.Const(ir.Bits(8), number, pos)
        case _:
            raise CompileError(f"{show(value)} as a field list", pos, "a compile-time constant")


def legacy_field_list(body: Body, value: Value, pos: ir.Position) -> ir.Const:
    """Return a field list for the data given to clone3, resubmit or recirculate."""
    paths = tuple(_leaves(value, pos))
    lists = body.unit.field_lists
    for number, known in lists.items():
        if number >= FIRST_LEGACY_LIST and known == paths:
            return ir.Const(t.BIT32, number, pos)
    number = max((FIRST_LEGACY_LIST, *(n + 1 for n in lists)))
    lists[number] = paths
    return ir.Const(t.BIT32, number, pos)


def _leaves(value: Value, pos: ir.Position) -> list[tuple[str, ...]]:
    if isinstance(value, GroupValue):
        return [path for part in value.parts for path in _leaves(part, pos)]
    if isinstance(value, Run) and isinstance(t.base(value.type), t.StructType | t.Tuple):
        return [path for part in parts_of(value, pos) for path in _leaves(part, pos)]
    path = path_of(value.expr) if isinstance(value, Run) else None
    if path is None or path[0] != "meta" or not all(isinstance(name, str) for name in path):
        raise Unsupported(f"{show(value)} in a field list", pos, "fields of the user's metadata")
    return [tuple(str(name) for name in path)]


_CONTROLS = (Stage.INGRESS, Stage.EGRESS)


def call_extern_function(body: Body, symbol: ExternFunctions, expr: ast.CallExpr, name: str) -> Value:
    """Emit a call of an extern function. Raises CompileError."""
    prototype = choose(symbol.overloads, expr, name)
    if name not in _FUNCTIONS:
        return body.unit.architecture.call_function(body, prototype, expr, name)
    stages, counts, lower = _FUNCTIONS[name]
    if len(prototype.params) not in counts:
        message = f"extern function {name!r} of {len(prototype.params)} parameters: v1model's has others"
        body.unit.refuse(Unsupported(message, expr.pos, f"{' or '.join(map(str, counts))} parameters"))
        return foreign_call(body, prototype, expr, name, {})
    if stages and body.stage not in stages:
        where = " or ".join(stage.name.lower() for stage in stages)
        raise Unsupported(f"{name} in the {body.stage.name.lower()} block", expr.pos, where)
    if name != "static_assert" and body.place is CodePlace.CONSTANT:
        raise CompileError(
            f"the result of {name!r} is not known at compile time", expr.pos, "a compile-time constant"
        )
    values = extern_arguments(body, prototype, expr, name)
    return lower(body, values, expr)


def _emit(body: Body, function: str, expr: ast.CallExpr, *args: tuple[ir.Expr, ...]) -> Value:
    body.out.append(ir.Extern(function, "", args, expr.pos))
    return Nothing()


def _hash(body: Body, values: list[Value], expr: ast.CallExpr) -> Value:
    target, algorithm, base, data, maximum = values
    places = [arg.value.pos for arg in expr.args]
    if not isinstance(target, Run) or not isinstance(t.lowered(target.type), ir.Bits):
        raise CompileError(f"a hash into {show(target)}", places[0], "a variable of type bit<W>")
    variable, after = plain_target(body, target, places[0])
    _emit(
        body,
        "hash",
        expr,
        (variable,),
        (_algorithm(algorithm, places[1]),),
        (scalar(body, base, places[2], "the base", 64),),
        flatten(body, data, places[3]),
        (scalar(body, maximum, places[4], "the maximum", 64),),
    )
    body.out.extend(after)
    return Nothing()


def _algorithm(value: Value, pos: ir.Position) -> ir.Const:
    algorithm = enum_constant(value, pos, "the algorithm")
    assert isinstance(algorithm.type, ir.Enum)
    name = algorithm.type.members[algorithm.value]
    if name == "random":
        raise Unsupported("HashAlgorithm.random", pos, "random()")
    return algorithm


def _random(body: Body, values: list[Value], expr: ast.CallExpr) -> Value:
    target, low, high = values
    places = [arg.value.pos for arg in expr.args]
    if not isinstance(target, Run) or not isinstance(t.lowered(target.type), ir.Bits):
        raise CompileError(f"a random {show(target)}", places[0], "a variable of type bit<W>")
    variable, after = plain_target(body, target, places[0])
    bounds = (expression(body, low, places[1]),), (expression(body, high, places[2]),)
    _emit(body, "random", expr, (variable,), *bounds)
    body.out.extend(after)
    return Nothing()


def _checksum(function: str) -> Callable[[Body, list[Value], ast.CallExpr], Value]:
    def lower(body: Body, values: list[Value], expr: ast.CallExpr) -> Value:
        condition, data, checksum, algorithm = values
        places = [arg.value.pos for arg in expr.args]
        if not isinstance(checksum, Run) or not isinstance(t.lowered(checksum.type), ir.Bits):
            raise CompileError(f"{show(checksum)} as a checksum", places[2], "bit<W>")
        if function.startswith("update") and path_of(checksum.expr) is None:
            raise Unsupported("a checksum in a slice or behind a run-time index", places[2], "a header field")
        return _emit(
            body,
            function,
            expr,
            (expression(body, condition, places[0]),),
            flatten(body, data, places[1]),
            (checksum.expr,),
            (_algorithm(algorithm, places[3]),),
        )

    return lower


def _mark_to_drop(body: Body, values: list[Value], expr: ast.CallExpr) -> Value:
    for value in values:
        if not (
            isinstance(value, Run)
            and isinstance(value.expr, ir.Var)
            and value.expr.name == "standard_metadata"
        ):
            raise Unsupported(
                "mark_to_drop of something else than the block's standard_metadata",
                expr.args[0].pos,
                "the standard_metadata parameter of the pipeline's control",
            )
    return _emit(body, "mark_to_drop", expr)


def _clone(body: Body, values: list[Value], expr: ast.CallExpr) -> Value:
    kind = _clone_kind(body, values[0], expr.args[0].value.pos)
    session = scalar(body, values[1], expr.args[1].value.pos, "the session")
    if len(values) == 2:
        return _emit(body, "clone", expr, (kind,), (session,))
    number = list_number(body, values[2], expr.args[2].value.pos)
    return _emit(body, "clone_preserving_field_list", expr, (kind,), (session,), (number,))


def _clone3(body: Body, values: list[Value], expr: ast.CallExpr) -> Value:
    kind = _clone_kind(body, values[0], expr.args[0].value.pos)
    session = scalar(body, values[1], expr.args[1].value.pos, "the session")
    number = legacy_field_list(body, values[2], expr.args[2].value.pos)
    return _emit(body, "clone_preserving_field_list", expr, (kind,), (session,), (number,))


def _clone_kind(body: Body, value: Value, pos: ir.Position) -> ir.Const:
    kind = enum_constant(value, pos, "the clone type")
    assert isinstance(kind.type, ir.Enum)
    right = "I2E" if body.stage is Stage.INGRESS else "E2E"
    if kind.type.members[kind.value] != right:
        raise Unsupported(
            f"CloneType.{kind.type.members[kind.value]} in {body.stage.name.lower()}",
            pos,
            f"CloneType.{right}",
        )
    return kind


def _keep(function: str) -> Callable[[Body, list[Value], ast.CallExpr], Value]:
    def lower(body: Body, values: list[Value], expr: ast.CallExpr) -> Value:
        number = list_number(body, values[0], expr.args[0].value.pos)
        return _emit(body, f"{function}_preserving_field_list", expr, (number,))

    return lower


def _keep_data(function: str) -> Callable[[Body, list[Value], ast.CallExpr], Value]:
    def lower(body: Body, values: list[Value], expr: ast.CallExpr) -> Value:
        number = legacy_field_list(body, values[0], expr.args[0].value.pos)
        return _emit(body, f"{function}_preserving_field_list", expr, (number,))

    return lower


def _truncate(body: Body, values: list[Value], expr: ast.CallExpr) -> Value:
    return _emit(body, "truncate", expr, (scalar(body, values[0], expr.args[0].value.pos, "the length"),))


def _check(function: str) -> Callable[[Body, list[Value], ast.CallExpr], Value]:
    def lower(body: Body, values: list[Value], expr: ast.CallExpr) -> Value:
        return _emit(body, function, expr, (expression(body, values[0], expr.args[0].value.pos),))

    return lower


def _log_msg(body: Body, values: list[Value], expr: ast.CallExpr) -> Value:
    return _emit(body, "log_msg", expr)


def _verify(body: Body, values: list[Value], expr: ast.CallExpr) -> Value:
    condition, error = values
    if body.place is not CodePlace.PARSER:
        raise CompileError(f"verify in {body.place.value}", expr.pos, "a parser state")
    assert isinstance(error, Run)
    body.out.append(ir.Verify(expression(body, condition, expr.args[0].value.pos), error.expr, expr.pos))
    return Nothing()


def _static_assert(body: Body, values: list[Value], expr: ast.CallExpr) -> Value:
    condition = values[0]
    if not isinstance(condition, Run) or not isinstance(condition.expr, ir.Const):
        raise CompileError(
            "static_assert of a value known only at run time", expr.args[0].value.pos, "a constant"
        )
    if not condition.expr.value:
        message = (
            values[1].value if len(values) > 1 and isinstance(values[1], Text) else "static_assert failed"
        )
        raise CompileError(message, expr.pos, "a condition that holds")
    return constant(t.BOOL, 1, expr.pos)


def _digest(body: Body, values: list[Value], expr: ast.CallExpr) -> Value:
    place = expr.args[1].value.pos
    data = data_type(type_of(values[1]), place)
    name = data.name or f"digest_{len(body.unit.digests)}"
    known = body.unit.digests.setdefault(name, ir.Digest(name, data, expr.pos))
    if known.data != data:
        raise CompileError(f"two types of digests are called {name!r}", place, "another name for one of them")
    body.out.append(ir.Extern("digest", name, (flatten(body, values[1], place, enums=True),), expr.pos))
    return Nothing()


# Each function with the blocks that it may be called in (none: all of them) and its numbers of parameters.
_FUNCTIONS: dict[
    str, tuple[tuple[Stage, ...], tuple[int, ...], Callable[[Body, list[Value], ast.CallExpr], Value]]
] = {
    "hash": ((), (5,), _hash),
    "random": ((), (3,), _random),
    "verify_checksum": ((Stage.VERIFY,), (4,), _checksum("verify_checksum")),
    "verify_checksum_with_payload": ((Stage.VERIFY,), (4,), _checksum("verify_checksum_with_payload")),
    "update_checksum": ((Stage.COMPUTE,), (4,), _checksum("update_checksum")),
    "update_checksum_with_payload": ((Stage.COMPUTE,), (4,), _checksum("update_checksum_with_payload")),
    "mark_to_drop": (
        _CONTROLS,
        (
            0,
            1,
        ),
        _mark_to_drop,
    ),
    "clone": (_CONTROLS, (2,), _clone),
    "clone_preserving_field_list": (_CONTROLS, (3,), _clone),
    "clone3": (_CONTROLS, (3,), _clone3),
    "resubmit_preserving_field_list": ((Stage.INGRESS,), (1,), _keep("resubmit")),
    "resubmit": ((Stage.INGRESS,), (1,), _keep_data("resubmit")),
    "recirculate_preserving_field_list": ((Stage.EGRESS,), (1,), _keep("recirculate")),
    "recirculate": ((Stage.EGRESS,), (1,), _keep_data("recirculate")),
    "truncate": (_CONTROLS, (1,), _truncate),
    "assert": ((), (1,), _check("assert")),
    "assume": ((), (1,), _check("assume")),
    "log_msg": (
        (),
        (
            1,
            2,
        ),
        _log_msg,
    ),
    "verify": ((), (2,), _verify),
    "static_assert": (
        (),
        (
            1,
            2,
        ),
        _static_assert,
    ),
    "digest": ((Stage.INGRESS,), (2,), _digest),
}
