"""Externs with registers: register actions, the filters `Lpf` and `Wred`, and math units.

A register action reads a cell, runs its body, and writes the cell.

`Lpf` and `Wred` are moving averages over time, kept in registers that the control plane sets and reads.

A filter moves its average towards each new value, by a fraction that grows with the time since the last
value: ``average += (value - average) * min(1, elapsed * gain)``, in integers, so that both back ends compute
the same result. P4Runtime has no entity for filters. The settings of an array NAME of filters are in the
following registers, with one cell for each filter:

``NAME.rise``, ``NAME.fall``   2**48 / the time constant in ns, for values above and below the average;
                               if `rise` is 0, the filter is off and each value passes unchanged
``NAME.rate``                  if 1, the average decays by `fall`, and every value is added to it
``NAME.shift``                 the result is the average shifted down by this many bits
``NAME.gain``                  (Wred) 2**48 / the time constant in ns; if 0, no packet is dropped
``NAME.low``, ``NAME.high``    (Wred) no packet is dropped up to the average `low`, every one from `high` on
``NAME.slope``                 (Wred) 2**32 * the probability of a drop for each unit above `low`
``NAME.average``, ``NAME.last``    2**16 * the average, and the time of its last update in ns

For a direct filter, which belongs to a table, all of these are zero and cannot be set.

The arithmetic of filters and math units is P4: ``include/tofino_externs.p4``.

`MathUnit`: an approximation of powers and reciprocals that a register's action may use.

A number x is split into its four leading bits i and an exponent e: x = i/8 * 2**e. The unit takes the entry
``table[i]`` and shifts it by the exponent: the result is ``table[i] * 2**(scale + e * 2**shift)``. With
`invert`, -e takes the place of e. For square roots e must be even: if it is odd, i has only three leading
bits, and e is one more.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from math import floor, log2

from softswitch.compiler import ir
from softswitch.compiler.errors import CompileError, Unsupported, read_source
from softswitch.compiler.frontend import ast, parse
from softswitch.compiler.frontend.preprocess import STANDARD_INCLUDES
from softswitch.compiler.ir.walk import all_statements, overlap, path_of, storage_of, targets
from softswitch.compiler.lowering import types as t
from softswitch.compiler.lowering.architectures.tna.switch import intrinsic_place
from softswitch.compiler.lowering.convert import bits_cast, clear, convert, expression
from softswitch.compiler.lowering.extern_calls import MethodCall, leaves, scalar
from softswitch.compiler.lowering.instances import make_register
from softswitch.compiler.lowering.subroutines import formals_of, lower_body
from softswitch.compiler.lowering.unit import Body, Stage, Unit
from softswitch.compiler.lowering.values import (
    Formal,
    Functions,
    Nothing,
    Object,
    PassedValues,
    Run,
    Scope,
    Value,
    Variable,
    constant,
    show,
)


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
    written = (storage_of(target) for s in all_statements(statements) for target in targets(s))
    return place is not None and any(path is not None and overlap(path, place) for path in written)


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
    return body.held(value.expr, "index", pos)


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


_ENTRIES = 16
_SCALES = range(-32, 32)
_WORD, _BYTE = ir.Bits(64), ir.Bits(8)
_FRACTION = 16
"""Number of fraction bits of an average."""


@dataclass(frozen=True, slots=True)
class MathTable:
    """The settings of a math unit: `shift` is -1 (roots), 0 or 1 (squares); see the module's docstring.

    `entries` are the table's 16 entries, indexed by the four leading bits of the operand.
    """

    invert: bool
    shift: int
    scale: int
    entries: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class _Operation:
    invert: bool
    shift: int
    of: Callable[[float], float]


_OPERATIONS: Mapping[str, _Operation] = {
    "MUL": _Operation(False, 0, lambda x: x),
    "SQR": _Operation(False, 1, lambda x: x * x),
    "SQRT": _Operation(False, -1, lambda x: x**0.5),
    "DIV": _Operation(True, 0, lambda x: 1 / x),
    "RSQR": _Operation(True, 1, lambda x: 1 / (x * x)),
    "RSQRT": _Operation(True, -1, lambda x: x**-0.5),
}


def table_of(operation: str, factor: float) -> MathTable:
    """Return the table for ``factor * operation(x)``, scaled so that the largest entry fills 8 bits."""
    op = _OPERATIONS[operation]
    values = {i: factor * op.of(i / 8) for i in range(4 if op.shift < 0 else 8, _ENTRIES)}
    most = max(values.values())
    scale = floor(log2(most)) - 7 if most > 0 else 0
    scale = min(max(scale, _SCALES.start), _SCALES.stop - 1)
    entries = tuple(min(round(values.get(i, 0) * 2.0**-scale), 255) for i in range(_ENTRIES))
    return MathTable(op.invert, op.shift, scale, entries)


def execute_math(call: MethodCall) -> Value:
    """Emit a math unit's operation on a number, and return its result. Raises CompileError."""
    unit, result, pos = call.on.details, call.on.type.args[0], call.pos
    assert isinstance(unit, MathTable)
    assert isinstance(result, ir.Bits)
    number = scalar(call.body, call.values[0], pos, "x")
    assert isinstance(number.type, ir.Bits)
    plain = bits_cast(ir.Bits(number.type.width), number, pos) if number.type.signed else number
    settings = {
        "entries": sum(entry << 8 * place for place, entry in enumerate(unit.entries)),
        "invert": unit.invert,
        "squares": unit.shift > 0,
        "roots": unit.shift < 0,
        "scale": unit.scale % 256,
    }
    found = call_arithmetic(call.body, "MathUnit", {"x": bits_cast(t.BIT32, plain, pos), **settings}, pos)
    return Run(result, bits_cast(result, found.expr, pos))


