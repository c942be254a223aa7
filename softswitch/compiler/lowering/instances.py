"""Lower instances: extern objects, and controls and parsers with their constructor arguments."""

from __future__ import annotations

from collections.abc import Sequence

from softswitch.compiler import ir
from softswitch.compiler.errors import CompileError, Unsupported
from softswitch.compiler.frontend import ast
from softswitch.compiler.lowering import types as t
from softswitch.compiler.lowering.check import evaluate, known, type_at, whole_number
from softswitch.compiler.lowering.passing import bind
from softswitch.compiler.lowering.types import data_type
from softswitch.compiler.lowering.unit import (
    Body,
    Instance,
    add_named,
    applications,
    control_name,
    spelling,
)
from softswitch.compiler.lowering.values import (
    Block,
    BlockDef,
    ExternDef,
    Local,
    Object,
    Run,
    Scope,
    Symbol,
    TypeName,
    Value,
    Variable,
    show,
)

MAX_REGISTER = 1 << 28
"""Maximum number of cells of one register, counter or meter."""

COLOUR = ir.Bits(2)
"""The type of a meter's result: 0 green, 1 yellow, 2 red."""


def declare_instance(body: Body, decl: ast.Instantiation, prefix: str, users: object = ()) -> None:
    """Declare an instance in the scope of `body`; `users` is the code that may apply it."""
    ref = decl.type
    if isinstance(ref, ast.StackTypeRef):
        raise Unsupported("an array of instances", ref.pos, "a declaration for each instance")
    if not isinstance(ref, ast.NamedType):
        raise CompileError("this cannot be instantiated", ref.pos, "an extern, control or parser")
    symbol = body.scope.lookup(ref.name, ref.pos, absolute=ref.absolute)
    if isinstance(symbol, TypeName) and isinstance(symbol.type, t.ExternType):  # a typedef of an extern
        symbol = body.scope.lookup(symbol.type.name, ref.pos, absolute=True)
    name = control_name(prefix, decl.name, decl.annotations)
    body.scope.declare(decl.name, _instance(body, symbol, ref, decl, name, users))


def _instance(
    body: Body, symbol: Symbol, ref: ast.NamedType, decl: ast.Instantiation, name: str, users: object
) -> Symbol:
    match symbol:
        case ExternDef():
            return Variable(body.unit.make_object(body, symbol, ref, decl, name), pos=decl.pos)
        case BlockDef():
            if decl.initializer is not None:
                raise CompileError(
                    f"{ref.name!r} is no extern and has no abstract methods",
                    decl.pos,
                    "no { … } after the instance",
                )
            block = make_block(body, symbol, decl.args, decl.pos)
            instance = Instance(block, name, Scope(symbol.scope))
            calls = applications(users, decl.name)
            instance.sites = max(1, len(calls))
            instance.copied = _different(block.decl.params, calls)
            return Local(instance, pos=decl.pos)
        case _:
            raise CompileError(
                f"{ref.name!r} cannot be instantiated", ref.pos, "an extern, control or parser"
            )


def _different(params: Sequence[ast.ParamDecl], calls: Sequence[ast.CallExpr]) -> frozenset[str]:
    """Return the names of the parameters whose arguments differ between `calls`."""

    def given(place: int, name: str, call: ast.CallExpr) -> str:
        named = {arg.name: arg.value for arg in call.args if arg.name is not None}
        value = named.get(name, call.args[place].value if place < len(call.args) else None)
        return spelling(value) if value is not None else ""

    return frozenset(
        param.name
        for place, param in enumerate(params)
        if len({given(place, param.name, call) for call in calls}) > 1
    )


def declare_arguments(scope: Scope, block: Block, prefix: str) -> None:
    """Declare the constructor arguments of a block in its scope; name instances among them with `prefix`."""
    for name, value in block.args:
        if isinstance(value, Instance):
            if value.name == name:
                value.name = f"{prefix}.{name}" if prefix else name
            scope.declare(name, Local(value, pos=block.pos))
        else:
            assert isinstance(value, Value)
            scope.declare(name, Variable(value, pos=block.pos))


def make_block(body: Body, symbol: BlockDef, args: Sequence[ast.GivenArgument], pos: ir.Position) -> Block:
    """Return a control or parser with its constructor arguments, evaluated at compile time.

    Raises CompileError, or Unsupported for a generic control or parser.
    """
    decl = symbol.decl
    if decl.type_params:
        raise Unsupported(f"generic {decl.name!r}", decl.pos)
    exprs = bind(f"the constructor of {decl.name}", decl.constructor_params, args, pos)
    values: list[tuple[str, Value | Instance]] = []
    declaring = Body(body.unit, symbol.scope, body.place, body.stage, "constructor")
    for param, expr in zip(decl.constructor_params, exprs, strict=True):
        type_ = type_at(declaring, param.type)
        if isinstance(type_, t.BlockType):
            values.append((param.name, _block_argument(body, param, type_, expr, decl)))
            continue
        if isinstance(type_, t.ExternType):
            if isinstance(expr, ast.CallExpr):
                raise Unsupported(
                    "an extern without a name of its own", expr.pos, "a declaration of the instance"
                )
            value = evaluate(body, expr)
            if not isinstance(value, Object) or value.type != type_:
                raise CompileError(
                    f"{show(value)} does not fit parameter {param.name!r}", expr.pos, t.describe(type_)
                )
        else:
            value = known(body, expr, type_, f"constructor parameter {param.name!r}")
        if isinstance(value, Run):
            value = Run(value.type, value.expr, why=f"{param.name!r} is a constructor parameter")
        values.append((param.name, value))
    body.unit.instantiated.add(id(decl))
    return Block(decl, tuple(values), pos=pos)


