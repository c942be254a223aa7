"""The places of a packet and what is in them, on the way through ingress.

What ingress computes from a packet, as numbered values: what is computed alike has one number.

A value is an atom: a constant, or a variable whose definition is a `Definition` over earlier atoms. So what
several paths share is written once, however they meet (value numbering).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace

from softswitch.compiler import ir
from softswitch.compiler.errors import NOWHERE, CompileError
from softswitch.compiler.ir import fold
from softswitch.compiler.ir.walk import Path, child_expressions, member_path

Atom = ir.Var | ir.Const
Fact = tuple[str, bool]
"""A condition's variable, and which way it went."""


@dataclass(frozen=True, slots=True)
class FieldValue:
    """A field of a header as the parser took it from the frame; zero where it took none."""

    header: Path
    name: str


@dataclass(frozen=True, slots=True)
class TakenBranch:
    """Whether the parser took this header from the frame."""

    header: Path


@dataclass(frozen=True, slots=True)
class Port:
    """The port that the packet came in by."""


@dataclass(frozen=True, slots=True)
class KeyLookup:
    """The entry of a table for these keys, or its default action: `Hit`, `Chosen` and `Argument` ask it."""

    table: str
    keys: tuple[Atom, ...]


@dataclass(frozen=True, slots=True)
class Hit:
    """Whether a lookup found an entry."""

    lookup: Atom


@dataclass(frozen=True, slots=True)
class Chosen:
    """The position of a lookup's action among those of its table."""

    lookup: Atom


@dataclass(frozen=True, slots=True)
class Argument:
    """An argument of a lookup's action; any bits if it chose another action."""

    lookup: Atom
    action: str
    parameter: str


@dataclass(frozen=True, slots=True)
class Hash:
    """``base + H(data) % maximum``, as the extern `hash` gives it."""

    algorithm: ir.Const
    base: Atom
    data: tuple[Atom, ...]
    maximum: Atom


@dataclass(frozen=True, slots=True)
class UnknownValue:
    """What the bytes of a packet, its port and the tables do not say; `why` names it. No two are the same."""

    why: str
    number: int


Definition = (
    ir.Expr | FieldValue | TakenBranch | Port | KeyLookup | Hit | Chosen | Argument | Hash | UnknownValue
)


