"""The places of a packet and what is in them, on the way through ingress."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from softswitch.compiler import ir
from softswitch.compiler.ir.walk import Path, member_path
from softswitch.compiler.position import NOWHERE
from softswitch.compiler.slots.values import Atom, Fact, Values


@dataclass(slots=True)
class State:
    """Values by place, and the conditions that are known to have held on the way here.

    `valid` are headers, and `origin` says what is in a place that nothing has been assigned to.
    """

    values: Values
    origin: Callable[[Path, ir.Type], Atom]
    taken: Callable[[Path], Atom]
    places: dict[Path, Atom] = field(default_factory=dict)
    valid: dict[Path, Atom] = field(default_factory=dict)
    facts: frozenset[Fact] = frozenset()

    def copy(self, *facts: Fact) -> State:
        """Return an independent copy on which these facts hold, too."""
        places, valid = self.places.copy(), self.valid.copy()
        return State(self.values, self.origin, self.taken, places, valid, self.facts.union(facts))

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
                return _constant(type_, value)
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
                return self.values.calculate(ir.Slice(type_, self.value(base), high, low, NOWHERE))
            case ir.Unary(type_, op, operand):
                return self.values.calculate(ir.Unary(type_, op, self.value(operand), NOWHERE))
            case ir.Cast(type_, operand):
                return self.values.calculate(ir.Cast(type_, self.value(operand), NOWHERE))
            case ir.Mux(_, condition, then, otherwise):
                return self.values.mux(self.value(condition), self.value(then), self.value(otherwise))
            case ir.Binary(type_, op, left, right):
                if not isinstance(left.type, ir.Scalar):
                    return self.values.unknown("a comparison of whole headers", expr.type)
                return self.values.calculate(
                    ir.Binary(type_, op, self.value(left), self.value(right), NOWHERE)
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


def joined(condition: Atom, then: State, otherwise: State) -> State:
    """Return the state behind two branches, of which `condition` says which was taken."""
    values = then.values
    result = State(values, then.origin, then.taken, facts=then.facts & otherwise.facts)
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


def _constant(type_: ir.Type, value: int) -> ir.Const:
    assert isinstance(type_, ir.Scalar)
    return ir.Const(type_, value, NOWHERE)
