"""Externs with registers: register actions, the filters `Lpf` and `Wred`, and math units.

A register action reads a cell, runs its body, and writes the cell.

`Lpf` and `Wred` are moving averages over time, kept in registers that the control plane sets and reads.

A filter moves its average towards each new value, by a fraction that grows with the time since the last
value: ``average += (value - average) * min(1, elapsed * gain)``, in integers, so that both back ends compute
the same result. This is the first-order approximation of the chip's exponential. P4Runtime has no entity for
filters. The settings of an array NAME of filters are in the following registers, with one cell for each
filter:

``NAME.rise``, ``NAME.fall``   2**48 / the time constant in ns, for values above and below the average;
                               if `rise` is 0, the filter is off and each value passes unchanged
``NAME.rate``                  if 1, the average decays by `fall`, and every value is added to it
``NAME.shift``                 the result is the average shifted down by this many bits
``NAME.gain``                  (Wred) 2**48 / the time constant in ns; if 0, no packet is dropped
``NAME.low``, ``NAME.high``    (Wred) no packet is dropped up to the average `low`, every one from `high` on
``NAME.slope``                 (Wred) 2**32 * the probability of a drop for each unit above `low`
``NAME.average``, ``NAME.last``    2**16 * the average, and the time of its last update in ns

For a direct filter, which belongs to a table, all of these are zero and cannot be set.

`MathUnit`: an approximation of powers and reciprocals that a register's action may use.

A number x is split into its four leading bits i and an exponent e: x = i/8 * 2**e. The unit takes the entry
``table[i]`` and shifts it by the exponent: the result is ``table[i] * 2**(scale + e * 2**shift)``. With
`invert`, -e takes the place of e. For square roots e must be even: if it is odd, i has only three leading
bits, and e is one more.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import floor, log2

from softswitch.compiler import ir
from softswitch.compiler.errors import CompileError, Unsupported
from softswitch.compiler.frontend import ast
from softswitch.compiler.ir.walk import overlap, path_of, storage_of
from softswitch.compiler.lowering import types as t
from softswitch.compiler.lowering.architectures.tna.switch import intrinsic_place
from softswitch.compiler.lowering.convert import bits_cast, clear, convert, expression
from softswitch.compiler.lowering.extern_calls import MethodCall, leaves, scalar
from softswitch.compiler.lowering.instances import make_register
from softswitch.compiler.lowering.subroutines import formals_of, lower_body
from softswitch.compiler.lowering.unit import Body, Stage
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
_INPUT = ir.Bits(32)
_EXPONENT = ir.Bits(8)  # in two's complement: -94 to 93
_RESULT = ir.Bits(64)


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
    body, unit, result, pos = call.body, call.on.details, call.on.type.args[0], call.pos
    assert isinstance(unit, MathTable)
    assert isinstance(result, ir.Bits)
    entry, exponent = _normalised(body, _plain(scalar(body, call.values[0], pos, "x"), pos), unit.shift, pos)
    power = exponent
    if unit.shift:
        power = _op("<<" if unit.shift > 0 else ">>", exponent, 1, pos)
    if unit.invert:
        power = ir.Binary(_EXPONENT, "-", ir.Const(_EXPONENT, 0, pos=pos), power, pos=pos)
    shift = body.held(_op("+", power, unit.scale % 256, pos), "shift", pos)
    found = ir.Cast(_RESULT, _chosen(unit.entries, entry, pos), pos=pos)
    negative = ir.Binary(t.BOOL, ">=", shift, ir.Const(_EXPONENT, 128, pos=pos), pos=pos)
    down = ir.Binary(_EXPONENT, "-", ir.Const(_EXPONENT, 0, pos=pos), shift, pos=pos)
    small = ir.Binary(_RESULT, ">>", found, down, pos=pos)
    large = ir.Binary(_RESULT, "<<", found, shift, pos=pos)
    total = ir.Mux(_RESULT, negative, small, large, pos=pos)
    return Run(result, bits_cast(result, total, pos))


def _normalised(body: Body, number: ir.Expr, shift: int, pos: ir.Position) -> tuple[ir.Expr, ir.Expr]:
    """Emit the search for the leading one bit of `number`.

    Return the index in the math unit's table (32 bits), and the exponent (8 bits).
    """
    rest = body.held(number, "rest", pos)
    exponent = body.held(ir.Const(_EXPONENT, 31, pos=pos), "exponent", pos)
    for step in (16, 8, 4, 2, 1):
        free = ir.Binary(t.BOOL, "<", rest, ir.Const(_INPUT, 1 << (32 - step), pos=pos), pos=pos)
        moved = ir.Assign(rest, _op("<<", rest, step, pos), pos=pos)
        less = ir.Assign(exponent, _op("-", exponent, step, pos), pos=pos)
        body.out.append(ir.If(free, (moved, less), (), pos=pos))
    body.out.append(ir.Assign(rest, _op(">>", rest, 28, pos), pos=pos))
    if shift < 0:
        odd = ir.Binary(t.BOOL, "==", _op("&", exponent, 1, pos), ir.Const(_EXPONENT, 1, pos=pos), pos=pos)
        halved = ir.Assign(rest, _op(">>", rest, 1, pos), pos=pos)
        even = ir.Assign(exponent, _op("+", exponent, 1, pos), pos=pos)
        body.out.append(ir.If(odd, (halved, even), (), pos=pos))
    return rest, exponent


def _chosen(entries: Sequence[int], number: ir.Expr, pos: ir.Position) -> ir.Expr:
    """Return ``entries[number]`` as a tree of ``?:`` on the bits of `number`, the highest bit first."""
    if len(entries) == 1:
        return ir.Const(ir.Bits(8), entries[0], pos=pos)
    half = len(entries) // 2
    bit = _op("&", number, half, pos)
    clear = ir.Binary(t.BOOL, "==", bit, ir.Const(_INPUT, 0, pos=pos), pos=pos)
    low, high = (_chosen(part, number, pos) for part in (entries[:half], entries[half:]))
    return ir.Mux(ir.Bits(8), clear, low, high, pos=pos)


def _op(op: str, left: ir.Expr, number: int, pos: ir.Position) -> ir.Expr:
    assert isinstance(left.type, ir.Bits)
    return ir.Binary(left.type, op, left, ir.Const(left.type, number, pos=pos), pos=pos)


def _plain(number: ir.Expr, pos: ir.Position) -> ir.Expr:
    """Return a number as ``bit<32>``."""
    assert isinstance(number.type, ir.Bits)
    plain = bits_cast(ir.Bits(number.type.width), number, pos) if number.type.signed else number
    return bits_cast(_INPUT, plain, pos)


_WORD, _FLAG, _BYTE, _HALF, _WIDE = ir.Bits(64), ir.Bits(1), ir.Bits(8), ir.Bits(32), ir.Bits(128)
_ALL = 1 << 48
"""The fraction 1, in units of 2**-48."""
_FRACTION = 16
"""Number of fraction bits of an average."""

_STATE = {"average": _WORD, "last": _WORD}
LPF = {"rise": _WORD, "fall": _WORD, "rate": _FLAG, "shift": _BYTE, **_STATE}
WRED = {"gain": _WORD, "low": _HALF, "high": _HALF, "slope": _HALF, **_STATE}
"""The registers of an `Lpf` and of a `Wred`: the last part of each register's name, and its cells' type."""


@dataclass(frozen=True, slots=True)
class Filter:
    """A filter: the types of its registers' cells and, for Wred, the results for "drop" and "pass"."""

    cells: Mapping[str, ir.Bits]
    drop: int = 0
    pass_: int = 0