def _block_argument(
    body: Body,
    param: ast.ParamDecl,
    type_: t.BlockType,
    expr: ast.Expr,
    decl: ast.ControlDecl | ast.ParserDecl,
) -> Instance:
    """Return the instance that is a constructor argument: a declared one, or one that the argument makes."""
    found: Instance | None = None
    match expr:
        case ast.CallExpr(ast.Name(name, absolute, pos=pos), (), args):
            symbol = body.scope.lookup(name, pos, absolute=absolute)
            if isinstance(symbol, BlockDef):
                block = make_block(body, symbol, args, expr.pos)
                calls = applications((decl,), param.name)
                found = Instance(block, param.name, Scope(symbol.scope), sites=max(1, len(calls)))
                found.copied = _different(symbol.decl.params, calls)
        case ast.Name(name, absolute, pos=pos):
            symbol = body.scope.lookup(name, pos, absolute=absolute)
            found = symbol.item if isinstance(symbol, Local) and isinstance(symbol.item, Instance) else None
            if found is not None:  # it may be applied elsewhere, too, with other arguments
                found.sites += 1
                params = (p for p in found.block.decl.params if p.direction)
                found.copied |= {p.name for p in params}
    if found is None:
        raise CompileError(
            f"this is not an instance for parameter {param.name!r}", expr.pos, t.describe(type_)
        )
    return found


# --------------------------------------------------------------------------- extern objects


def make_register(
    body: Body,
    cell: t.Type,
    size: int,
    name: str,
    decl: ast.Instantiation,
    annotations: tuple[ir.Annotation, ...],
    initial: Sequence[int] = (),
) -> None:
    """Add a register to the program; a register of structs becomes one register for each scalar.

    Args:
        body: The body in which the register is declared.
        cell: The type of a cell.
        size: Number of cells.
        name: Control-plane name of the register.
        decl: Declaration of the register.
        annotations: Annotations of the declaration.
        initial: Initial value of each scalar of a cell; if empty, all are zero.

    Raises CompileError.
    """
    unit, type_pos, pos = body.unit, decl.type.pos, decl.pos
    expected = "bit<W>, int<W>, bool or structs of these"
    refused = Unsupported(f"a register of {t.describe(cell)}", type_pos, expected)
    if isinstance(t.base(cell), t.HeaderType | ir.Enum | ir.VarBits):
        raise refused
    data = data_type(cell, type_pos)
    leaves = list(data.leaves())
    if not leaves or not all(isinstance(scalar, ir.Bits | ir.Bool) for _, scalar in leaves):
        raise refused
    parts = tuple(f"{name}#{path}" if path else name for path, _ in leaves)
    starts = initial or (0,) * len(parts)
    array = ir.RegisterArray(name, data, size, parts, pos=pos, annotations=annotations)
    add_named(unit.register_arrays, array)
    for part, (_, scalar), start in zip(parts, leaves, starts, strict=True):
        assert isinstance(scalar, ir.Bits | ir.Bool)
        unit.registers[part] = ir.Register(
            part, scalar, size, pos=pos, annotations=annotations, initial=start
        )


def make_in_place(body: Body, prop: ast.Property, prefix: str, expected: str) -> Object:
    """Return the object that a table's property constructs; its name begins with `prefix`."""
    call = prop.value
    assert isinstance(call, ast.CallExpr)
    symbol = None
    if isinstance(call.callee, ast.Name):
        ref = ast.NamedType(call.callee.name, call.callee.absolute, call.type_args, pos=call.callee.pos)
        symbol = body.scope.lookup(ref.name, ref.pos, absolute=ref.absolute)
    if not isinstance(symbol, ExternDef):
        raise CompileError(f"this is no {prop.name}", prop.value.pos, expected)
    decl = ast.Instantiation(ref, call.args, prop.name, None, pos=prop.pos, annotations=prop.annotations)
    name = control_name(prefix, decl.name, decl.annotations)
    return body.unit.make_object(body, symbol, ref, decl, name)


def cells(body: Body, expr: ast.Expr) -> int:
    """Return the value of `expr`, a number of cells. Raises CompileError if it is out of range."""
    size = whole_number(body, expr)
    if not 0 < size <= MAX_REGISTER:
        raise CompileError(f"a size of {size}", expr.pos, f"1 to {MAX_REGISTER}")
    return size
