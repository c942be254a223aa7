"""Check arguments of extern functions and methods against their declarations.

Type parameters are inferred from the arguments: a type parameter for which only a literal without width is
given stays open unless another argument, or the object's type, determines it.

Instances of externs that v1model lacks are errors, but they and their uses are checked nevertheless. This
includes abstract methods and their implementations, which no extern of v1model has ("Instantiating objects
with abstract methods" in the P4_16 specification).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from softswitch.compiler import ir
from softswitch.compiler.errors import CompileError, Unsupported
from softswitch.compiler.frontend import ast
from softswitch.compiler.ir.walk import path_of
from softswitch.compiler.lowering import types as t
from softswitch.compiler.lowering.check import evaluate, evaluate_arguments, ir_annotations, known, type_at
from softswitch.compiler.lowering.convert import expression, flatten
from softswitch.compiler.lowering.instances import COLOUR, cells, declare_instance
from softswitch.compiler.lowering.passing import (
    ParamRole,
    bind,
    check_argument,
    check_prototype,
    is_optional,
    passed_to_nothing,
)
from softswitch.compiler.lowering.subroutines import formals_of, lower_body
from softswitch.compiler.lowering.unit import Body, CodePlace, add_named, constant_body
from softswitch.compiler.lowering.values import (
    BlockDef,
    Default,
    ExternDef,
    Formal,
    GroupValue,
    Nothing,
    Number,
    Object,
    Run,
    Scope,
    TypeName,
    Value,
    Variable,
    number_of,
    parts_of,
    show,
    type_of,
    unknown,
)


def choose(overloads: Sequence[ast.Prototype], expr: ast.CallExpr, what: str) -> ast.Prototype:
    """Return the overload that fits the number and names of a call's arguments.

    Raises CompileError if no overload fits, or several do.
    """
    fitting = [prototype for prototype in overloads if _fits(prototype, expr)]
    if len(fitting) > 1:
        places = " and ".join(str(prototype.pos) for prototype in fitting)
        raise CompileError(
            f"these arguments fit {len(fitting)} declarations of {what}, at {places}",
            expr.pos,
            "arguments by name that fit one of them",
        )
    if fitting:
        return fitting[0]
    if len(overloads) == 1:
        bind(what, overloads[0].params, expr.args, expr.pos)  # raises the error
    counts = " or ".join(str(len(prototype.params)) for prototype in overloads)
    raise CompileError(f"{len(expr.args)} arguments for {what}", expr.pos, counts)


def _fits(prototype: ast.Prototype, expr: ast.CallExpr) -> bool:
    """Return True if a call's arguments fit a function's parameters (P4_16: "Extern objects")."""
    if len(expr.args) > len(prototype.params):
        return False
    by_place = [param.name for param, arg in zip(prototype.params, expr.args, strict=False) if not arg.name]
    given = {*by_place, *(arg.name for arg in expr.args if arg.name)}
    needed = {param.name for param in prototype.params if param.default is None and not is_optional(param)}
    return needed <= given <= {param.name for param in prototype.params}


def extern_arguments(
    body: Body,
    prototype: ast.Prototype,
    expr: ast.CallExpr,
    what: str,
    known: Mapping[str, t.Type] | None = None,
) -> list[Value]:
    """Return the arguments of a call in the order of the parameters; `known` binds type parameters."""
    return _call(body, prototype, expr, what, known or {}, tuple(known or ()))[0]


def foreign_call(
    body: Body, prototype: ast.Prototype, expr: ast.CallExpr, what: str, known: Mapping[str, t.Type]
) -> Value:
    """Check a call of an extern that this target lacks; return a variable in place of its result."""
    values, bound = _call(body, prototype, expr, what, known, tuple(known))
    names = (*known, *(param.name for param in prototype.type_params))
    declaring = constant_body(body.unit, _bound_scope(body, names, bound, prototype.pos))
    _refuse_open_numbers(declaring, prototype, expr, values)
    assert prototype.result is not None
    result = type_at(declaring, prototype.result)
    if isinstance(result, t.Void):
        return Nothing()
    if t.lowered(result) is None:
        raise Unsupported(f"{what} returns {t.describe(result)}", expr.pos)
    return Run(result, body.temporary(result, "result", expr.pos))


def _refuse_open_numbers(
    declaring: Body, prototype: ast.Prototype, expr: ast.CallExpr, values: Sequence[Value]
) -> None:
    """Raise CompileError for numbers of unknown width: a type parameter cannot be an ``int``."""
    for param, arg, value in zip(prototype.params, expr.args, values, strict=False):
        if isinstance(value, Number) and isinstance(type_at(declaring, param.type), t.TypeVar):
            raise CompileError(
                f"the width of {value.value} is not known", arg.value.pos, f"a width, such as 8w{value.value}"
            )


def foreign_object(
    body: Body, extern: ast.ExternDecl, type_: t.ExternType, expr: ast.CallExpr
) -> t.ExternType:
    """Check the construction of an extern that this target lacks; return the object's type.

    Missing type arguments are inferred from the constructor's arguments (P4_16: "Constructor invocations").
    Raises CompileError if this is impossible.
    """
    what = f"the constructor of {extern.name}"
    constructors = [method for method in extern.methods if method.result is None]
    if not constructors:
        raise CompileError(
            f"extern {extern.name!r} has no constructor", expr.pos, "an extern with a constructor"
        )
    prototype = choose(constructors, expr, what)
    names = [param.name for param in extern.type_params]
    known = dict(zip(names, type_.args, strict=False))
    values, bound = _call(body, prototype, expr, what, known, names)
    declaring = constant_body(body.unit, _bound_scope(body, names, bound, prototype.pos))
    _refuse_open_numbers(declaring, prototype, expr, values)
    for name in names:
        if name not in bound:
            raise CompileError(
                f"type {name!r} of {extern.name!r} is not known",
                expr.pos,
                f"{extern.name}<{', '.join(names)}>(…) with the types",
            )
    return t.ExternType(extern.name, tuple(bound[name] for name in names))


def _call(
    body: Body,
    prototype: ast.Prototype,
    expr: ast.CallExpr,
    what: str,
    known: Mapping[str, t.Type],
    outer: Sequence[str],
) -> tuple[list[Value], Mapping[str, t.Type]]:
    """Return the arguments of a call, and the types that are known for type parameters after the call.

    `outer` are the type parameters of the enclosing extern. `known` has the types known before the call.
    """
    bound = dict(known)
    own = [param.name for param in prototype.type_params]
    if len(expr.type_args) not in (0, len(own)):
        raise CompileError(f"{len(expr.type_args)} type arguments for {what}", expr.pos, f"{len(own)}")
    for name, ref in zip(own, expr.type_args, strict=False):
        given = type_at(body, ref)
        if not isinstance(given, t.Infer):
            bound[name] = given
    named = {arg.name for arg in expr.args}
    params = [
        param
        for place, param in enumerate(prototype.params)
        if place < len(expr.args) or param.name in named or not is_optional(param)
    ]
    args = bind(what, params, expr.args, expr.pos)
    scope = _bound_scope(body, (*outer, *own), bound, prototype.pos)
    types = [type_at(constant_body(body.unit, scope), param.type) for param in params]
    values = evaluate_arguments(body, [param.direction in ("out", "inout") for param in params], args)
    for type_, value in zip(types, values, strict=True):
        if not isinstance(value, Number | Default):
            t.infer(type_, type_of(value), bound)
    scope = _bound_scope(body, (*outer, *own), bound, prototype.pos)
    result = []
    for param, value, arg in zip(params, values, args, strict=True):
        type_ = type_at(constant_body(body.unit, scope), param.type)
        if t.is_open(type_) or (isinstance(type_, t.Int) and isinstance(value, Run)):
            result.append(value)
            continue
        formal = Formal(param.direction, type_, param.name, pos=param.pos)
        result.append(check_argument(body, formal, value, arg.pos))
    return result, bound


def _bound_scope(body: Body, names: Sequence[str], bound: Mapping[str, t.Type], pos: ir.Position) -> Scope:
    scope = Scope(body.scope.root())
    for name in names:
        scope.declare(name, TypeName(bound.get(name, t.TypeVar(name)), pos=pos))
    return scope


@dataclass(frozen=True, slots=True)
class ExternCall:
    """A call of an extern function or method: its name, and its arguments in the order of the parameters."""

    body: Body
    name: str
    values: Sequence[Value]
    expr: ast.CallExpr

    @property
    def pos(self) -> ir.Position:
        """The position of the call."""
        return self.expr.pos

    def place(self, number: int) -> ir.Position:
        """Return the position of an argument; if it is left out, the position of the call."""
        return self.expr.args[number].value.pos if number < len(self.expr.args) else self.expr.pos

    def scalar(self, number: int, what: str, width: int = 32) -> ir.Expr:
        """Return an argument as an expression of type Bits; see `scalar`."""
        return scalar(self.body, self.values[number], self.place(number), what, width)

    def expression(self, number: int) -> ir.Expr:
        """Return an argument as an expression."""
        return expression(self.body, self.values[number], self.place(number))

    def data(self, number: int, *, enums: bool = False) -> tuple[ir.Expr, ...]:
        """Return the scalars that an argument consists of, in order; see `convert.flatten`."""
        return flatten(self.body, self.values[number], self.place(number), enums=enums)

    def emit(
        self,
        function: str,
        *args: tuple[ir.Expr, ...],
        instance: str = "",
        after: tuple[ir.Stmt, ...] = (),
    ) -> Nothing:
        """Emit an `ir.Extern` statement for this call, and the statements that must follow it.

        Return `Nothing`, as the statement has no result.
        """
        self.body.out += (ir.Extern(function, instance, args, pos=self.expr.pos), *after)
        return Nothing()


@dataclass(frozen=True, slots=True)
class MethodCall(ExternCall):
    """A call of a method of the extern object `on`."""

    on: Object


def leaves(value: Value, pos: ir.Position) -> list[Value]:
    """Return the scalars that a value consists of, in order."""
    if isinstance(value, GroupValue) or isinstance(t.base(type_of(value)), t.StructType | t.Tuple):
        return [leaf for part in parts_of(value, pos) for leaf in leaves(part, pos)]
    return [value]


def scalar(body: Body, value: Value, pos: ir.Position, what: str, width: int = 32) -> ir.Expr:
    """Return an argument as an expression of type Bits; an ``int`` gets `width` bits."""
    if isinstance(value, Number):
        if not 0 <= value.value < 1 << width:
            raise CompileError(f"{what} is {value.value}", pos, f"0 to {(1 << width) - 1}")
        return ir.Const(ir.Bits(width), value.value, pos=pos)
    if isinstance(value, Run) and isinstance(t.lowered(value.type), ir.Bits):
        return value.expr
    raise CompileError(f"{what} is {show(value)}", pos, "bit<W>")


def plain_target(body: Body, value: Value, pos: ir.Position) -> tuple[ir.Expr, tuple[ir.Stmt, ...]]:
    """Return a place for an extern to write to, and the statements that must follow the call.

    If the target is a slice, or has a run-time index, the place is a new variable; the statements copy it to
    the target.
    """
    if not isinstance(value, Run):
        raise CompileError(f"{show(value)} cannot be written to", pos, "a variable, or a part of one")
    if path_of(value.expr) is not None:
        return value.expr, ()
    variable = body.temporary(value.type, "result", pos)
    return variable, (ir.Assign(value.expr, variable, pos=pos),)


def hash_into(
    target: ir.Var, algorithm: str, data: Sequence[ir.Expr], limit: ir.Expr, pos: ir.Position
) -> ir.Extern:
    """Return the statement ``target = H(data) % limit``; `algorithm` is a name of v1model or of `ir.crc`."""
    base = ir.Const(t.BIT32, 0, pos=pos)
    return ir.Extern("hash", algorithm, ((target,), (base,), tuple(data), (limit,)), pos=pos)


def enum_member(value: Value, pos: ir.Position, what: str) -> str:
    """Return the name of an argument that must be a constant of an enum. Raises CompileError."""
    match value:
        case Run(_, ir.Const(ir.Enum(_, members), number)):
            return members[number]
    raise CompileError(f"{what} is {show(value)}, known only at run time", pos, "a member of the enum")


@dataclass(frozen=True, slots=True)
class Making:
    """The construction of an object: its declaration, and the constructor's arguments by parameter name."""

    body: Body
    object: Object
    decl: ast.Instantiation
    args: Mapping[str, ast.Expr]
    annotations: tuple[ir.Annotation, ...]

    def value(self, name: str) -> Value:
        """Return the value of an argument. Raises CompileError if it is not known at compile time."""
        return known(self.body, self.args[name])

    def number(self, name: str) -> int:
        """Return the value of an argument that must be a number. Raises CompileError if it is not."""
        value = self.value(name)
        number = number_of(value)
        if number is None:
            raise CompileError(
                f"{show(value)} does not fit parameter {name!r}", self.args[name].pos, "a number"
            )
        return number

    def member(self, name: str, what: str) -> str:
        """Return the name of an argument that must be a constant of an enum; `what` names it in errors."""
        return enum_member(self.value(name), self.args[name].pos, what)

    def size(self) -> int:
        """Return the argument `size`, a number of cells. Raises CompileError if it is out of range."""
        return cells(self.body, self.args["size"])

    def unit(self) -> str:
        """Return the argument `type`: the unit of a counter or meter."""
        return self.member("type", "the type of a counter or meter").lower()

    @property
    def common(self) -> dict[str, Any]:
        """The position and the annotations, as keyword arguments for an object of the IR."""
        return {"pos": self.decl.pos, "annotations": self.annotations}

    def other(self, name: str, *types: str) -> Object:
        """Return an argument that must be an object of one of the externs `types`. Raises CompileError."""
        found = evaluate(self.body, self.args[name])
        if not isinstance(found, Object) or found.type.name not in types:
            raise CompileError(
                f"{show(found)} does not fit parameter {name!r}", self.args[name].pos, " or ".join(types)
            )
        return found