def make_filter_registers(body: Body, what: Filter, size: int, decl: ast.Instantiation, name: str) -> None:
    """Add the registers of an indirect filter to the program. Raises CompileError."""
    for cell, type_ in what.cells.items():
        make_register(body, type_, size, f"{name}.{cell}", decl, ())


def execute_lpf(call: MethodCall) -> Value:
    """Emit the update of a low-pass filter with the call's value, and return the filtered value."""
    found, value = _FilterCells(call), _value(call)
    pos, result = call.pos, call.on.type.args[0]
    assert isinstance(result, ir.Bits)
    rises = found.compare(">", value, found.cell["average"])
    sample = found.choose(_WORD, rises, found.cell["rise"], found.cell["fall"])
    rate = found.compare("==", found.cell["rate"], ir.Const(_FLAG, 1, pos=pos))
    gain = found.choose(_WORD, rate, found.cell["fall"], sample)
    target = found.choose(_WORD, rate, ir.Const(_WORD, 0, pos=pos), value)
    found.approach(target, gain)
    added = found.choose(_WORD, rate, value, ir.Const(_WORD, 0, pos=pos))
    found.assign("average", ir.Binary(_WORD, "+", found.cell["average"], added, pos=pos))
    found.write()
    whole = ir.Binary(_WORD, ">>", found.cell["average"], ir.Const(_WORD, _FRACTION, pos=pos), pos=pos)
    down = ir.Binary(_WORD, ">>", whole, found.cell["shift"], pos=pos)
    given = ir.Binary(_WORD, ">>", value, ir.Const(_WORD, _FRACTION, pos=pos), pos=pos)
    unset = found.compare("==", found.cell["rise"], ir.Const(_WORD, 0, pos=pos))
    return Run(result, bits_cast(result, found.choose(_WORD, unset, given, down), pos))


