"""Lower calls: look up the callee, and emit the statements of the call."""

from __future__ import annotations

from softswitch.compiler import ir
from softswitch.compiler.errors import CompileError, Unsupported
from softswitch.compiler.frontend import ast
from softswitch.compiler.lowering import types as t
from softswitch.compiler.lowering.blocks import apply_instance, apply_type
from softswitch.compiler.lowering.check import evaluate, whole_number
from softswitch.compiler.lowering.convert import joined
from softswitch.compiler.lowering.extern_calls import (
    MethodCall,
    choose,
    extern_arguments,
    foreign_call,
    hash_into,
)
from softswitch.compiler.lowering.known_externs import call_extern_function, call_packet_method
from softswitch.compiler.lowering.operators import is_valid
from softswitch.compiler.lowering.subroutines import call_action, call_function
from softswitch.compiler.lowering.tables import lowered_table
from softswitch.compiler.lowering.unit import (
    Body,
    CodePlace,
    DeclaredAction,
    DeclaredTable,
    Instance,
    Selector,
    Stage,
)
from softswitch.compiler.lowering.values import (
    OBJECTS,
    ApplyOutcome,
    BlockDef,
    ExternDef,
    ExternFunctions,
    Functions,
    GroupValue,
    Invalid,
    Local,
    Nothing,
    Number,
    Object,
    PacketValue,
    Run,
    Symbol,
    TypeName,
    Value,
    parts_of,
    show,
    type_of,
    unknown,
)

_SIZES = ("minSizeInBits", "minSizeInBytes", "maxSizeInBits", "maxSizeInBytes")


def call_method(body: Body, base: Value, expr: ast.CallExpr, method: str) -> Value:
    """Emit a call of a method and return its result. Raises CompileError."""
    match base:
        case PacketValue():
            return call_packet_method(body, base, expr, method)
        case Object():
            return _call_object(body, base, expr, method)
        case Run() | GroupValue() | Invalid():
            shape = t.base(type_of(base))
            if method in _SIZES and t.width(shape) is not None:
                return header_size(shape, expr, method)
            if isinstance(shape, t.HeaderType):
                return _call_header(body, base, expr, method)
            if isinstance(shape, t.UnionType) and method == "isValid":
                return _union_is_valid(base, expr)
            if isinstance(shape, t.StackType) and isinstance(base, Run):
                return _call_stack(body, base, shape, expr, method)
    raise CompileError(
        f"{show(base)} has no method {method!r}", expr.callee.pos, "a header, stack or extern before the dot"
    )