def make_object(
    body: Body, symbol: ExternDef, ref: ast.NamedType, decl: ast.Instantiation, name: str
) -> Object:
    """Add an object of one of the architecture's externs to the program and return it. Raises CompileError.

    Report an extern that the architecture lacks, and return an object of it, so that checking can continue.
    """
    architecture, extern = body.unit.architecture, symbol.decl.name
    maker = architecture.makers.get(extern)
    if maker is None:
        body.unit.refuse(architecture.unsupported(f"extern {extern!r}", architecture.makers, decl.pos))
    with body.unit.scratch():  # the bodies of its methods are lowered at their calls
        plain = checked_instance(body, symbol, ref, decl, name)
    if maker is None:
        return plain
    call = ast.CallExpr(ast.Name(ref.name, ref.absolute, pos=ref.pos), (), decl.args, pos=decl.pos)
    constructor = choose([m for m in symbol.decl.methods if m.result is None], call, name)
    params = [param.name for param in constructor.params]
    args = {arg.name or param: arg.value for param, arg in zip(params, decl.args, strict=False)}
    assert all(param.name in args or is_optional(param) for param in constructor.params)
    annotations = ir_annotations(body, decl.annotations)
    return maker(Making(body, replace(plain, annotations=annotations), decl, args, annotations))


