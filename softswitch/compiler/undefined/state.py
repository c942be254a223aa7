"""Facts about a packet on one path through the program.

For a scalar, these are its bounds, excluded values, and whether the content of packets can influence it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from softswitch.compiler import ir
from softswitch.compiler.ir import fold

_MOST_HOLES = 16


class Bounds(NamedTuple):
    """A set of values: `low` to `high` except `holes`.

    `trusted` is True if only the program and the control plane determine the value, not packets.
    """

    low: int
    high: int
    trusted: bool = False
    holes: frozenset[int] = frozenset()

    @property
    def only(self) -> int | None:
        """The value if there is only one, else None."""
        return self.low if self.low == self.high else None

    def meet(self, low: int, high: int) -> Bounds | None:
        """Return the values of this set from `low` to `high`; None if there are none."""
        low, high = max(self.low, low), min(self.high, high)
        while low in self.holes:
            low += 1
        while high in self.holes:
            high -= 1
        return Bounds(low, high, self.trusted, self.holes) if low <= high else None

    def without(self, value: int) -> Bounds | None:
        """Return the values of this set except `value`; None if there are none."""
        if len(self.holes) >= _MOST_HOLES and self.low < value < self.high:
            return self
        return Bounds(self.low, self.high, self.trusted, self.holes | {value}).meet(self.low, self.high)

    def join(self, other: Bounds) -> Bounds:
        """Return bounds that contain all values of both sets."""
        trusted = self.trusted and other.trusted
        low, high = min(self.low, other.low), max(self.high, other.high)
        return Bounds(low, high, trusted, self.holes & other.holes)


def anything(type_: ir.Type, *, trusted: bool = False) -> Bounds:
    """Return the bounds of all values of a scalar type."""
    match type_:
        case ir.Bits():
            return Bounds(*fold.limits(type_), trusted)
        case ir.Enum(_, members):
            return Bounds(0, len(members) - 1, trusted)
        case _:
            return Bounds(0, 1, trusted)


def constant(value: int) -> Bounds:
    """Return bounds that contain only `value`. They are trusted: packets cannot influence the value."""
    return Bounds(value, value, True)


def fitted(type_: ir.Type, low: int, high: int, *, trusted: bool) -> Bounds:
    """Return the bounds `low` to `high`; if the type cannot hold them all, the bounds of all its values."""
    full = anything(type_, trusted=trusted)
    return Bounds(low, high, trusted) if full.low <= low and high <= full.high else full


def calculated(expr: ir.Binary, left: Bounds, right: Bounds) -> Bounds:
    """Return the bounds of the result of `expr`, whose operands have the bounds `left` and `right`."""
    trusted = left.trusted and right.trusted
    full = anything(expr.type, trusted=trusted)
    a, b = left.only, right.only
    exact = a is not None and b is not None and expr.op not in ("/", "%", "++")
    if exact and isinstance(expr.type, ir.Bits) and right.low >= 0:
        known = (ir.Const(expr.type, left.low, pos=expr.pos), ir.Const(expr.type, right.low, pos=expr.pos))
        value = fold.bits(expr.op, expr.type, *known, expr.pos)
        return Bounds(value, value, trusted)
    if left.low < 0 or right.low < 0:
        return full
    match expr.op:
        case "+":
            return fitted(expr.type, left.low + right.low, left.high + right.high, trusted=trusted)
        case "-":
            return fitted(expr.type, left.low - right.high, left.high - right.low, trusted=trusted)
        case "*":
            return fitted(expr.type, left.low * right.low, left.high * right.high, trusted=trusted)
        case "&":
            return Bounds(0, min(left.high, right.high), trusted)
        case "|" | "^":
            return fitted(expr.type, 0, (1 << max(left.high, right.high).bit_length()) - 1, trusted=trusted)
        case "%":
            return Bounds(0, min(left.high, right.high - 1), trusted) if right.low > 0 else full
        case "/":
            return Bounds(0, left.high // max(1, right.low), trusted)
        case ">>":
            return Bounds(0, left.high >> right.low, trusted)
        case "++":
            assert isinstance(expr.right.type, ir.Bits)
            width = expr.right.type.width
            return Bounds((left.low << width) + right.low, (left.high << width) + right.high, trusted)
        case _:
            return full


def compared(op: str, left: Bounds, right: Bounds) -> Bounds:
    """Return the bounds of the result of a comparison of numbers: 0, 1, or 0 to 1."""
    apart = left.high < right.low or right.high < left.low
    apart |= (right.only in left.holes) if right.only is not None else False
    same = left.only is not None and left.only == right.only
    sure: dict[str, tuple[bool, bool]] = {  # certainly true, certainly false
        "==": (same, apart),
        "!=": (apart, same),
        "<": (left.high < right.low, left.low >= right.high),
        "<=": (left.high <= right.low, left.low > right.high),
        ">": (left.low > right.high, left.high <= right.low),
        ">=": (left.low >= right.high, left.high < right.low),
    }
    true, false = sure[op]
    trusted = left.trusted and right.trusted
    return Bounds(int(true), int(not false), trusted)


def joined(values: Iterable[Bounds]) -> Bounds:
    """Return bounds that contain all values of one or more sets."""
    first, *others = values
    for other in others:
        first = first.join(other)
    return first


_NEXT = "/next"


class PathState:
    """Facts about a packet by place (``hdr/ina/kind``); for a place without facts, nothing is known.

    `values` has the bounds of scalars, `valid` the validity of headers, and `unset`, for each scalar with an
    undefined value, the position in the source that made it undefined.
    """

    __slots__ = ("unset", "valid", "values")

    def __init__(
        self, values: dict[str, Bounds], valid: dict[str, bool], unset: dict[str, ir.Position]
    ) -> None:
        self.values = values
        self.valid = valid
        self.unset = unset

    def copy(self) -> PathState:
        """Return an independent copy."""
        return PathState(self.values.copy(), self.valid.copy(), self.unset.copy())

    def all_facts(self) -> tuple[dict[str, Any], ...]:
        """Return the three dictionaries of facts: `values`, `valid`, `unset`."""
        return self.values, self.valid, self.unset

    def key(self) -> tuple[frozenset[object], ...]:
        """Return a hashable key that is equal for states with equal facts."""
        return frozenset(self.values.items()), frozenset(self.valid.items()), frozenset(self.unset.items())

    # ----------------------------------------------------------------- places

    def place(self, expr: ir.Expr) -> str | None:
        """Return the place of an l-value; None if it is unknown, for example because of a run-time index."""
        match expr:
            case ir.Var(name=name):
                return name
            case ir.Member(base=base, field=field):
                parent = self.place(base)
                return None if parent is None else f"{parent}/{field}"
            case ir.Index(base=base, index=index):
                return self._element(base, self.value(index).only)
            case ir.Next(base=base):
                return self._element(base, self.following(base).only)
            case ir.Last(base=base):
                following = self.following(base).only
                return None if following is None else self._element(base, following - 1)
            case _:
                return None

    def _element(self, base: ir.Expr, index: int | None) -> str | None:
        parent = self.place(base)
        if parent is None or index is None or not 0 <= index < stack_size(base):
            return None
        return element(parent, index)

    def following(self, stack: ir.Expr) -> Bounds:
        """Return the bounds of the index of the stack's next element."""
        parent = self.place(stack)
        unknown = Bounds(0, stack_size(stack))
        return unknown if parent is None else self.values.get(parent + _NEXT, unknown)

    def set_following(self, stack: ir.Expr, index: int | None) -> None:
        """Set the next index of a stack to `index`; None: unknown."""
        parent = self.place(stack)
        if parent is not None:
            self._set(parent + _NEXT, None if index is None else constant(index))

    # ----------------------------------------------------------------- values

    def value(self, expr: ir.Expr) -> Bounds:
        """Return the bounds of the value of a scalar expression."""
        match expr:
            case ir.Const(value=value):
                return constant(value)
            case ir.Var() | ir.Member():
                place = self.place(expr)
                found = self.values.get(place) if place is not None else None
                return anything(expr.type) if found is None else found
            case ir.IsValid(header=header):
                known = self.is_valid(header)
                return Bounds(0, 1) if known is None else Bounds(int(known), int(known))
            case ir.Slice(base=base, high=high, low=low):
                whole = self.value(base)
                if whole.only is not None:
                    bits = whole.only >> low & ((1 << (high - low + 1)) - 1)
                    return Bounds(bits, bits, whole.trusted)
                fits = low == 0 and whole.low >= 0 and whole.high < 1 << (high + 1)
                return whole if fits else anything(expr.type, trusted=whole.trusted)
            case ir.Cast(operand=operand):
                before = self.value(operand)
                full = anything(expr.type, trusted=before.trusted)
                return before if full.low <= before.low and before.high <= full.high else full
            case ir.Unary(op="!", operand=operand):
                no = self.value(operand)
                return Bounds(1 - no.high, 1 - no.low, no.trusted)
            case ir.Unary(operand=operand):
                return anything(expr.type, trusted=self.value(operand).trusted)
            case ir.Mux(condition=condition, then=then, otherwise=otherwise):
                chosen = self.value(condition).only
                if chosen is not None:
                    return self.value(then if chosen else otherwise)
                return self.value(then).join(self.value(otherwise))
            case ir.Binary():
                return self._binary(expr)
            case _:
                return anything(expr.type)

    def _binary(self, expr: ir.Binary) -> Bounds:
        if isinstance(expr.left.type, ir.Header | ir.Stack | ir.Struct | ir.VarBits):
            return Bounds(0, 1)
        left, right = self.value(expr.left), self.value(expr.right)
        trusted = left.trusted and right.trusted
        match expr.op:
            case "&&":
                return Bounds(left.low & right.low, left.high & right.high, trusted)
            case "||":
                return Bounds(left.low | right.low, left.high | right.high, trusted)
            case "==" | "!=" | "<" | "<=" | ">" | ">=":
                return compared(expr.op, left, right)
            case _:
                return calculated(expr, left, right)

    def _set(self, place: str, value: Bounds | None) -> None:
        if value is None:
            self.values.pop(place, None)
        else:
            self.values[place] = value

    def assign(self, target: ir.Expr, value: Bounds | None) -> None:
        """Record that the scalar `target` gets `value` (None: unknown) and is no longer undefined."""
        if isinstance(target, ir.Slice):
            place = self.place(target.base)
            if place is not None:
                self._set(place, None)
            return
        place = self.place(target)
        if place is not None:
            self._set(place, value)
            self.unset.pop(place, None)

    def unset_at(self, expr: ir.Expr) -> ir.Position | None:
        """Return the source position that made the scalar `expr` undefined; None if the scalar is defined."""
        place = self.place(expr)
        return None if place is None else self.unset.get(place)

    # ----------------------------------------------------------------- headers

    def is_valid(self, header: ir.Expr) -> bool | None:
        """Return True if a header is valid, False if it is invalid, None if this is unknown."""
        place = self.place(header)
        if place is not None:
            return self.valid.get(place)
        if not isinstance(header, ir.Index | ir.Next | ir.Last) or self.place(header.base) is None:
            return None
        base = str(self.place(header.base))
        known = {self.valid.get(element(base, index)) for index in range(stack_size(header.base))}
        return known.pop() if len(known) == 1 else None

    def set_valid(self, header: ir.Expr, valid: bool) -> None:
        """Record that a header is valid or invalid."""
        place = self.place(header)
        if place is not None:
            self.valid[place] = valid
        elif isinstance(header, ir.Index | ir.Next | ir.Last):
            self.drop(header.base)

    def forget_fields(self, header: ir.Expr, pos: ir.Position | None) -> None:
        """Remove all facts about a header's fields; with `pos`, record that `pos` made them undefined."""
        place = self.place(header)
        assert isinstance(header.type, ir.Header)
        if place is None:
            return
        for name, _ in header.type.fields:
            field = f"{place}/{name}"
            self.values.pop(field, None)
            self.unset.pop(field, None)
            if pos is not None:
                self.unset[field] = pos

    # ----------------------------------------------------------------- whole values

    def drop(self, expr: ir.Expr) -> None:
        """Remove all facts about a struct, header or stack."""
        place = self.place(expr)
        if place is not None:
            self._drop_below(place)

    def _drop_below(self, place: str) -> None:
        below = place + "/"
        for facts in self.all_facts():
            for name in [name for name in facts if name == place or name.startswith(below)]:
                del facts[name]

    def copy_tree(self, source: str, target: str) -> None:
        """Copy all facts about place `source` and the places in it to place `target`."""
        cut = len(source)
        below = source + "/"
        found = [
            {
                target + name[cut:]: fact
                for name, fact in facts.items()
                if name == source or name.startswith(below)
            }
            for facts in self.all_facts()
        ]
        self._drop_below(target)
        for facts, new in zip(self.all_facts(), found, strict=True):
            facts.update(new)

    def shift(self, stack: ir.Expr, count: int) -> None:
        """Move the facts about a stack's elements, for ``push_front`` or, if `count` < 0, ``pop_front``."""
        place = self.place(stack)
        size, following = stack_size(stack), self.following(stack).only
        if place is None:
            return
        order = range(size - 1, -1, -1) if count > 0 else range(size)
        for index in order:
            if 0 <= index - count < size:
                self.copy_tree(element(place, index - count), element(place, index))
            else:
                self._drop_below(element(place, index))
                self.valid[element(place, index)] = False
        self.set_following(stack, None if following is None else max(0, min(size, following + count)))