def header_size(type_: t.Type, expr: ast.CallExpr, method: str) -> Value:
    """Return the result of ``minSizeInBits()`` or a similar method: a compile-time constant."""
    if method not in _SIZES:
        raise unknown(f"method of type {t.describe(type_)}", method, _SIZES, expr.callee.pos)
    _no_arguments(expr, method)
    bits = t.width(type_, varbits=method[:3])
    if bits is None:
        raise CompileError(f"{t.describe(type_)} has no size", expr.pos, "a type of fixed width")
    return Number(bits if method.endswith("Bits") else (bits + 7) // 8)


def _no_arguments(expr: ast.CallExpr, method: str) -> None:
    if expr.args:
        raise CompileError(f"{len(expr.args)} arguments for {method}", expr.args[0].pos, f"{method}()")


def _target(base: Value, expr: ast.CallExpr) -> ir.Expr:
    """Return the header or stack that a method changes. Raises CompileError if it cannot be changed."""
    if isinstance(base, Run) and base.writable:
        return base.expr
    reason = f": {base.why}" if isinstance(base, Run) and base.why else ""
    raise CompileError(f"this cannot be changed{reason}", expr.pos, "a variable, or a part of one")


def _call_header(body: Body, base: Value, expr: ast.CallExpr, method: str) -> Value:
    if method in ("isValid", "setValid", "setInvalid"):
        _no_arguments(expr, method)
    match method:
        case "isValid":
            return Run(t.BOOL, is_valid(base, expr.pos))
        case "setValid" | "setInvalid":
            body.out.append(ir.SetValidity(_target(base, expr), method == "setValid", pos=expr.pos))
            return Nothing()
    names = ("isValid", "setValid", "setInvalid", *_SIZES)
    raise unknown(f"method of header {t.describe(type_of(base))}", method, names, expr.callee.pos)


def _union_is_valid(base: Run | GroupValue | Invalid, expr: ast.CallExpr) -> Value:
    _no_arguments(expr, "isValid")
    valid: ir.Expr = ir.Const(t.BOOL, 0, pos=expr.pos)
    for part in parts_of(base, expr.pos):
        valid = joined("||", valid, is_valid(part, expr.pos), expr.pos)
    return Run(t.BOOL, valid)


def _call_stack(body: Body, base: Run, stack: t.StackType, expr: ast.CallExpr, method: str) -> Value:
    if method not in ("push_front", "pop_front"):
        raise unknown("method of a header stack", method, ("push_front", "pop_front"), expr.callee.pos)
    if len(expr.args) != 1:
        raise CompileError(f"{len(expr.args)} arguments for {method}", expr.pos, f"{method}(count)")
    count = whole_number(body, expr.args[0].value)
    if count <= 0:
        raise CompileError(f"{method} of {count} elements", expr.args[0].value.pos, "at least 1")
    count = min(count, stack.size)
    body.out.append(ir.Shift(_target(base, expr), count if method == "push_front" else -count, pos=expr.pos))
    return Nothing()


# --------------------------------------------------------------------------- extern objects


def _call_object(body: Body, base: Object, expr: ast.CallExpr, method: str) -> Value:
    overloads = [
        prototype
        for prototype in base.decl.methods
        if prototype.result is not None and prototype.name == method
    ]
    if not overloads:
        methods = [prototype.name for prototype in base.decl.methods if prototype.result is not None]
        raise unknown(f"method of {base.type.name}", method, methods, expr.callee.pos)
    if body.place is CodePlace.CONSTANT:
        raise CompileError("an extern is used in a constant expression", expr.pos, "a compile-time constant")
    what = f"{base.type.name}.{method}"
    prototype = choose(overloads, expr, what)
    known = {param.name: arg for param, arg in zip(base.decl.type_params, base.type.args, strict=True)}
    handlers = body.unit.architecture.methods
    handler = handlers.get(what) or handlers.get(base.type.name)
    if handler is None:
        if base.type.name in OBJECTS:
            raise Unsupported(what, expr.pos)
        return foreign_call(body, prototype, expr, what, known)
    return handler(MethodCall(body, method, extern_arguments(body, prototype, expr, what, known), expr, base))


def call(body: Body, expr: ast.CallExpr) -> Value:
    """Emit a call and return its result. Raises CompileError."""
    match expr.callee:
        case ast.Name(name, absolute, pos=pos):
            return _call_name(body, expr, name, body.scope.lookup(name, pos, absolute=absolute))
        case ast.MemberExpr(base, method):
            symbol = symbol_before_dot(body, base)
            if method == "apply" and isinstance(symbol, BlockDef | Local):
                return _apply(body, symbol, expr)
            if isinstance(symbol, Local) and isinstance(symbol.item, DeclaredTable | Instance):
                what = "table" if isinstance(symbol.item, DeclaredTable) else "parser or control"
                raise unknown(f"method of a {what}", method, ("apply",), expr.callee.pos)
            if isinstance(symbol, TypeName):
                return header_size(symbol.type, expr, method)
            return call_method(body, evaluate(body, base), expr, method)
    raise CompileError("this cannot be called", expr.pos, "a function, action or method")


def symbol_before_dot(body: Body, base: ast.Expr) -> Symbol | None:
    """Return the symbol that a name or type before a dot refers to; None for other expressions."""
    match base:
        case ast.Name(name, absolute, pos=pos) | ast.TypeExpr(ast.NamedType(name, absolute, _, pos=pos)):
            return body.scope.lookup(name, pos, absolute=absolute)
        case _:
            return None


def _call_name(body: Body, expr: ast.CallExpr, name: str, symbol: Symbol) -> Value:
    match symbol:
        case Local(DeclaredAction() as action):
            call_action(body, action, expr)
            return Nothing()
        case Functions():
            return call_function(body, symbol, expr, name)
        case ExternFunctions():
            return call_extern_function(body, symbol, expr, name)
        case Local():
            raise CompileError(f"{name!r} cannot be called by its name alone", expr.pos, f"{name}.apply(…)")
        case ExternDef() | BlockDef():
            raise CompileError(
                f"{name!r} is instantiated inside an expression", expr.pos, "a declaration of an instance"
            )
        case _:
            raise CompileError(f"{name!r} cannot be called", expr.pos, "a function, action or method")


def _apply(body: Body, symbol: BlockDef | Local, expr: ast.CallExpr) -> Value:
    match symbol:
        case Local(DeclaredTable() as table):
            return apply_table(body, table, expr)
        case Local(Instance() as instance):
            apply_instance(body, instance, expr)
            return Nothing()
        case BlockDef():
            apply_type(body, symbol, expr)
            return Nothing()
        case _:
            raise CompileError("only tables, controls and parsers have apply()", expr.pos)


def apply_table(body: Body, table: DeclaredTable, expr: ast.CallExpr) -> ApplyOutcome:
    """Emit the application of a table, and return its outcome. Raises CompileError."""
    if expr.args:
        raise CompileError(
            "apply() of a table has no parameters", expr.args[0].pos, f"{table.decl.name}.apply()"
        )
    if body.place is not CodePlace.CONTROL:
        raise CompileError(
            f"a table cannot be applied in {body.place.value}", expr.pos, "the apply block of a control"
        )
    if body.stage in (Stage.VERIFY, Stage.COMPUTE, Stage.DEPARSER, Stage.INGRESS_DEPARSER):
        raise Unsupported(f"a table in the {body.stage.name.lower()} block", expr.pos, "ingress or egress")
    lowered = lowered_table(table, expr.pos)
    body.usage.exits |= table.exits
    body.out.extend(table.prelude)
    if table.selector is not None:
        return _apply_with_selector(body, lowered.name, table.selector, expr.pos)
    apply = ir.Apply(lowered.name, None, None, pos=expr.pos)
    body.out.append(apply)
    return ApplyOutcome(apply)


def _apply_with_selector(body: Body, name: str, selector: Selector, pos: ir.Position) -> ApplyOutcome:
    """Emit the application of a table with a selector.

    If the matching entry refers to a group, a hash chooses a member of the group.
    """
    hit, action = body.temporary(t.BOOL, "hit", pos), body.temporary(t.BIT32, "action_run", pos)
    apply = ir.Apply(name, hit, action, pos=pos)
    body.out.append(apply)
    chosen = (
        hash_into(selector.slot, selector.algorithm, selector.data, selector.count, pos),
        ir.Apply(ir.members_table(name), None, action, pos=pos),
    )
    is_group = ir.Binary(t.BOOL, "==", action, ir.Const(t.BIT32, selector.index, pos=pos), pos=pos)
    body.out.append(ir.If(is_group, chosen, (), pos=pos))
    return ApplyOutcome(apply, hit, action)