def plain_object(making: Making) -> Object:
    """Return an object that the program needs no more of than its calls."""
    return making.object


def make_counter(making: Making) -> Object:
    """Add an array of counters to the program."""
    counter = ir.Counter(making.object.name, making.unit(), making.size(), None, **making.common)
    add_named(making.body.unit.counters, counter)
    return making.object


def make_meter(making: Making) -> Object:
    """Add an array of meters to the program."""
    meter = ir.Meter(making.object.name, making.unit(), making.size(), None, **making.common)
    add_named(making.body.unit.meters, meter)
    return making.object


def make_direct_counter(making: Making) -> Object:
    """Return a direct counter, which the table that names it adds to the program."""
    return replace(making.object, unit=making.unit())


def make_direct_meter(making: Making) -> Object:
    """Return a direct meter, which the table that names it adds to the program."""
    colour = making.body.unit.variable(f"{making.object.name}.colour", COLOUR)
    return replace(making.object, unit=making.unit(), colour=colour)


def make_profile(making: Making, *, selector: bool = False) -> Object:
    """Add an action profile or, with `selector`, an action selector to the program."""
    profile = ir.ActionProfile(making.object.name, making.size(), selector, **making.common)
    add_named(making.body.unit.action_profiles, profile)
    return making.object


def checked_instance(
    body: Body, symbol: ExternDef, ref: ast.NamedType, decl: ast.Instantiation, name: str
) -> Object:
    """Check the constructor call and the methods of an instance of an extern; return the object.

    The object has only the properties that follow from the extern's declaration. Raises CompileError.
    """
    if any(_constructs(body, arg.value) for arg in decl.args):
        raise Unsupported("an extern without a name of its own", decl.pos, "a declaration of the instance")
    bare = body.scope.lookup(ref.name, ref.pos, absolute=ref.absolute) is symbol and not ref.args
    given = t.ExternType(symbol.decl.name) if bare else type_at(body, ref)
    assert isinstance(given, t.ExternType)
    call = ast.CallExpr(ast.Name(ref.name, ref.absolute, pos=ref.pos), (), decl.args, pos=decl.pos)
    type_ = foreign_object(body, symbol.decl, given, call)
    inside = replace(body, scope=Scope(body.scope))
    for item in decl.initializer or ():
        if isinstance(item, ast.Instantiation):
            declare_instance(inside, item, name)
    made = Object(type_, symbol.decl, name, pos=decl.pos)
    _check_methods(inside, symbol, made, decl)
    return made


