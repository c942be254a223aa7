"""Checking parsers, controls and functions that the program declares but never uses."""

from __future__ import annotations

from contextlib import suppress

from softswitch.compiler import ir
from softswitch.compiler.errors import Unsupported
from softswitch.compiler.frontend import ast
from softswitch.compiler.lowering import types as t
from softswitch.compiler.lowering.blocks.actions import formals_of
from softswitch.compiler.lowering.blocks.controls import check_action, lower_control
from softswitch.compiler.lowering.blocks.parsers import check_parser
from softswitch.compiler.lowering.calls.functions import check_function
from softswitch.compiler.lowering.items import Action
from softswitch.compiler.lowering.passing import Formal, Passed, named
from softswitch.compiler.lowering.scope import BlockDef, ExternDef, Functions, Local
from softswitch.compiler.lowering.unit import Body, Place, Stage, Unit
from softswitch.compiler.lowering.values import Block, Packet, Run, Value


def check_uncalled(unit: Unit) -> None:
    """Lower unused declarations and drop the result. Raises CompileError if one is wrong.

    What is `Unsupported` in it does no harm. Blocks with type or constructor parameters are not
    looked at: without arguments they mean nothing yet.
    """
    for _, symbol in list(unit.globals.names.values()):
        with unit.scratch(), unit.reporting(), suppress(Unsupported):
            match symbol:
                case BlockDef(ast.ParserDecl() as decl) if id(decl) not in unit.instantiated:
                    if not decl.type_params and not decl.constructor_params:
                        _check_parser(unit, decl, symbol)
                case BlockDef(ast.ControlDecl() as decl) if id(decl) not in unit.instantiated:
                    if not decl.type_params and not decl.constructor_params:
                        _check_control(unit, decl, symbol)
                case Functions(overloads, scope):
                    for function in overloads:
                        if id(function) not in unit.instantiated and not function.prototype.type_params:
                            body = Body(unit, scope, Place.CONTROL, Stage.NONE, "unused")
                            formals = formals_of(unit, function.prototype.params, scope)
                            passed = Passed(_stand_ins(body, formals), ())
                            check_function(body, function, formals, passed, scope)
                case Local(Action(used=False) as action):
                    body = Body(unit, action.scope, Place.CONTROL, Stage.NONE, "unused")
                    check_action(body, action)


def _check_parser(unit: Unit, decl: ast.ParserDecl, symbol: BlockDef) -> None:
    body = Body(unit, unit.globals, Place.CONSTANT, Stage.PARSER, decl.name)
    formals = formals_of(unit, decl.params, symbol.scope)
    check_parser(body, Block(decl, (), decl.pos), formals, Passed(_stand_ins(body, formals), ()))


def _check_control(unit: Unit, decl: ast.ControlDecl, symbol: BlockDef) -> None:
    body = Body(unit, unit.globals, Place.CONSTANT, Stage.NONE, decl.name)
    formals = formals_of(unit, decl.params, symbol.scope)
    passed = Passed(_stand_ins(body, formals), ())
    lower_control(body, Block(decl, (), decl.pos), decl.name, formals, passed, repeats=False)


def _stand_ins(body: Body, formals: list[Formal]) -> dict[str, Value]:
    """Return variables for parameters that get no arguments."""
    values: dict[str, Value] = {}
    for formal in formals:
        if isinstance(formal.type, t.ExternType):
            symbol = body.unit.globals.find(formal.type.name)
            if not isinstance(symbol, ExternDef) or not formal.type.name.startswith("packet_"):
                raise Unsupported("an extern as a parameter of an unused block", formal.pos)
            values[formal.name] = Packet(formal.type, symbol.decl)
            continue
        lowered = t.lowered(formal.type)
        if lowered is None:
            raise Unsupported("a compile-time parameter of unused code", formal.pos)
        name = body.unit.variable(f"{body.prefix}.{formal.name}", lowered)
        values[formal.name] = named(
            formal, Run(formal.type, ir.Var(lowered, name, formal.pos), writable=True)
        )
    return values