def stack_size(stack: ir.Expr) -> int:
    """Return the number of elements of a header stack."""
    assert isinstance(stack.type, ir.Stack)
    return stack.type.size


def element(stack: str, index: int) -> str:
    """Return the path of a header stack's element in the state, such as ``stack/[0]``."""
    return f"{stack}/[{index}]"


def places_below(type_: ir.Type, place: str) -> Iterator[tuple[str, ir.Type]]:
    """Yield place and type of each scalar, header and stack in a value of `type_` at `place`.

    The fields of headers are left out; the place of a stack is that of its next index.
    """
    match type_:
        case ir.Struct(_, members):
            for name, member in members:
                yield from places_below(member, f"{place}/{name}")
        case ir.Stack(header, size):
            yield place + _NEXT, type_
            for index in range(size):
                yield element(place, index), header
        case _:
            yield place, type_


def headers_below(type_: ir.Type, place: str) -> list[str]:
    """Return the places of all headers in a value of `type_` at `place`."""
    return [found for found, part in places_below(type_, place) if isinstance(part, ir.Header)]


def merged(states: Iterable[PathState]) -> PathState:
    """Return a state with only those facts that hold in all `states`.

    A scalar that is undefined in one of the states is undefined in the result.
    """
    first, *others = states
    values, valid, unset = first.values.copy(), first.valid.copy(), first.unset.copy()
    for other in others:
        values = {
            name: value.join(other.values[name]) for name, value in values.items() if name in other.values
        }
        valid = {name: is_ for name, is_ in valid.items() if other.valid.get(name) is is_}
        unset |= other.unset
    return PathState(values, valid, unset)