class Values:
    """All values that one run of ingress may compute."""

    def __init__(self) -> None:
        self.definitions: dict[str, Definition] = {}
        self._types: dict[str, ir.Type] = {}
        self._numbers: dict[tuple[Definition, ir.Type], ir.Var] = {}

    def define(self, definition: Definition, type_: ir.Type) -> ir.Var:
        """Return the variable of this definition, the same for the same one."""
        key = (definition, type_)
        if key not in self._numbers:
            name = f"value_{len(self.definitions)}"
            self.definitions[name] = definition
            self._types[name] = type_
            self._numbers[key] = ir.Var(type_, name, pos=NOWHERE)
        return self._numbers[key]

    def type_of(self, name: str) -> ir.Scalar:
        """Return the type of a variable that is a scalar."""
        type_ = self._types[name]
        assert isinstance(type_, ir.Scalar)
        return type_

    def unknown(self, why: str, type_: ir.Type) -> ir.Var:
        """Return the value of which only `why` it is not known is known."""
        return self.define(UnknownValue(why, len(self.definitions)), type_)

    def why_unknown(self, atom: Atom) -> str | None:
        """Return why a value is not known, None if it is."""
        definition = self.definitions.get(atom.name) if isinstance(atom, ir.Var) else None
        return definition.why if isinstance(definition, UnknownValue) else None

    def needed(self, atom: Atom) -> dict[str, Definition]:
        """Return the definitions that a value stands on, each behind those that it needs itself."""
        found: set[str] = set()
        waiting = [atom]
        while waiting:
            each = waiting.pop()
            if isinstance(each, ir.Var) and each.name not in found:
                found.add(each.name)
                waiting += operands(self.definitions[each.name])
        return {name: known for name, known in self.definitions.items() if name in found}

    # ----------------------------------------------------------------- facts

    def implied(self, facts: Iterable[Fact]) -> dict[str, bool]:
        """Return conditions and what they are, where `facts` hold, with all that follows from these."""
        known: dict[str, bool] = {}
        waiting = list(facts)
        while waiting:
            name, holds = waiting.pop()
            if name not in known:
                known[name] = holds
                waiting += self._causes(self.definitions[name], holds)
        return known

    def _causes(self, definition: Definition, holds: bool) -> Iterator[Fact]:
        match definition:
            case ir.Unary(op="!", operand=ir.Var(name=name)):
                yield name, not holds
            case ir.Binary(op="&&" | "||" as op, left=ir.Var() as left, right=ir.Var() as right):
                if holds == (op == "&&"):
                    yield from ((left.name, holds), (right.name, holds))
            case ir.Mux(ir.Bool(), ir.Var() as condition, then, otherwise):
                for branch, other, taken in ((then, otherwise, False), (otherwise, then, True)):
                    if isinstance(branch, ir.Const) and bool(branch.value) != holds:
                        yield condition.name, taken
                        if isinstance(other, ir.Var):
                            yield other.name, holds
            case _:
                pass

    def under(self, atom: Atom, facts: Mapping[str, bool]) -> Atom:
        """Return a value as it is where `facts` hold (see `implied`)."""
        done: dict[str, Atom] = {}

        def again(each: ir.Expr) -> Atom:
            return done[each.name] if isinstance(each, ir.Var) else _atom(each)

        for name, definition in self.needed(atom).items():
            match definition:
                case _ if name in facts:
                    done[name] = truth(facts[name])
                case ir.Mux(condition=condition, then=then, otherwise=otherwise):
                    done[name] = self.mux(again(condition), again(then), again(otherwise))
                case ir.Unary(operand=operand) | ir.Cast(operand=operand):
                    done[name] = self.calculate(replace(definition, operand=again(operand)))
                case ir.Slice(base=base):
                    done[name] = self.calculate(replace(definition, base=again(base)))
                case ir.Binary(left=left, right=right):
                    done[name] = self.calculate(replace(definition, left=again(left), right=again(right)))
                case KeyLookup(keys=keys):
                    asked = replace(definition, keys=tuple(map(again, keys)))
                    done[name] = self.define(asked, self._types[name])
                case Hit(lookup=lookup) | Chosen(lookup=lookup) | Argument(lookup=lookup):
                    done[name] = self.define(replace(definition, lookup=again(lookup)), self._types[name])
                case Hash(base=base, data=data, maximum=maximum):
                    renewed = replace(
                        definition, base=again(base), data=tuple(map(again, data)), maximum=again(maximum)
                    )
                    done[name] = self.define(renewed, self._types[name])
                case _:
                    done[name] = ir.Var(self._types[name], name, pos=NOWHERE)
        return again(atom)

    # ----------------------------------------------------------------- computing

    def mux(self, condition: Atom, then: Atom, otherwise: Atom) -> Atom:
        """Return `then` where the condition holds, else `otherwise`."""
        if isinstance(condition, ir.Const):
            return then if condition.value else otherwise
        if then == otherwise:
            return then
        if not isinstance(then.type, ir.Scalar):
            return self.unknown("a varbit", then.type)
        return self.define(ir.Mux(then.type, condition, then, otherwise, pos=NOWHERE), then.type)

    def calculate(self, expr: ir.Expr) -> Atom:
        """Return the value of an operation whose operands are atoms."""
        simple = self._simplified(expr)
        return self.define(expr, expr.type) if simple is None else simple

    def _simplified(self, expr: ir.Expr) -> Atom | None:
        match expr:
            case ir.Unary(op="!", operand=ir.Const(value=value)):
                return truth(not value)
            case ir.Binary(op="&&" | "||" as op, left=ir.Var() | ir.Const() as left, right=right):
                return _junction(op, left, right)
            case ir.Binary(op=op, left=ir.Const() as left, right=ir.Const() as right):
                return _constant(expr.type, op, left, right)
            case ir.Slice(ir.Bits() as type_, ir.Const(value=value), _, low):
                return ir.Const(type_, fold.wrap(type_, value >> low), pos=NOWHERE)
            case ir.Slice(base=ir.Var(type=ir.Bits(width)) as base, high=high, low=0) if high == width - 1:
                return base
            case ir.Cast(ir.Bits() as type_, ir.Const(value=value)):
                return ir.Const(type_, fold.wrap(type_, value), pos=NOWHERE)
            case ir.Cast(ir.Bool(), ir.Const(value=value)):
                return truth(value != 0)
            case ir.Cast(type_, ir.Var() as operand) if type_ == operand.type:
                return operand
            case _:
                return None