def _constructs(body: Body, expr: ast.Expr) -> bool:
    name = expr.callee.name if isinstance(expr, ast.CallExpr) and isinstance(expr.callee, ast.Name) else ""
    return isinstance(body.scope.find(name), ExternDef | BlockDef)


def _check_methods(body: Body, symbol: ExternDef, made: Object, decl: ast.Instantiation) -> None:
    """Raise CompileError if an instance does not implement all abstract methods of its extern.

    Abstract methods with ``@optional`` may be missing. Errors in a method are reported to the unit.
    """
    abstract = {method.name: method for method in symbol.decl.methods if method.abstract}
    if not abstract and decl.initializer is not None:
        raise CompileError(
            f"extern {symbol.decl.name!r} has no abstract methods", decl.pos, "no { … } after the instance"
        )
    if abstract and decl.initializer is None:
        raise CompileError(f"{decl.name!r} lacks methods", decl.pos, " and ".join(abstract))
    given = [item for item in decl.initializer or () if isinstance(item, ast.FunctionDecl)]
    for function in given:
        with body.unit.reporting():
            _check_method(body, symbol, made, function, abstract)
    names = {function.prototype.name for function in given}
    for name, method in abstract.items():
        optional = any(annotation.name == "optional" for annotation in method.annotations)
        if name not in names and not optional:
            raise CompileError(f"{decl.name!r} lacks the method {name!r}", decl.pos, f"{name}(…) {{ … }}")


