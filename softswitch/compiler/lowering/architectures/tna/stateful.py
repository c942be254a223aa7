"""Registers and register actions: an action reads a cell, runs its body, and writes the cell.

This module also counts a packet's accesses to each register, because the chip allows only one. The count is
an upper bound: it ignores that conditions may exclude each other.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from softswitch.compiler import ir
from softswitch.compiler.errors import CompileError, Unsupported
from softswitch.compiler.frontend import ast
from softswitch.compiler.ir.walk import overlap, path_of, storage_of
from softswitch.compiler.lowering import types as t
from softswitch.compiler.lowering.convert import clear, convert, expression
from softswitch.compiler.lowering.extern_calls import MethodCall, leaves
from softswitch.compiler.lowering.subroutines import formals_of, lower_body
from softswitch.compiler.lowering.unit import Body, remark
from softswitch.compiler.lowering.values import (
    Formal,
    Nothing,
    Object,
    PassedValues,
    Run,
    Scope,
    Value,
    Variable,
    show,
)


def check_accesses(
    blocks: Iterable[tuple[ir.Stmt, ...]],
    actions: Mapping[str, ir.Action],
    tables: Mapping[str, ir.Table],
    arrays: Mapping[str, ir.RegisterArray],
    *,
    refuse: bool,
) -> None:
    """Warn about registers that a packet may access more than once, or raise CompileError.

    Args:
        blocks: All blocks that a packet passes, in ingress and egress.
        actions: The program's actions.
        tables: The program's tables.
        arrays: The program's registers.
        refuse: Raise CompileError for the first such register; otherwise warn about each.
    """
    register_of = {part: name for name, array in arrays.items() for part in array.parts}
    counting = _Meetings(actions, tables, register_of)
    total: Counter[str] = Counter()
    for body in blocks:
        total += counting.of(body)
    for name, times in total.items():
        if times > 1:
            message = f"a packet may access register {name!r} {times} times"
            if refuse:
                raise CompileError(message, arrays[name].pos, "one access, as on a chip")
            remark(f"{message}: a chip allows one access", arrays[name].pos)


class _Meetings:
    def __init__(
        self, actions: Mapping[str, ir.Action], tables: Mapping[str, ir.Table], register_of: Mapping[str, str]
    ) -> None:
        self._actions = actions
        self._tables = tables
        self._register_of = register_of

    def of(self, body: Iterable[ir.Stmt]) -> Counter[str]:
        """Return, for each register, the maximum number of accesses on any path through `body`."""
        total: Counter[str] = Counter()
        calls: set[tuple[str, ir.Position]] = set()
        for s in body:
            match s:
                case ir.Extern(function="register.read" | "register.write", instance=part):
                    calls.add((self._register_of[part], s.pos))  # an action's read and write are one call
                case ir.If(_, then, otherwise):
                    total += self.of(then) | self.of(otherwise)
                case ir.Switch(_, cases):
                    total += self._most(inner for _, inner in cases)
                case ir.Inlined(inner) | ir.Loop(inner):
                    total += self.of(inner)
                case ir.Call(action=action):
                    total += self.of(self._actions[action].body)
                case ir.Apply(table=table):
                    found = self._tables[table]
                    names = {found.default.action, *(ref.action for ref in found.actions)}
                    total += self._most(self._actions[name].body for name in names)
        return total + Counter(name for name, _ in calls)

    def _most(self, bodies: Iterable[Iterable[ir.Stmt]]) -> Counter[str]:
        most: Counter[str] = Counter()
        for body in bodies:
            most |= self.of(body)
        return most


@dataclass(frozen=True, slots=True, eq=False)
class RegisterCells:
    """The type of a register's cells, as written in the source."""

    type: t.Type


@dataclass(frozen=True, slots=True, eq=False)
class RegisterAction:
    """A register action: its register, its method ``apply``, and the scope in which ``apply`` is lowered."""

    register: Object
    apply: ast.FunctionDecl
    scope: Scope


def call_register(call: MethodCall) -> Value:
    """Emit ``read`` or ``write`` of a register. Raises CompileError."""
    body, values, pos, cells = call.body, call.values, call.pos, call.on.details
    assert isinstance(cells, RegisterCells)
    match call.name:
        case "read":
            index = _index(body, values[0] if values else None, pos)
            return _read(body, call.on, cells.type, index, pos)
        case "write":
            index = _index(body, values[0], pos)
            _write(body, call.on, convert(values[1], cells.type, pos), index, pos)
            return Nothing()
    raise Unsupported(f"Register.{call.name}", pos, "read or write")


