"""Follows a packet through ingress on all paths at once, and notes what it does with registers."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from softswitch.compiler import ir
from softswitch.compiler.errors import NOWHERE
from softswitch.compiler.ir.walk import member_path
from softswitch.compiler.slots.state import (
    Argument,
    Atom,
    Chosen,
    Fact,
    Hash,
    Hit,
    KeyLookup,
    SlotState,
    Values,
    facts_of,
    joined,
    truth,
)

MAX_WIDTH = 64
"""Widest value that an index is computed from."""


class CannotFollow(Exception):
    """The program does something that is not followed; the message says what, and where."""


@dataclass(frozen=True, slots=True)
class Access:
    """One use of a register, or of an array of meters: at which index, and what held there."""

    what: str
    index: Atom
    facts: frozenset[Fact]
    pos: ir.Position


@dataclass(frozen=True, slots=True)
class _Left:
    """Paths that have left a body: where `condition` holds, in `state`."""

    condition: Atom
    state: SlotState


@dataclass(slots=True)
class _Ways:
    """How a body ends. `on` goes on behind it, None if nothing does; the others have left it early."""

    on: SlotState | None
    returned: _Left | None = None
    exited: _Left | None = None


@dataclass(slots=True)
class Follower:
    """Executes statements on states; tables in `empty` are taken to have no entries."""

    program: ir.Program
    values: Values
    empty: frozenset[str]
    accesses: list[Access] = field(default_factory=list)

    def block(self, body: Sequence[ir.Stmt], state: SlotState) -> None:
        """Follow a whole block. Raises CannotFollow."""
        self._body(body, state)

    def _body(self, body: Sequence[ir.Stmt], state: SlotState) -> _Ways:
        ways = _Ways(state)
        for statement in body:
            if ways.on is None:
                break
            after = self._statement(statement, ways.on)
            ways.on = after.on
            ways.returned = self._either(ways.returned, after.returned)
            ways.exited = self._either(ways.exited, after.exited)
        return ways

    def _either(self, one: _Left | None, other: _Left | None) -> _Left | None:
        if one is None or other is None:
            return one or other
        condition = self._calculate("||", one.condition, other.condition)
        return _Left(condition, joined(one.condition, one.state, other.state))

    def _calculate(self, op: str, left: Atom, right: Atom) -> Atom:
        return self.values.calculate(ir.Binary(ir.Bool(), op, left, right, pos=NOWHERE))

    def _statement(self, s: ir.Stmt, state: SlotState) -> _Ways:
        match s:
            case ir.Assign(target, value):
                if isinstance(target.type, ir.Header | ir.Struct | ir.Stack):
                    state.copy_whole(target, value)
                elif isinstance(target.type, ir.Scalar):
                    state.assign(target, state.value(value))
            case ir.SetValidity(header, valid):
                if (path := member_path(header)) is not None:
                    state.valid[path] = truth(valid)
            case ir.If(condition, then, otherwise):
                return self._branch(state.value(condition), then, otherwise, state)
            case ir.Switch(subject, cases):
                return self._switch(state.value(subject), cases, state)
            case ir.Apply():
                return self._apply(s, state)
            case ir.Call(action):
                return self._scope(self._action(action).body, state)
            case ir.Inlined(body):
                return self._scope(body, state)
            case ir.Return():
                return _Ways(None, returned=_Left(truth(True), state))
            case ir.Exit():
                return _Ways(None, exited=_Left(truth(True), state))
            case ir.Extern():
                self._extern(s, state)
            case ir.Loop(pos=pos):
                raise CannotFollow(f"it has a loop ({pos})")
            case _:  # Forget, Shift, Skip: elements of stacks are never known
                pass
        return _Ways(state)

    def _action(self, name: str) -> ir.Action:
        return self.program.actions.get(name) or self.program.called_actions[name]

    def _scope(self, body: Sequence[ir.Stmt], state: SlotState) -> _Ways:
        """A body that ``return`` leaves, too."""
        ways = self._body(body, state)
        left = ways.returned
        if left is not None:
            ways.on = left.state if ways.on is None else joined(left.condition, left.state, ways.on)
        return _Ways(ways.on, exited=ways.exited)

    def _branch(
        self, condition: Atom, then: Sequence[ir.Stmt], otherwise: Sequence[ir.Stmt], state: SlotState
    ) -> _Ways:
        if isinstance(condition, ir.Const):
            return self._body(then if condition.value else otherwise, state)
        yes, no = (state.copy(*facts_of(condition, holds)) for holds in (True, False))
        return self._met(condition, self._body(then, yes), self._body(otherwise, no))

    def _met(self, condition: Atom, then: _Ways, otherwise: _Ways) -> _Ways:
        """Two branches as one, of which `condition` says which was taken."""
        against = self.values.calculate(ir.Unary(ir.Bool(), "!", condition, pos=NOWHERE))
        if then.on is None or otherwise.on is None:
            on = then.on or otherwise.on
        else:
            on = joined(condition, then.on, otherwise.on)
        left = []
        for one, other in ((then.returned, otherwise.returned), (then.exited, otherwise.exited)):
            both = [
                _Left(self._calculate("&&", taken, each.condition), each.state)
                for taken, each in ((condition, one), (against, other))
                if each is not None
            ]
            left.append(self._either(both[0], both[1] if len(both) > 1 else None) if both else None)
        return _Ways(on, *left)

    def _switch(
        self, subject: Atom, cases: Iterable[tuple[Sequence[ir.Const], Sequence[ir.Stmt]]], state: SlotState
    ) -> _Ways:
        cases = list(cases)
        default = next((body for constants, body in cases if not constants), ())
        chosen = [(constants, body) for constants, body in cases if constants]

        def rest(number: int, state: SlotState) -> _Ways:
            if number == len(chosen):
                return self._body(default, state)
            constants, body = chosen[number]
            condition: Atom = truth(False)
            for constant in constants:
                condition = self._calculate("||", condition, self._equal(subject, constant))
            if isinstance(condition, ir.Const):
                return self._body(body, state) if condition.value else rest(number + 1, state)
            ways = self._body(body, state.copy(*facts_of(condition, True)))
            return self._met(condition, ways, rest(number + 1, state.copy()))

        return rest(0, state)

    def _equal(self, one: Atom, other: ir.Const) -> Atom:
        return self._calculate("==", one, ir.Const(other.type, other.value, pos=NOWHERE))

    # ----------------------------------------------------------------- tables

    def _apply(self, s: ir.Apply, state: SlotState) -> _Ways:
        table = self.program.tables[s.table]
        if table.const_default and (s.table in self.empty or not table.keys):
            default = table.default
            for variable, value in ((s.hit, 0), (s.action, _position(table, default.action))):
                if variable is not None:
                    assert isinstance(variable.type, ir.Scalar)
                    state.assign(variable, ir.Const(variable.type, value, pos=NOWHERE))
            params = self._action(default.action).params
            args: list[Atom] = [
                ir.Const(p.type, v, pos=NOWHERE) for p, v in zip(params, default.args, strict=True)
            ]
            return self._run(default.action, args, state)
        lookup, why = self._lookup(table, state)
        actions = list(dict.fromkeys([*(ref.action for ref in table.actions), table.default.action]))
        number = self._ask(Chosen(lookup), ir.Bits(32), why)
        hit = self._ask(Hit(lookup), ir.Bool(), why) if table.keys else truth(False)
        for variable, outcome in ((s.hit, hit), (s.action, number)):
            if variable is not None:
                state.assign(variable, outcome)
        ways: _Ways | None = None
        for position, action in enumerate(actions):
            args = [
                self._ask(Argument(lookup, action, param.name), param.type, why)
                for param in self._action(action).params
            ]
            chosen = self._equal(number, ir.Const(ir.Bits(32), position, pos=NOWHERE))
            one = self._run(action, args, state.copy(*facts_of(chosen, True)))
            ways = one if ways is None else self._met(chosen, one, ways)
        assert ways is not None
        return ways

    def _lookup(self, table: ir.Table, state: SlotState) -> tuple[Atom, str | None]:
        """Return a lookup, and why its outcome cannot be known, if so."""
        keys = tuple(state.value(key.expr) for key in table.keys)
        why = next((why for key in keys if (why := self.values.why_unknown(key)) is not None), None)
        if table.implementation or table.cells:
            why = f"table {table.name}, whose entries are not its own"
        if any(isinstance(key.type, ir.Bits) and key.type.width > MAX_WIDTH for key in keys):
            why = f"table {table.name}, whose key is wider than {MAX_WIDTH} bits"
        lookup = self.values.define(KeyLookup(table.name, keys), ir.Bits(1))
        return lookup, why

    def _ask(self, definition: Hit | Chosen | Argument, type_: ir.Scalar, why: str | None) -> Atom:
        if why is None and isinstance(type_, ir.Bits) and type_.width > MAX_WIDTH:
            why = f"an argument of more than {MAX_WIDTH} bits"
        return self.values.define(definition, type_) if why is None else self.values.unknown(why, type_)

    def _run(self, action: str, args: Sequence[Atom], state: SlotState) -> _Ways:
        for param, value in zip(self._action(action).params, args, strict=True):
            state.places[(param.variable,)] = value
        return self._scope(self._action(action).body, state)

    # ----------------------------------------------------------------- externs

    def _extern(self, s: ir.Extern, state: SlotState) -> None:
        match s.function, s.args:
            case "register.read" | "meter.execute_meter", ((target,), (index,)):
                self._access(s, index, state)
                state.assign(target, None, f"what {s.instance} holds")
            case "register.write", ((index,), _):
                self._access(s, index, state)
            case "hash", ((target,), (ir.Const() as algorithm,), (base,), data, (maximum,)):
                state.assign(target, self._hash(target, algorithm, base, data, maximum, state))
            case "hash" | "random", ((target,), *_):
                state.assign(target, None, f"{s.function} ({s.pos})")
            case "mark_to_drop", _:
                state.places[("standard_metadata", "egress_spec")] = ir.Const(ir.Bits(9), 511, pos=NOWHERE)
                state.places[("standard_metadata", "mcast_grp")] = ir.Const(ir.Bits(16), 0, pos=NOWHERE)
            case "verify_checksum" | "update_checksum", _:
                raise CannotFollow(f"{s.function} in ingress ({s.pos})")
            case _:  # counters, clones, digests, remarks: nothing that a packet carries on
                pass

    def _access(self, s: ir.Extern, index: ir.Expr, state: SlotState) -> None:
        self.accesses.append(Access(s.instance, state.value(index), state.facts, s.pos))

    def _hash(
        self,
        target: ir.Expr,
        algorithm: ir.Const,
        base: ir.Expr,
        data: Sequence[ir.Expr],
        maximum: ir.Expr,
        state: SlotState,
    ) -> Atom:
        exprs = (target, base, *data, maximum)
        if not all(isinstance(each.type, ir.Bits) and each.type.width <= MAX_WIDTH for each in exprs):
            return self.values.unknown(f"a hash of values wider than {MAX_WIDTH} bits", target.type)
        atoms = [state.value(each) for each in (base, *data, maximum)]
        for atom in atoms:
            if (why := self.values.why_unknown(atom)) is not None:
                return self.values.unknown(why, target.type)
        which = ir.Const(algorithm.type, algorithm.value, pos=NOWHERE)
        return self.values.define(Hash(which, atoms[0], tuple(atoms[1:-1]), atoms[-1]), target.type)


def _position(table: ir.Table, action: str) -> int:
    return [*(ref.action for ref in table.actions), action].index(action)
