"""Passing arguments: P4's copy-in and copy-out, without copies where they make no difference.

Inside a callee a parameter stands for a `Value`. It is the argument itself (passed by name) if that
is a constant, or a plain path which nothing else that the callee can reach overlaps; then it makes
no difference. Otherwise it is a variable, assigned before the call (``in``, ``inout``) and copied
back after it (``out``, ``inout``), arguments in order.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from softswitch.compiler import ir
from softswitch.compiler.errors import CompileError, Unsupported
from softswitch.compiler.frontend import ast
from softswitch.compiler.lowering import types as t
from softswitch.compiler.lowering.emit import clear, forget, saved, steady, store, undefine
from softswitch.compiler.lowering.expressions.check import evaluate, writable
from softswitch.compiler.lowering.expressions.convert import convert, mismatch
from softswitch.compiler.lowering.paths import Path, overlap, path_of, storage_of
from softswitch.compiler.lowering.scope import ExternDef, Scope, Variable, unknown
from softswitch.compiler.lowering.unit import Body
from softswitch.compiler.lowering.values import (
    OBJECTS,
    Default,
    Group,
    Invalid,
    Object,
    Packet,
    Run,
    Value,
    is_constant,
    type_of,
)


@dataclass(frozen=True, slots=True)
class Formal:
    """A parameter with its type looked up."""

    direction: str
    type: t.Type
    name: str
    pos: ir.Position
    default: ast.Expr | None = None

    @property
    def returns(self) -> bool:
        """True if the callee may change the argument."""
        return self.direction in ("out", "inout")


@dataclass(frozen=True, slots=True)
class Passed:
    """The values of the parameters inside the callee, and the assignments to make after it."""

    values: Mapping[str, Value]
    copy_outs: tuple[ir.Assign, ...]
    # The variables of those parameters that are not passed by name.
    variables: Mapping[str, ir.Var] = field(default_factory=dict)

    def declare(self, scope: Scope, formals: Sequence[Formal]) -> None:
        """Declare the parameters in the callee's scope."""
        for formal in formals:
            scope.declare(formal.name, Variable(self.values[formal.name], formal.pos))


def is_optional(param: ast.Param) -> bool:
    """Return True if an argument may be left out without a default."""
    return any(annotation.name == "optional" for annotation in param.annotations)


def bind(
    what: str, params: Sequence[Formal | ast.Param], args: Sequence[ast.Argument], pos: ir.Position
) -> list[ast.Expr]:
    """Return one argument per parameter, in the order of the parameters. Raises CompileError."""
    given: dict[str, ast.Expr] = {}
    names = [param.name for param in params]
    if len(args) > len(params):
        raise CompileError(f"{len(args)} arguments for {what}", pos, _signature(what, params))
    for number, arg in enumerate(args):
        name = names[number] if arg.name is None else arg.name
        if name not in names:
            raise unknown(f"parameter of {what}", name, names, arg.pos)
        if name in given:
            raise CompileError(
                f"two arguments for parameter {name!r} of {what}", arg.pos, _signature(what, params)
            )
        given[name] = arg.value
    bound = []
    for param in params:
        expr = given.get(param.name, param.default)
        if expr is None:
            message = f"no argument for parameter {param.name!r} of {what}"
            raise CompileError(message, pos, _signature(what, params))
        bound.append(expr)
    return bound


def _signature(what: str, params: Sequence[Formal | ast.Param]) -> str:
    names = ", ".join(f"{param.direction} {param.name}".strip() for param in params)
    return f"{what}({names})"


def evaluate_arguments(body: Body, returns: Sequence[bool], args: Sequence[ast.Expr]) -> list[Value]:
    """Return the values of arguments, evaluated from left to right; `returns` says which are l-values.

    ``_`` for an l-value gives `Default`.
    """
    values: list[Value] = []
    marks: list[int] = []
    for is_target, arg in zip(returns, args, strict=True):
        if not is_target:
            values.append(evaluate(body, arg))
        elif isinstance(arg, ast.DontCare):
            values.append(Default())
        else:
            values.append(writable(body, arg))
        marks.append(len(body.out))
    for i in reversed(range(len(values))):
        if len(body.out) > marks[i]:
            later = body.take_since(marks[i])
            value, pos = values[i], args[i].pos
            values[i] = (
                steady(body, value, pos)
                if returns[i] and isinstance(value, Run)
                else saved(body, value, "saved", pos)
            )
            body.out.extend(later)
    return values


