"""Placeholders for arguments where unused code is checked."""

from __future__ import annotations

from collections.abc import Sequence

from softswitch.compiler import ir
from softswitch.compiler.errors import Unsupported
from softswitch.compiler.lowering import types as t
from softswitch.compiler.lowering.passing import Formal, Passed, named
from softswitch.compiler.lowering.scope import ExternDef
from softswitch.compiler.lowering.unit import Body
from softswitch.compiler.lowering.values import OBJECTS, Object, Packet, Run, Value


def passed_to_nothing(body: Body, formals: Sequence[Formal]) -> Passed:
    """Return variables, and objects, for parameters that get no arguments."""
    return Passed({formal.name: _stand_in(body, formal) for formal in formals}, ())


def _stand_in(body: Body, formal: Formal) -> Value:
    if isinstance(formal.type, t.ExternType):
        return stand_in_object(body, formal.type, formal.name, formal.pos)
    lowered = t.lowered(formal.type)
    if lowered is None:
        raise Unsupported("a compile-time parameter of unused code", formal.pos)
    name = body.unit.variable(f"{body.prefix}.{formal.name}", lowered)
    return named(formal, Run(formal.type, ir.Var(lowered, name, formal.pos), writable=True))


def stand_in_object(body: Body, type_: t.ExternType, name: str, pos: ir.Position) -> Value:
    """Return an object of an extern that is a packet or none of v1model's."""
    symbol = body.unit.globals.find(type_.name)
    assert isinstance(symbol, ExternDef)
    if type_.name in ("packet_in", "packet_out"):
        return Packet(type_, symbol.decl)
    if type_.name in OBJECTS:
        raise Unsupported("an extern as a parameter of unused code", pos)
    return Object(type_, symbol.decl, name, pos)