def _check_method(
    body: Body,
    symbol: ExternDef,
    made: Object,
    function: ast.FunctionDecl,
    abstract: dict[str, ast.Prototype],
) -> None:
    prototype, name = function.prototype, function.prototype.name
    if name not in abstract:
        raise unknown(f"abstract method of {symbol.decl.name}", name, abstract, function.pos)
    if prototype.type_params:
        raise CompileError(f"{name!r} has type parameters", function.pos, "none: an abstract method has none")
    unit = body.unit
    check_prototype(unit, body.scope, prototype, ParamRole.FUNCTION)
    scope = Scope(symbol.scope)
    for param, arg in zip(symbol.decl.type_params, made.type.args, strict=True):
        scope.declare(param.name, TypeName(arg, pos=param.pos))
    wanted = formals_of(unit, abstract[name].params, Scope(scope))
    found = formals_of(unit, prototype.params, body.scope)
    result = [
        type_at(constant_body(unit, where), ref)
        for where, ref in ((scope, abstract[name].result), (body.scope, prototype.result))
        if ref is not None
    ]
    if not _alike(wanted, found, abstract[name].params) or not t.same(*result):
        params = ", ".join(f"{each.direction} {t.describe(each.type)}".strip() for each in wanted)
        raise CompileError(
            f"{name!r} differs from its declaration in the extern",
            function.pos,
            f"{t.describe(result[0])} {name}({params})",
        )
    own = Scope(body.scope)
    own.declare("this", Variable(made, pos=made.pos))
    inside = body.inside(scope=own, place=CodePlace.FUNCTION, prefix=name)
    try:
        lower_body(inside, function, own, found, passed_to_nothing(inside, found), function.pos)
    except Unsupported as error:
        unit.refuse(error)


def _alike(wanted: Sequence[Formal], found: Sequence[Formal], params: Sequence[ast.ParamDecl]) -> bool:
    """Return True if the parameters `found` equal `wanted`, except that optional last ones may be missing."""
    both = [(each.direction, each.type) for each in wanted], [(each.direction, each.type) for each in found]
    return all(map(is_optional, params[len(found) :])) and both[0][: len(found)] == both[1]