def execute_wred(call: MethodCall) -> Value:
    """Emit the update of a Wred filter with the call's value.

    Return the filter's result: its value for "drop" or for "pass".
    """
    what, pos = call.on.details, call.pos
    found, value = _FilterCells(call), _value(call)
    assert isinstance(what, Filter)
    found.approach(value, found.cell["gain"])
    found.write()
    average = ir.Binary(_WORD, ">>", found.cell["average"], ir.Const(_WORD, _FRACTION, pos=pos), pos=pos)
    low, high = (bits_cast(_WORD, found.cell[name], pos) for name in ("low", "high"))
    excess = bits_cast(_WIDE, ir.Binary(_WORD, "-", average, low, pos=pos), pos)
    likely = ir.Binary(_WIDE, "*", excess, bits_cast(_WIDE, found.cell["slope"], pos), pos=pos)
    drawn = call.body.temporary(_HALF, "random", pos)
    call.emit("random", (drawn,), (ir.Const(_HALF, 0, pos=pos),), (ir.Const(_HALF, (1 << 32) - 1, pos=pos),))
    hit = found.compare("<", bits_cast(_WIDE, drawn, pos), likely)
    some = found.both(found.compare(">", average, low), hit)
    every = found.compare(">=", average, high)
    is_set = found.compare("!=", found.cell["gain"], ir.Const(_WORD, 0, pos=pos))
    drops = found.both(is_set, ir.Binary(t.BOOL, "||", every, some, pos=pos))
    return Run(
        _BYTE,
        found.choose(_BYTE, drops, ir.Const(_BYTE, what.drop, pos=pos), ir.Const(_BYTE, what.pass_, pos=pos)),
    )


def _value(call: MethodCall) -> ir.Expr:
    """Emit the copy of the call's first argument to a new variable, and return the variable.

    The variable holds the value with `_FRACTION` fraction bits.
    """
    pos = call.pos
    number = bits_cast(_WORD, scalar(call.body, call.values[0], pos, "the value"), pos)
    shifted = ir.Binary(_WORD, "<<", number, ir.Const(_WORD, _FRACTION, pos=pos), pos=pos)
    return call.body.held(shifted, "value", pos)