def execute(call: MethodCall) -> Value:
    """Emit ``execute`` of a register action, and return the action's first result.

    The call's first argument is the index, unless the register is direct; the further arguments receive the
    action's further results. Raises CompileError.
    """
    body, base, values, pos = call.body, call.on, call.values, call.pos
    action = base.details
    assert isinstance(action, RegisterAction)
    direct = action.register.type.name == "DirectRegister"
    formals = formals_of(body.unit, action.apply.prototype.params, action.scope)
    index: ir.Expr = ir.Const(t.BIT32, 0, pos=pos)
    if direct:
        targets = values
        cell = _direct(action.register, action.register.type.args[0], pos)
    else:
        targets, index = values[1:], _index(body, values[0] if values else None, pos)
        cell = _read(body, action.register, action.register.type.args[0], index, pos)
    results = [_result(body, formal, pos) for formal in formals[1:]]
    passed = PassedValues(
        {formal.name: value for formal, value in zip(formals, (cell, *results), strict=True)}, ()
    )
    mark = len(body.out)
    own = Scope(action.scope)
    own.declare("this", Variable(base, pos=base.pos))
    lower_body(body, action.apply, own, formals, passed, pos)
    if _changes(body.out[mark:], index):
        raise Unsupported(
            f"{base.name!r} changes its own index", pos, "results that are returned in parameters"
        )
    if not direct:
        _write(body, action.register, cell, index, pos)
    if len(targets) > len(results) - 1 and targets:
        raise CompileError(
            f"{base.name!r} gives {len(results)} results",
            pos,
            f"at most {len(results)} results, of which the first is the value of the call",
        )
    for target, result in zip(targets, results[1:], strict=False):
        assert isinstance(target, Run)
        body.out.append(ir.Assign(target.expr, result.expr, pos=pos))
    return results[0] if results else _nothing(base, pos)


def _changes(statements: Sequence[ir.Stmt], expr: ir.Expr) -> bool:
    """Return True if `statements` assign to the storage of `expr`; False if `expr` has no constant path."""
    place = path_of(expr)
    if place is None:
        return False
    for s in statements:
        match s:
            case ir.Assign(target):
                written = storage_of(target)
                if written is not None and overlap(written, place):
                    return True
            case ir.If(_, then, otherwise):
                if _changes((*then, *otherwise), expr):
                    return True
            case ir.Inlined(inner):
                if _changes(inner, expr):
                    return True
    return False


def _nothing(base: Object, pos: ir.Position) -> Value:
    """Return the result of an action that sets no result: zero, or nothing if the type is not a scalar."""
    type_ = base.type.args[-1] if base.type.args else t.VOID
    scalar = t.lowered(type_)
    if isinstance(scalar, ir.Bits | ir.Bool):
        return Run(type_, ir.Const(scalar, 0, pos=pos))
    return Nothing()


def _result(body: Body, formal: Formal, pos: ir.Position) -> Run:
    result = Run(formal.type, body.temporary(formal.type, formal.name, pos), writable=True)
    clear(body, result, pos)
    return result


def _index(body: Body, value: Value | None, pos: ir.Position) -> ir.Expr:
    """Return the index `value` as an expression; 0 if `value` is None.

    A constant or a path is returned as it is. Any other index is saved in a new variable.
    """
    if value is None:
        return ir.Const(t.BIT32, 0, pos=pos)
    if not isinstance(value, Run) or not isinstance(t.lowered(value.type), ir.Bits):
        value = convert(value, t.BIT32, pos, "the index")
    assert isinstance(value, Run)
    if isinstance(value.expr, ir.Const) or path_of(value.expr) is not None:
        return value.expr  # without a copy: registers with the same index are stored side by side
    if not isinstance(t.lowered(value.type), ir.Bits):
        raise CompileError(f"the index is {show(value)}", pos, "bit<W>")
    variable = body.temporary(value.type, "index", pos)
    body.out.append(ir.Assign(variable, value.expr, pos=pos))
    return variable


def direct_cells(register: Object, type_: t.Type, initial: Sequence[int]) -> tuple[ir.DirectCell, ...]:
    """Return the cells of a direct register, one for each scalar of its type.

    While an action runs, the variable named by the register's `colour` holds the cells' values.
    """
    cell = _direct(register, type_, register.pos)
    places = [leaf.expr for leaf in leaves(cell, register.pos) if isinstance(leaf, Run)]
    starts = initial or (0,) * len(places)
    return tuple(map(ir.DirectCell, places, starts))


def _direct(register: Object, type_: t.Type, pos: ir.Position) -> Run:
    lowered = t.stored(type_)
    return Run(type_, ir.Var(lowered, register.colour, pos=pos), writable=True)


def _read(body: Body, register: Object, type_: t.Type, index: ir.Expr, pos: ir.Position) -> Run:
    cell = Run(type_, body.temporary(type_, "cell", pos), writable=True)
    parts = body.unit.register_arrays[register.name].parts
    for part, leaf in zip(parts, leaves(cell, pos), strict=True):
        assert isinstance(leaf, Run)
        body.out.append(ir.Extern("register.read", part, ((leaf.expr,), (index,)), pos=pos))
    return cell


def _write(body: Body, register: Object, value: Value, index: ir.Expr, pos: ir.Position) -> None:
    parts = body.unit.register_arrays[register.name].parts
    for part, leaf in zip(parts, leaves(value, pos), strict=True):
        stored = expression(body, leaf, pos)
        body.out.append(ir.Extern("register.write", part, ((index,), (stored,)), pos=pos))


def initial_values(value: Value | None, type_: t.Type, pos: ir.Position) -> tuple[int, ...]:
    """Return the initial value of each scalar of a register's cells; () if `value` is None.

    Raises CompileError for values that are not constant.
    """
    if value is None:
        return ()
    numbers = []
    for leaf in leaves(convert(value, type_, pos, "the initial value"), pos):
        if not isinstance(leaf, Run) or not isinstance(leaf.expr, ir.Const):
            raise CompileError(f"{show(leaf)} cannot be an initial value", pos, "a constant")
        numbers.append(leaf.expr.value)
    return tuple(numbers)