def truth(value: bool) -> ir.Const:
    """Return a constant of type bool."""
    return ir.Const(ir.Bool(), int(value), pos=NOWHERE)


def _junction(op: str, left: Atom, right: ir.Expr) -> Atom | None:
    assert isinstance(right, ir.Var | ir.Const)
    for one, other in ((left, right), (right, left)):
        if isinstance(one, ir.Const):
            decided = one.value == (op == "||")
            return one if decided else other
    return None


def _constant(type_: ir.Type, op: str, left: ir.Const, right: ir.Const) -> ir.Const | None:
    if op in ("==", "!=", "<", "<=", ">", ">="):
        return ir.Const(ir.Bool(), fold.compare(op, left.value, right.value), pos=NOWHERE)
    if not isinstance(type_, ir.Bits) or (op in ("/", "%") and right.value == 0):
        return None
    try:
        return ir.Const(type_, fold.bits(op, type_, left, right, NOWHERE), pos=NOWHERE)
    except CompileError:
        return None


def operands(definition: Definition) -> Iterator[Atom]:
    """Yield the atoms that a definition is over."""
    match definition:
        case ir.Unary() | ir.Binary() | ir.Cast() | ir.Slice() | ir.Mux():
            yield from map(_atom, child_expressions(definition))
        case Hit(lookup) | Chosen(lookup) | Argument(lookup):
            yield lookup
        case KeyLookup(keys=keys):
            yield from keys
        case Hash(base=base, data=data, maximum=maximum):
            yield from (base, *data, maximum)
        case _:
            pass


def _atom(expr: ir.Expr) -> Atom:
    assert isinstance(expr, ir.Var | ir.Const)
    return expr