MOST_STATES = 512
"""Maximum number of paths at one point of the program; further paths are merged."""
MOST_IN_LOOPS = 16
"""Maximum number of paths at one point of a loop and, after `MOST_STEPS` statements, at any point."""
MOST_STEPS = 150_000

DROP_PORT = 511
PARSER_ERROR = "standard_metadata/parser_error"
SPEC = "standard_metadata/egress_spec"
GROUP = "standard_metadata/mcast_grp"

Seen = set[tuple[frozenset[object], ...]]


@dataclass(slots=True)
class Leaves:
    """The paths that leave a body, by kind of exit."""

    returned: list[PathState] = field(default_factory=list)
    exited: list[PathState] = field(default_factory=list)
    broken: list[PathState] = field(default_factory=list)
    continued: list[PathState] = field(default_factory=list)
    stopped: list[PathState] = field(default_factory=list)  # with a parser error


class PathSet:
    """Limits the number of paths by merging; `steps` counts the statements applied so far on all paths."""

    def __init__(self) -> None:
        self.steps = 0

    def few(self, states: list[PathState], most: int = MOST_STATES) -> list[PathState]:
        """Return the distinct states, merged if there are more than `most`.

        First merge states with the same valid headers and the same undefined scalars. If there are still too
        many, merge states with the same valid headers, and last all states.
        """
        if len(states) < 2:
            return states
        different = {state.key(): state for state in states}
        most = most if self.steps < MOST_STEPS else MOST_IN_LOOPS
        for facts in (2, 1, 0):  # merge states equal in valid and unset, then equal in valid, then all
            if len(different) <= most:
                break
            alike: dict[tuple[object, ...], list[PathState]] = {}
            for state in different.values():
                alike.setdefault(state.key()[1 : 1 + facts], []).append(state)
            different = {one.key(): one for one in map(merged, alike.values())}
        return list(different.values())


def fresh(seen: Seen, state: PathState) -> bool:
    """Add `state` to `seen`; return False if `seen` contains it already."""
    key = state.key()
    if key in seen:
        return False
    seen.add(key)
    return True
