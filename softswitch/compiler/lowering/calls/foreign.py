"""Instances of externs that v1model does not have: refused, but checked with all that follows from them.

That includes abstract methods and what instances give for them ("Instantiating objects with abstract
methods"): no extern of v1model has any.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from softswitch.compiler.errors import CompileError, Unsupported
from softswitch.compiler.frontend import ast
from softswitch.compiler.lowering import types as t
from softswitch.compiler.lowering.blocks.actions import formals_of
from softswitch.compiler.lowering.calls.extern_calls import foreign_call, foreign_object
from softswitch.compiler.lowering.calls.functions import check_function
from softswitch.compiler.lowering.expressions.check import type_at
from softswitch.compiler.lowering.instances import declare_instance
from softswitch.compiler.lowering.passing import Formal, is_optional
from softswitch.compiler.lowering.scope import BlockDef, ExternDef, Scope, TypeName, Variable, unknown
from softswitch.compiler.lowering.signatures import Role, check_prototype
from softswitch.compiler.lowering.stand_ins import passed_to_nothing
from softswitch.compiler.lowering.unit import Body, Place, constant_body
from softswitch.compiler.lowering.values import Object, Value


def foreign_instance(
    body: Body, symbol: ExternDef, ref: ast.NamedType, decl: ast.Instantiation, name: str
) -> Object:
    """Return an object of an extern that v1model does not have, for checking the rest of the program."""
    unsupported = f"extern {symbol.decl.name!r}: v1model has none of that name"
    body.unit.refuse(Unsupported(unsupported, decl.pos))
    return checked_instance(body, symbol, ref, decl, name)


def foreign_method(
    body: Body, base: Object, prototype: ast.Prototype, expr: ast.Call, known: Mapping[str, t.Type]
) -> Value:
    """Check a method of such an object; its extern was refused already."""
    return foreign_call(body, prototype, expr, f"{base.type.name}.{prototype.name}", known)


def foreign_function(body: Body, prototype: ast.Prototype, expr: ast.Call, name: str) -> Value:
    """Refuse an extern function that v1model does not have, and check its call."""
    message = f"extern function {name!r}: v1model has none of that name"
    body.unit.refuse(Unsupported(message, expr.pos))
    return foreign_call(body, prototype, expr, name, {})


def checked_instance(
    body: Body, symbol: ExternDef, ref: ast.NamedType, decl: ast.Instantiation, name: str
) -> Object:
    """Return an object of an extern by its declaration alone, with its constructor and methods checked."""
    if any(_constructs(body, arg.value) for arg in decl.args):
        raise Unsupported("an extern without a name of its own", decl.pos, "a declaration of the instance")
    bare = body.scope.lookup(ref.name, ref.pos, absolute=ref.absolute) is symbol and not ref.args
    given = t.ExternType(symbol.decl.name) if bare else type_at(body, ref)
    assert isinstance(given, t.ExternType)
    call = ast.Call(ast.Name(ref.name, ref.absolute, ref.pos), (), decl.args, decl.pos)
    type_ = foreign_object(body, symbol.decl, given, call)
    inside = replace(body, scope=Scope(body.scope))
    for item in decl.initializer or ():
        if isinstance(item, ast.Instantiation):
            declare_instance(inside, item, name)
    made = Object(type_, symbol.decl, name, decl.pos)
    _check_methods(inside, symbol, made, decl)
    return made


def _constructs(body: Body, expr: ast.Expr) -> bool:
    name = expr.callee.name if isinstance(expr, ast.Call) and isinstance(expr.callee, ast.Name) else ""
    return isinstance(body.scope.find(name), ExternDef | BlockDef)


def _check_methods(body: Body, symbol: ExternDef, made: Object, decl: ast.Instantiation) -> None:
    """Compare the methods that an instance gives with the abstract ones. Raises CompileError."""
    abstract = {method.name: method for method in symbol.decl.methods if method.abstract}
    if not abstract and decl.initializer is not None:
        message = f"extern {symbol.decl.name!r} has no abstract methods"
        raise CompileError(message, decl.pos, "no { … } behind it")
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
    check_prototype(unit, body.scope, prototype, Role.FUNCTION)
    scope = Scope(symbol.scope)
    for param, arg in zip(symbol.decl.type_params, made.type.args, strict=True):
        scope.declare(param.name, TypeName(arg, param.pos))
    wanted = formals_of(unit, abstract[name].params, Scope(scope))
    found = formals_of(unit, prototype.params, body.scope)
    result = [
        type_at(constant_body(unit, where), ref)
        for where, ref in ((scope, abstract[name].result), (body.scope, prototype.result))
        if ref is not None
    ]
    if not _alike(wanted, found, abstract[name].params) or not t.same(*result):
        params = ", ".join(f"{each.direction} {t.describe(each.type)}".strip() for each in wanted)
        expected = f"{t.describe(result[0])} {name}({params})"
        raise CompileError(f"{name!r} is not as the extern declares it", function.pos, expected)
    own = Scope(body.scope)
    own.declare("this", Variable(made, made.pos))
    inside = body.inside(scope=own, place=Place.FUNCTION, prefix=name)
    try:
        check_function(inside, function, found, passed_to_nothing(inside, found), own)
    except Unsupported as error:
        unit.refuse(error)


def _alike(wanted: Sequence[Formal], found: Sequence[Formal], params: Sequence[ast.Param]) -> bool:
    """Return True if parameters are as they are to be; optional ones at the end may be left out."""
    both = [(each.direction, each.type) for each in wanted], [(each.direction, each.type) for each in found]
    return all(map(is_optional, params[len(found) :])) and both[0][: len(found)] == both[1]
