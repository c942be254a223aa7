"""``packet_in`` and ``packet_out``: extract, lookahead, advance, length and emit."""

from __future__ import annotations

from softswitch.compiler import ir
from softswitch.compiler.errors import CompileError, Unsupported
from softswitch.compiler.frontend import ast
from softswitch.compiler.lowering import types as t
from softswitch.compiler.lowering.calls.extern_calls import choose
from softswitch.compiler.lowering.emit import expression, store
from softswitch.compiler.lowering.expressions.check import evaluate, evaluate_as, type_at, writable
from softswitch.compiler.lowering.expressions.convert import bits_cast, convert, mismatch
from softswitch.compiler.lowering.unit import Body
from softswitch.compiler.lowering.values import Group, Nothing, Packet, Run, Value, parts_of, show, unknown

_METHODS = {"packet_in": ("extract", "lookahead", "advance", "length"), "packet_out": ("emit",)}
_ARGUMENTS = {"extract": (1, 2), "lookahead": (0,), "advance": (1,), "length": (0,), "emit": (1,)}


def call_packet_method(body: Body, base: Packet, expr: ast.Call, method: str) -> Value:
    """Emit a call of a packet's method. Raises CompileError."""
    assert isinstance(expr.callee, ast.Member)
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
            _emit(body, value if type_ is None else convert(value, type_, arg.pos), arg.pos)
    return Nothing()


def _extract(body: Body, expr: ast.Call) -> Value:
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


def _type_argument(body: Body, expr: ast.Call) -> t.Type | None:
    """Return the type that a call gives for the method's type parameter, or None."""
    if len(expr.type_args) > 1:
        raise CompileError(f"{len(expr.type_args)} type arguments", expr.pos, "at most one")
    type_ = type_at(body, expr.type_args[0]) if expr.type_args else t.Infer()
    return None if isinstance(type_, t.Infer) else type_


def _extract_target(body: Body, expr: ast.Call, arg: ast.Expr) -> Run:
    type_ = _type_argument(body, expr)
    if not isinstance(arg, ast.DontCare):
        target = writable(body, arg)
        if type_ is not None and not t.same(target.type, type_):
            raise mismatch(target, type_, arg.pos, "what is extracted into")
        return target
    if type_ is None:
        raise CompileError("the type of the header to skip is not known", arg.pos, "extract<header type>(_)")
    return Run(type_, body.temporary(type_, "skipped", arg.pos), writable=True)


def lookahead(body: Body, expr: ast.Call) -> Value:
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
    return Group(type_, tuple(values)), end


def _emit(body: Body, value: Value, pos: ir.Position) -> None:
    if isinstance(value, Group) and not isinstance(value.type, t.HeaderType):
        for part in value.parts:
            _emit(body, part, pos)
        return
    shape = t.base(value.type) if isinstance(value, Run) else None
    if isinstance(value, Run) and isinstance(shape, t.StackType) and isinstance(shape.element, t.UnionType):
        for part in parts_of(value, pos):
            _emit(body, part, pos)
    elif isinstance(value, Run) and isinstance(shape, t.HeaderType | t.StackType):
        body.out.append(ir.Emit(value.expr, pos))
    elif isinstance(value, Run) and isinstance(shape, t.StructType | t.UnionType | t.Tuple):
        for part in parts_of(value, pos):
            _emit(body, part, pos)
    elif isinstance(value, Group):
        raise Unsupported("emit of a header given by its fields", pos, "a header variable")
    else:
        raise CompileError(f"emit of {show(value)}", pos, "a header, a stack, or a struct of them")