class _FilterCells:
    """Variables that hold a filter's cells while one packet is processed."""

    def __init__(self, call: MethodCall) -> None:
        body, base, pos = call.body, call.on, call.pos
        assert isinstance(base.details, Filter)
        self._call, self._body, self._pos = call, body, pos
        self._index: ir.Expr | None = None
        self.cell: dict[str, ir.Expr] = {}
        if len(call.values) > 1:
            index = bits_cast(_HALF, scalar(body, call.values[1], pos, "the index"), pos)
            self._index = body.held(index, "index", pos)
        for name, type_ in base.details.cells.items():
            if self._index is None:
                self.cell[name] = body.held(ir.Const(type_, 0, pos=pos), name, pos)
            else:
                self.cell[name] = variable = body.temporary(type_, name, pos)
                call.emit("register.read", (variable,), (self._index,), instance=f"{base.name}.{name}")

    def write(self) -> None:
        """Emit the writes of the average and of the time of its update to the registers."""
        if self._index is not None:
            for name in _STATE:
                instance = f"{self._call.on.name}.{name}"
                self._call.emit("register.write", (self._index,), (self.cell[name],), instance=instance)

    def assign(self, name: str, value: ir.Expr) -> None:
        """Emit an assignment to a cell's variable."""
        self._body.out.append(ir.Assign(self.cell[name], value, pos=self._pos))

    def compare(self, op: str, left: ir.Expr, right: ir.Expr) -> ir.Expr:
        """Return ``left op right``."""
        return ir.Binary(t.BOOL, op, left, right, pos=self._pos)

    def both(self, left: ir.Expr, right: ir.Expr) -> ir.Expr:
        """Return ``left && right``."""
        return ir.Binary(t.BOOL, "&&", left, right, pos=self._pos)

    def choose(self, type_: ir.Bits, condition: ir.Expr, then: ir.Expr, otherwise: ir.Expr) -> ir.Expr:
        """Return ``condition ? then : otherwise``."""
        return ir.Mux(type_, condition, then, otherwise, pos=self._pos)

    def approach(self, target: ir.Expr, gain: ir.Expr) -> None:
        """Emit the move of the average towards `target`.

        The average moves by `gain` * 2**-48 of the distance for each ns since the last update, and at most by
        the whole distance.
        """
        body, pos = self._body, self._pos
        gress = "ingress" if body.stage is Stage.INGRESS else "egress"
        now = intrinsic_place(body.unit, f"{gress}_from_parser", "global_tstamp", pos)
        stamp = body.held(bits_cast(_WORD, now, pos), "now", pos)
        elapsed = ir.Binary(_WORD, "-", stamp, self.cell["last"], pos=pos)
        elapsed = ir.Binary(
            _WORD, "&", elapsed, ir.Const(_WORD, _ALL - 1, pos=pos), pos=pos
        )  # the clock has 48 bits
        grown = ir.Binary(_WIDE, "*", bits_cast(_WIDE, elapsed, pos), bits_cast(_WIDE, gain, pos), pos=pos)
        part = body.held(grown, "part", pos)
        whole = ir.Const(_WIDE, _ALL, pos=pos)
        body.out.append(
            ir.If(self.compare(">", part, whole), (ir.Assign(part, whole, pos=pos),), (), pos=pos)
        )
        self.assign("last", stamp)
        average = self.cell["average"]
        above = self.compare(">=", target, average)
        up = ir.Binary(_WORD, "+", average, self._part(target, average, part), pos=pos)
        down = ir.Binary(_WORD, "-", average, self._part(average, target, part), pos=pos)
        self.assign("average", self.choose(_WORD, above, up, down))

    def _part(self, large: ir.Expr, small: ir.Expr, part: ir.Expr) -> ir.Expr:
        pos = self._pos
        difference = bits_cast(_WIDE, ir.Binary(_WORD, "-", large, small, pos=pos), pos)
        product = ir.Binary(_WIDE, "*", difference, part, pos=pos)
        return bits_cast(_WORD, ir.Binary(_WIDE, ">>", product, ir.Const(_WIDE, 48, pos=pos), pos=pos), pos)