def check_argument(body: Body, formal: Formal, value: Value, pos: ir.Position) -> Value:
    """Return an argument as a value of the parameter's type. Raises CompileError."""
    what = f"parameter {formal.name!r}"
    if formal.returns:
        if isinstance(value, Default):
            return Run(formal.type, body.temporary(formal.type, formal.name, pos), writable=True)
        if not t.same(type_of(value), formal.type):
            raise mismatch(value, formal.type, pos, f"the argument of {formal.direction} {what}")
        return value
    return convert(value, formal.type, pos, what)


def check_arguments(body: Body, formals: Sequence[Formal], args: Sequence[ast.Expr]) -> list[Value]:
    """Return the values of all arguments in the types of the parameters."""
    values = evaluate_arguments(body, [formal.returns for formal in formals], args)
    return [
        check_argument(body, formal, value, arg.pos)
        for formal, value, arg in zip(formals, values, args, strict=True)
    ]


def pass_arguments(
    body: Body,
    formals: Sequence[Formal],
    args: Sequence[ast.Expr],
    *,
    prefix: str,
    reached: Collection[Path] = (),
    variables: Mapping[str, ir.Var] | None = None,
    block: bool = False,
) -> Passed:
    """Emit the statements before a call, and return the values of the parameters.

    `reached` are paths that the callee uses beside its parameters. Parameters in `variables` are
    those variables, whatever the argument. Variables that are made begin with `prefix`. The scalars of an
    ``out`` parameter, which are undefined, begin as zero, or in a `block` (a control or parser), where it is
    passed by name, as the argument is: so does p4c's inlining.
    """
    values = check_arguments(body, formals, args)
    bound: dict[str, Value] = {}
    copied: dict[str, ir.Var] = {}
    copy_outs: list[ir.Assign] = []
    forgotten: list[tuple[Run, ir.Position]] = []
    for i, (formal, arg, value) in enumerate(zip(formals, args, values, strict=True)):
        variable = (variables or {}).get(formal.name)
        if variable is None and _by_name(i, formals, values, reached):
            bound[formal.name] = named(formal, value)
            if formal.direction == "out" and isinstance(value, Run):
                forgotten.append((value, arg.pos))
            continue
        if variable is None:
            lowered = t.lowered(formal.type)
            if lowered is None:
                raise mismatch(value, formal.type, arg.pos, f"parameter {formal.name!r}")
            variable = ir.Var(lowered, body.unit.variable(f"{prefix}.{formal.name}", lowered), arg.pos)
        copied[formal.name] = variable
        inside = Run(formal.type, variable, writable=True)
        if formal.returns:
            assert isinstance(value, Run)
            value = steady(body, value, arg.pos)
            copy_outs.append(ir.Assign(value.expr, variable, arg.pos))
        if formal.direction == "out":
            clear(body, inside, arg.pos)
            undefine(body, inside, arg.pos)
        else:
            store(body, inside, value, arg.pos)
        bound[formal.name] = named(formal, inside)
    for target, pos in forgotten:
        forget(body, target, pos, scalars=not block)
        undefine(body, target, pos)
    return Passed(bound, tuple(copy_outs), copied)


def named(formal: Formal, value: Value) -> Value:
    """Return a parameter's value in the callee: `value`, read-only unless the parameter returns it."""
    if isinstance(value, Run) and not formal.returns:
        direction = "an `in` parameter" if formal.direction else "a parameter without direction"
        return Run(value.type, value.expr, why=f"{formal.name!r} is {direction}")
    return value


def _by_name(i: int, formals: Sequence[Formal], values: Sequence[Value], reached: Collection[Path]) -> bool:
    """Return True if a parameter can stand for its argument without changing the program's meaning."""
    value = values[i]
    if is_constant(value) and not isinstance(value, Group | Invalid):
        return True
    path = path_of(value.expr) if isinstance(value, Run) else None
    if path is None or any(overlap(path, other) for other in reached):
        return False
    return not any(overlap(path, other) for other in _changed(i, formals, values))


def _changed(i: int, formals: Sequence[Formal], values: Sequence[Value]) -> Iterator[Path]:
    for j, (formal, value) in enumerate(zip(formals, values, strict=True)):
        if j != i and formal.returns and isinstance(value, Run):
            storage = storage_of(value.expr)
            if storage is not None:
                yield storage


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