@dataclass(slots=True)
class SlotState:
    """Values by place, and the conditions that are known to have held on the way here.

    `valid` are headers, and `origin` says what is in a place that nothing has been assigned to.
    """

    values: Values
    origin: Callable[[Path, ir.Type], Atom]
    taken: Callable[[Path], Atom]
    places: dict[Path, Atom] = field(default_factory=dict)
    valid: dict[Path, Atom] = field(default_factory=dict)
    facts: frozenset[Fact] = frozenset()

    def copy(self, *facts: Fact) -> SlotState:
        """Return an independent copy on which these facts hold, too."""
        places, valid = self.places.copy(), self.valid.copy()
        return SlotState(self.values, self.origin, self.taken, places, valid, self.facts.union(facts))

    def read(self, path: Path, type_: ir.Type) -> Atom:
        """Return the value of a scalar."""
        found = self.places.get(path)
        return self.origin(path, type_) if found is None else found

    def is_valid(self, header: Path) -> Atom:
        """Return whether a header is valid."""
        found = self.valid.get(header)
        return self.taken(header) if found is None else found

    def value(self, expr: ir.Expr) -> Atom:
        """Return the value of a scalar expression."""
        match expr:
            case ir.Const(type_, value):
                return _wrapped_constant(type_, value)
            case ir.Var() | ir.Member():
                path = member_path(expr)
                if path is None:
                    return self.values.unknown("an element of a header stack", expr.type)
                return self.read(path, expr.type)
            case ir.IsValid(header=header):
                path = member_path(header)
                if path is None:
                    return self.values.unknown("an element of a header stack", ir.Bool())
                return self.is_valid(path)
            case ir.Slice(type_, base, high, low):
                return self.values.calculate(ir.Slice(type_, self.value(base), high, low, pos=NOWHERE))
            case ir.Unary(type_, op, operand):
                return self.values.calculate(ir.Unary(type_, op, self.value(operand), pos=NOWHERE))
            case ir.Cast(type_, operand):
                return self.values.calculate(ir.Cast(type_, self.value(operand), pos=NOWHERE))
            case ir.Mux(_, condition, then, otherwise):
                return self.values.mux(self.value(condition), self.value(then), self.value(otherwise))
            case ir.Binary(type_, op, left, right):
                if not isinstance(left.type, ir.Scalar):
                    return self.values.unknown("a comparison of whole headers", expr.type)
                return self.values.calculate(
                    ir.Binary(type_, op, self.value(left), self.value(right), pos=NOWHERE)
                )
            case _:
                return self.values.unknown(f"{type(expr).__name__.lower()}", expr.type)

    def assign(self, target: ir.Expr, value: Atom | None, why: str = "") -> None:
        """Put a value in a scalar's place; None: one that is not known, and `why`."""
        if isinstance(target, ir.Slice):
            self.assign(target.base, None, "a value that is assigned in parts")
            return
        path = member_path(target)
        if path is not None:  # elements of stacks are never known
            self.places[path] = self.values.unknown(why, target.type) if value is None else value

    def copy_whole(self, target: ir.Expr, source: ir.Expr) -> None:
        """Assign a header or struct."""
        to, of = member_path(target), member_path(source)
        if to is not None:
            self._copy(to, of, target.type)

    def _copy(self, to: Path, of: Path | None, type_: ir.Type) -> None:
        why = "an element of a header stack"
        match type_:
            case ir.Struct(fields=fields):
                for name, inner in fields:
                    self._copy((*to, name), None if of is None else (*of, name), inner)
            case ir.Header(fields=fields):
                for name, inner in fields:
                    unknown = of is None or not isinstance(inner, ir.Scalar)
                    self.places[(*to, name)] = (
                        self.values.unknown(why, inner) if unknown else self.read((*(of or ()), name), inner)
                    )
                self.valid[to] = self.values.unknown(why, ir.Bool()) if of is None else self.is_valid(of)
            case ir.Stack():
                pass
            case _:
                known = of is not None and isinstance(type_, ir.Scalar)
                self.places[to] = self.read(of or (), type_) if known else self.values.unknown(why, type_)


def joined(condition: Atom, then: SlotState, otherwise: SlotState) -> SlotState:
    """Return the state behind two branches, of which `condition` says which was taken."""
    values = then.values
    result = SlotState(values, then.origin, then.taken, facts=then.facts & otherwise.facts)
    for path in {
        **then.places,
        **otherwise.places,
    }:  # in one order, so that the same program gives the same text
        type_ = (then.places.get(path) or otherwise.places[path]).type
        result.places[path] = values.mux(condition, then.read(path, type_), otherwise.read(path, type_))
    for path in {**then.valid, **otherwise.valid}:
        result.valid[path] = values.mux(condition, then.is_valid(path), otherwise.is_valid(path))
    return result


def facts_of(condition: Atom, holds: bool) -> tuple[Fact, ...]:
    """Return the facts that are known where a condition held, or did not."""
    return ((condition.name, holds),) if isinstance(condition, ir.Var) else ()


def _wrapped_constant(type_: ir.Type, value: int) -> ir.Const:
    assert isinstance(type_, ir.Scalar)
    return ir.Const(type_, value, pos=NOWHERE)
