"""`Lpf` and `Wred`: filters of a value in time, each in registers that the control plane sets and reads.

A filter moves its average towards each value by a part that grows with the time since the last one, up to
all of it: ``average += (value - average) * min(1, elapsed * gain)``, in integers, so that both back ends
compute the same. The chip's circuit has an exponential there, whose first order this is. P4Runtime has no
entity for filters; their settings are registers named after them, one cell for each of theirs:

``NAME.rise``, ``NAME.fall``   2**48 / the time constant in ns, for values above and below the average;
                               a `rise` of 0: not set, each value passes as it is
``NAME.rate``                  1: the average decays by `fall`, and every value is added to it
``NAME.shift``                 the result is the average shifted down by this many bits
``NAME.gain``                  (Wred) 2**48 / the time constant in ns; 0: not set, nothing is dropped
``NAME.low``, ``NAME.high``    (Wred) averages up to which nothing and from which all is dropped
``NAME.slope``                 (Wred) 2**32 * the probability of a drop for each unit above `low`
``NAME.average``, ``NAME.last``    2**16 * the average, and when it was computed in ns

A direct filter has these for each entry of its table, always at zero: nothing can set them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from softswitch.compiler import ir
from softswitch.compiler.frontend import ast
from softswitch.compiler.lowering import types as t
from softswitch.compiler.lowering.calls.extern_calls import scalar
from softswitch.compiler.lowering.expressions.convert import bits_cast
from softswitch.compiler.lowering.instances import make_register
from softswitch.compiler.lowering.tofino.switch import intrinsic_place
from softswitch.compiler.lowering.unit import Body, Stage
from softswitch.compiler.lowering.values import Object, Run, Value

_WORD, _FLAG, _BYTE, _HALF, _WIDE = ir.Bits(64), ir.Bits(1), ir.Bits(8), ir.Bits(32), ir.Bits(128)
_ALL = 1 << 48
"""The part of a value that is all of it."""
_FRACTION = 16
"""Bits of an average behind the point."""

_STATE = {"average": _WORD, "last": _WORD}
LPF = {"rise": _WORD, "fall": _WORD, "rate": _FLAG, "shift": _BYTE, **_STATE}
WRED = {"gain": _WORD, "low": _HALF, "high": _HALF, "slope": _HALF, **_STATE}
"""The registers of either filter."""


@dataclass(frozen=True, slots=True)
class Filter:
    """A filter: the widths of its registers, and for Wred what its results are."""

    cells: Mapping[str, ir.Bits]
    drop: int = 0
    pass_: int = 0


def make_filter_registers(body: Body, what: Filter, size: int, decl: ast.Instantiation, name: str) -> None:
    """Add the registers of an indirect filter to the program. Raises CompileError."""
    for cell, type_ in what.cells.items():
        make_register(body, type_, size, f"{name}.{cell}", decl, ())


def execute_lpf(body: Body, base: Object, method: str, values: list[Value], expr: ast.Call) -> Value:
    """Emit what a low-pass filter makes of a value."""
    del method
    found, value = _Found(body, base, values, expr), _value(body, values, expr)
    pos, result = expr.pos, base.type.args[0]
    assert isinstance(result, ir.Bits)
    rises = found.compare(">", value, found.cell["average"])
    sample = found.choose(_WORD, rises, found.cell["rise"], found.cell["fall"])
    rate = found.compare("==", found.cell["rate"], ir.Const(_FLAG, 1, pos))
    gain = found.choose(_WORD, rate, found.cell["fall"], sample)
    target = found.choose(_WORD, rate, ir.Const(_WORD, 0, pos), value)
    found.approach(target, gain)
    added = found.choose(_WORD, rate, value, ir.Const(_WORD, 0, pos))
    found.assign("average", ir.Binary(_WORD, "+", found.cell["average"], added, pos))
    found.write()
    whole = ir.Binary(_WORD, ">>", found.cell["average"], ir.Const(_WORD, _FRACTION, pos), pos)
    down = ir.Binary(_WORD, ">>", whole, found.cell["shift"], pos)
    given = ir.Binary(_WORD, ">>", value, ir.Const(_WORD, _FRACTION, pos), pos)
    unset = found.compare("==", found.cell["rise"], ir.Const(_WORD, 0, pos))
    return Run(result, bits_cast(result, found.choose(_WORD, unset, given, down), pos))


def execute_wred(body: Body, base: Object, method: str, values: list[Value], expr: ast.Call) -> Value:
    """Emit whether a packet is dropped for the average of a value."""
    del method
    what, pos = base.details, expr.pos
    found, value = _Found(body, base, values, expr), _value(body, values, expr)
    assert isinstance(what, Filter)
    found.approach(value, found.cell["gain"])
    found.write()
    average = ir.Binary(_WORD, ">>", found.cell["average"], ir.Const(_WORD, _FRACTION, pos), pos)
    low, high = (bits_cast(_WORD, found.cell[name], pos) for name in ("low", "high"))
    excess = bits_cast(_WIDE, ir.Binary(_WORD, "-", average, low, pos), pos)
    likely = ir.Binary(_WIDE, "*", excess, bits_cast(_WIDE, found.cell["slope"], pos), pos)
    drawn = body.temporary(_HALF, "random", pos)
    bounds = (ir.Const(_HALF, 0, pos),), (ir.Const(_HALF, (1 << 32) - 1, pos),)
    body.out.append(ir.Extern("random", "", ((drawn,), *bounds), pos))
    hit = found.compare("<", bits_cast(_WIDE, drawn, pos), likely)
    some = found.both(found.compare(">", average, low), hit)
    every = found.compare(">=", average, high)
    is_set = found.compare("!=", found.cell["gain"], ir.Const(_WORD, 0, pos))
    drops = found.both(is_set, ir.Binary(t.BOOL, "||", every, some, pos))
    return Run(
        _BYTE, found.choose(_BYTE, drops, ir.Const(_BYTE, what.drop, pos), ir.Const(_BYTE, what.pass_, pos))
    )


def _value(body: Body, values: list[Value], expr: ast.Call) -> ir.Expr:
    """Return the value with `_FRACTION` bits behind the point, in a variable."""
    pos = expr.pos
    variable = body.temporary(_WORD, "value", pos)
    number = bits_cast(_WORD, scalar(body, values[0], pos, "the value"), pos)
    body.out.append(
        ir.Assign(variable, ir.Binary(_WORD, "<<", number, ir.Const(_WORD, _FRACTION, pos), pos), pos)
    )
    return variable


class _Found:
    """The cells of one filter while a packet passes it, in variables."""

    def __init__(self, body: Body, base: Object, values: list[Value], expr: ast.Call) -> None:
        assert isinstance(base.details, Filter)
        self._body, self._name, self._pos = body, base.name, expr.pos
        self._index: ir.Expr | None = None
        self.cell: dict[str, ir.Expr] = {}
        if len(values) > 1:
            self._index = body.temporary(_HALF, "index", expr.pos)
            index = bits_cast(_HALF, scalar(body, values[1], expr.pos, "the index"), expr.pos)
            body.out.append(ir.Assign(self._index, index, expr.pos))
        for name, type_ in base.details.cells.items():
            variable = body.temporary(type_, name, expr.pos)
            self.cell[name] = variable
            if self._index is not None:
                args = ((variable,), (self._index,))
                body.out.append(ir.Extern("register.read", f"{base.name}.{name}", args, expr.pos))
            else:
                body.out.append(ir.Assign(variable, ir.Const(type_, 0, expr.pos), expr.pos))

    def write(self) -> None:
        """Emit the write of the average and its time."""
        if self._index is None:
            return
        for name in _STATE:
            args = ((self._index,), (self.cell[name],))
            self._body.out.append(ir.Extern("register.write", f"{self._name}.{name}", args, self._pos))

    def assign(self, name: str, value: ir.Expr) -> None:
        """Emit an assignment to a cell's variable."""
        self._body.out.append(ir.Assign(self.cell[name], value, self._pos))

    def compare(self, op: str, left: ir.Expr, right: ir.Expr) -> ir.Expr:
        """Return a comparison."""
        return ir.Binary(t.BOOL, op, left, right, self._pos)

    def both(self, left: ir.Expr, right: ir.Expr) -> ir.Expr:
        """Return a conjunction."""
        return ir.Binary(t.BOOL, "&&", left, right, self._pos)

    def choose(self, type_: ir.Bits, condition: ir.Expr, then: ir.Expr, otherwise: ir.Expr) -> ir.Expr:
        """Return one of two values."""
        return ir.Mux(type_, condition, then, otherwise, self._pos)

    def approach(self, target: ir.Expr, gain: ir.Expr) -> None:
        """Emit what moves the average towards `target`, by `gain` for each ns since the last time."""
        body, pos = self._body, self._pos
        gress = "ingress" if body.stage is Stage.INGRESS else "egress"
        now = intrinsic_place(body.unit, f"{gress}_from_parser", "global_tstamp", pos)
        stamp, part = body.temporary(_WORD, "now", pos), body.temporary(_WIDE, "part", pos)
        body.out.append(ir.Assign(stamp, bits_cast(_WORD, now, pos), pos))
        elapsed = ir.Binary(_WORD, "-", stamp, self.cell["last"], pos)
        elapsed = ir.Binary(_WORD, "&", elapsed, ir.Const(_WORD, _ALL - 1, pos), pos)  # the clock has 48 bits
        grown = ir.Binary(_WIDE, "*", bits_cast(_WIDE, elapsed, pos), bits_cast(_WIDE, gain, pos), pos)
        body.out.append(ir.Assign(part, grown, pos))
        whole = ir.Const(_WIDE, _ALL, pos)
        body.out.append(ir.If(self.compare(">", part, whole), (ir.Assign(part, whole, pos),), (), pos))
        self.assign("last", stamp)
        average = self.cell["average"]
        above = self.compare(">=", target, average)
        up = ir.Binary(_WORD, "+", average, self._part(target, average, part), pos)
        down = ir.Binary(_WORD, "-", average, self._part(average, target, part), pos)
        self.assign("average", self.choose(_WORD, above, up, down))

    def _part(self, large: ir.Expr, small: ir.Expr, part: ir.Expr) -> ir.Expr:
        pos = self._pos
        difference = bits_cast(_WIDE, ir.Binary(_WORD, "-", large, small, pos), pos)
        product = ir.Binary(_WIDE, "*", difference, part, pos)
        return bits_cast(_WORD, ir.Binary(_WIDE, ">>", product, ir.Const(_WIDE, 48, pos), pos), pos)