@dataclass(frozen=True, slots=True)
class Filter:
    """A filter: its function in tofino_externs.p4 and, for Wred, the results for "drop" and "pass"."""

    function: str
    drop: int = 0
    pass_: int = 0

    def cells(self, unit: Unit) -> list[Formal]:
        """Return the filter's registers, which are parameters of its function."""
        _, formals = _arithmetic_of(unit, self.function)
        return [formal for formal in formals if formal.name not in ("value", "clock", "drawn")]


def make_filter_registers(body: Body, what: Filter, size: int, decl: ast.Instantiation, name: str) -> None:
    """Add the registers of an indirect filter to the program. Raises CompileError."""
    for cell in what.cells(body.unit):
        make_register(body, cell.type, size, f"{name}.{cell.name}", decl, ())


def execute_filter(call: MethodCall) -> Value:
    """Emit the update of a filter with the call's value.

    Return the filtered value or, for Wred, the filter's value for "drop" or for "pass".
    """
    body, base, what, pos = call.body, call.on, call.on.details, call.pos
    assert isinstance(what, Filter)
    number = bits_cast(_WORD, scalar(body, call.values[0], pos, "the value"), pos)
    gress = "ingress" if body.stage is Stage.INGRESS else "egress"
    fixed = ir.Binary(_WORD, "<<", number, ir.Const(_WORD, _FRACTION, pos=pos), pos=pos)
    clock = intrinsic_place(body.unit, f"{gress}_from_parser", "global_tstamp", pos)
    given: dict[str, ir.Expr | int] = {"value": fixed, "clock": clock}
    index: ir.Expr | None = None
    if len(call.values) > 1:
        index = body.held(
            bits_cast(t.BIT32, scalar(body, call.values[1], pos, "the index"), pos), "index", pos
        )
    cells = {cell: body.temporary(cell.type, cell.name, pos) for cell in what.cells(body.unit)}
    for cell, variable in cells.items():
        given[cell.name] = variable
        if index is None:
            clear(body, Run(cell.type, variable, writable=True), pos)
        else:
            call.emit("register.read", (variable,), (index,), instance=f"{base.name}.{cell.name}")
    if what.function == "Wred":
        given["drawn"] = drawn = body.temporary(t.BIT32, "random", pos)
        call.emit(
            "random", (drawn,), (ir.Const(t.BIT32, 0, pos=pos),), (ir.Const(t.BIT32, (1 << 32) - 1, pos=pos),)
        )
    found = call_arithmetic(body, what.function, given, pos)
    for cell, variable in cells.items():
        if index is not None and cell.returns:
            call.emit("register.write", (index,), (variable,), instance=f"{base.name}.{cell.name}")
    if what.function == "Wred":
        drop, pass_ = (ir.Const(_BYTE, value, pos=pos) for value in (what.drop, what.pass_))
        return Run(_BYTE, ir.Mux(_BYTE, found.expr, drop, pass_, pos=pos))
    result = base.type.args[0]
    assert isinstance(result, ir.Bits)
    return Run(result, bits_cast(result, found.expr, pos))


# --------------------------------------------------------------------------- arithmetic in P4


@cache
def _arithmetic() -> Scope:
    """Return a scope with the functions of tofino_externs.p4."""
    path = STANDARD_INCLUDES / "tofino_externs.p4"
    scope = Scope()
    for decl in parse(read_source(path), path.name).declarations:
        assert isinstance(decl, ast.FunctionDecl)
        scope.declare(decl.prototype.name, Functions([decl], Scope(scope), pos=decl.pos))
    return scope


def _arithmetic_of(unit: Unit, name: str) -> tuple[ast.FunctionDecl, list[Formal]]:
    """Return a function of tofino_externs.p4, and its parameters."""
    symbol = _arithmetic().find(name)
    assert isinstance(symbol, Functions)
    (decl,) = symbol.overloads
    return decl, formals_of(unit, decl.prototype.params, symbol.scope)


def call_arithmetic(body: Body, name: str, args: Mapping[str, ir.Expr | int], pos: ir.Position) -> Run:
    """Emit a function of tofino_externs.p4 with arguments by the parameters' names, and return its result.

    An argument for an ``inout`` parameter must be a variable.
    """
    decl, formals = _arithmetic_of(body.unit, name)
    values: dict[str, Value] = {}
    for formal in formals:
        given = args[formal.name]
        if isinstance(given, int):
            values[formal.name] = constant(formal.type, int(given), pos)
        else:
            place = given if isinstance(given, ir.Var) else body.held(given, formal.name, pos)
            values[formal.name] = Run(formal.type, place, formal.returns)
    result = lower_body(body, decl, _arithmetic(), formals, PassedValues(values, ()), pos)
    assert isinstance(result, Run)
    return result
