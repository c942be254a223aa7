"""Derive facts about a packet from conditions and patterns, and find undefined reads in expressions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import assert_never

from softswitch.compiler import ir
from softswitch.compiler.ir.walk import written
from softswitch.compiler.undefined.state import Bounds, PathState, stack_size

_NEGATED = {"==": "!=", "!=": "==", "<": ">=", ">=": "<", ">": "<=", "<=": ">"}
_TURNED = {"==": "==", "!=": "!=", "<": ">", ">": "<", "<=": ">=", ">=": "<="}


def assume(state: PathState, condition: ir.Expr, holds: bool) -> list[PathState]:
    """Return the states of those packets of `state` for which `condition` has the value `holds`.

    Return [] if there are no such packets. `state` may be changed: do not use it afterwards.
    """
    known = state.value(condition).only
    if known is not None:
        return [state] if bool(known) is holds else []
    match condition:
        case ir.Unary(op="!", operand=operand):
            return assume(state, operand, not holds)
        case ir.Binary(op="&&" | "||", left=left, right=right):
            if (condition.op == "&&") is holds:  # then both sides have this value, too
                return [both for one in assume(state, left, holds) for both in assume(one, right, holds)]
            decided = assume(state.copy(), left, holds)
            return decided + [
                both for one in assume(state, left, not holds) for both in assume(one, right, holds)
            ]
        case ir.Binary(op="==" | "!=" | "<" | "<=" | ">" | ">=") if isinstance(
            condition.left.type, ir.Bits | ir.Enum
        ):
            op = condition.op if holds else _NEGATED[condition.op]
            a, b = state.value(condition.left), state.value(condition.right)
            fits = _limit(state, condition.left, op, b) and _limit(state, condition.right, _TURNED[op], a)
            return [state] if fits else []
        case ir.IsValid(header=header):
            place = state.place(header)
            if place is not None:
                state.valid[place] = holds
            return [state]
        case ir.Var() | ir.Member() | ir.Cast():
            return [state] if _limit(state, condition, "==", Bounds(int(holds), int(holds))) else []
        case _:
            return [state]


def _limit(state: PathState, expr: ir.Expr, op: str, other: Bounds) -> bool:
    """Record that ``expr op x`` holds for some x within `other`, and return True.

    Return False if it cannot hold for any x within `other`.
    """
    value = state.value(expr)
    limited: Bounds | None = value
    match op:
        case "==":
            limited = value.meet(other.low, other.high)
        case "!=" if other.only is not None:
            limited = value.without(other.only)
        case "<":
            limited = value.meet(value.low, other.high - 1)
        case "<=":
            limited = value.meet(value.low, other.high)
        case ">":
            limited = value.meet(other.low + 1, value.high)
        case ">=":
            limited = value.meet(other.low, value.high)
    if limited is None:
        return False
    _note(state, expr, limited)
    return True


def _note(state: PathState, expr: ir.Expr, value: Bounds) -> None:
    """Record that an expression has one of the values `value`."""
    match expr:
        case ir.Var() | ir.Member():
            place = state.place(expr)
            if place is not None:
                state.values[place] = value
        case ir.Cast(operand=operand):
            whole = state.value(operand)
            full = state.value(expr)
            if whole.low >= full.low and whole.high <= full.high:  # no bits were cut off
                _note(state, operand, value)
        case ir.IsValid(header=header) if value.only is not None:
            place = state.place(header)
            if place is not None:
                state.valid[place] = bool(value.only)


def matching(
    state: PathState, subjects: Sequence[ir.Expr], patterns: Sequence[ir.Pattern]
) -> PathState | None:
    """Return the state in which all patterns match, or None if they cannot match.

    `state` may be changed: do not use it afterwards.
    """
    for subject, pattern in zip(subjects, patterns, strict=True):
        limited: Bounds | None
        value = state.value(subject)
        match pattern.kind:
            case _ if value.low < 0:
                continue  # patterns describe bits, not negative numbers
            case "exact":
                limited = value.meet(pattern.value, pattern.value)
            case "range":
                limited = value.meet(pattern.value, pattern.mask)
            case "mask" if value.only is not None and value.only >= 0:
                limited = value if value.only & pattern.mask == pattern.value else None
            case _:
                if _is_whole(subject, pattern):
                    limited = value.meet(pattern.value, pattern.value)
                else:
                    continue
        if limited is None:
            return None
        _note(state, subject, limited)
    return state


def _is_whole(subject: ir.Expr, pattern: ir.Pattern) -> bool:
    """Return True if a pattern is a mask of all bits of the subject."""
    width = subject.type.width if isinstance(subject.type, ir.Bits) and not subject.type.signed else 1
    return pattern.kind == "mask" and pattern.mask == (1 << width) - 1


def not_matching(
    state: PathState, subjects: Sequence[ir.Expr], patterns: Sequence[ir.Pattern], *, split: bool
) -> list[PathState]:
    """Return the states in which at least one pattern does not match; [] if all patterns certainly match.

    With `split`, return one state for each pattern that may be the first mismatch. Without `split`, return a
    single state.
    `state` may be changed: do not use it afterwards.
    """
    doubtful = [
        (subject, pattern)
        for subject, pattern in zip(subjects, patterns, strict=True)
        if not _certain(state, subject, pattern)
    ]
    if not doubtful:
        return []
    if len(doubtful) > 1 and not split:
        return [state]
    found: list[PathState] = []
    rest: PathState | None = state
    for subject, pattern in doubtful:
        if rest is None:
            break
        found += _missed(rest.copy(), subject, pattern)
        rest = matching(rest, [subject], [pattern])
    return found


def _missed(state: PathState, subject: ir.Expr, pattern: ir.Pattern) -> list[PathState]:
    value = state.value(subject)
    if value.low >= 0 and (pattern.kind == "exact" or _is_whole(subject, pattern)):
        left = value.without(pattern.value)
        if left is None:
            return []
        _note(state, subject, left)
    return [state]


def _certain(state: PathState, subject: ir.Expr, pattern: ir.Pattern) -> bool:
    """Return True if a pattern matches every value that `subject` may have in `state`."""
    value = state.value(subject)
    match pattern.kind:
        case "any":
            return True
        case _ if value.low < 0:
            return False
        case "exact":
            return value.only == pattern.value
        case "range":
            return pattern.value <= value.low and value.high <= pattern.mask
        case _:
            return pattern.mask == 0 or (
                value.only is not None and value.only >= 0 and value.only & pattern.mask == pattern.value
            )


@dataclass(frozen=True, slots=True)
class Finding:
    """A place in the source where the program's result depends on undefined behaviour."""

    message: str
    pos: ir.Position

    def __str__(self) -> str:
        return f"{self.pos}: {self.message}"


class Reader:
    """A collector of undefined reads on all paths; `found` holds the findings without duplicates."""

    def __init__(self) -> None:
        self.found: dict[Finding, None] = {}

    def reads(self, expr: ir.Expr, state: PathState, *, copied: bool = False) -> None:
        """Report the undefined reads in `expr`.

        With `copied`, do not report that `expr` itself has never been set: its value is only copied.
        """
        match expr:
            case ir.Const() | ir.Lookahead() | ir.PacketLength() | ir.LastIndex():
                pass
            case ir.Var() | ir.Member():
                self._reads_place(expr, state, copied=copied)
            case ir.Index() | ir.Next() | ir.Last():
                self.indices(expr, state)
            case ir.IsValid(header=header):
                self.indices(header, state)
            case ir.Slice(base=inner) | ir.Unary(operand=inner) | ir.Cast(operand=inner):
                self.reads(inner, state)
            case ir.Binary(op="&&" | "||", left=left, right=right):
                self.reads(left, state)
                for where in assume(state.copy(), left, expr.op == "&&"):
                    self.reads(right, where)
            case ir.Binary(left=left, right=right):
                self.reads(left, state)
                self.reads(right, state)
            case ir.Mux(condition=condition, then=then, otherwise=otherwise):
                self.reads(condition, state)
                for part, holds in ((then, True), (otherwise, False)):
                    if not isinstance(part, ir.Const):
                        for where in assume(state.copy(), condition, holds):
                            self.reads(part, where)
            case _:
                assert_never(expr)

    def _reads_place(self, expr: ir.Var | ir.Member, state: PathState, *, copied: bool) -> None:
        if isinstance(expr.type, ir.Struct | ir.Header | ir.Stack):
            return
        self.indices(expr, state)
        if (
            isinstance(expr, ir.Member)
            and isinstance(expr.base.type, ir.Header)
            and not state.is_valid(expr.base)
        ):
            self.report(f"{written(expr)} is read, and {written(expr.base)} may be invalid", expr.pos)
            return
        if not copied and state.unset_at(expr) is not None:
            self.report(f"{written(expr)} is read, and nothing has set it", expr.pos)

    def indices(self, expr: ir.Expr, state: PathState) -> None:
        """Report the stack indices in `expr`, an l-value, that may be out of range."""
        match expr:
            case ir.Member(base=base) | ir.Slice(base=base) | ir.Next(base=base) | ir.Last(base=base):
                self.indices(base, state)
            case ir.Index(base=base, index=index):
                self.indices(base, state)
                self.reads(index, state)
                self.bounded(index, stack_size(base), written(base), expr.pos, state)
            case _:
                pass

    def report(self, message: str, pos: ir.Position) -> None:
        """Record a finding with this message and position."""
        self.found[Finding(message, pos)] = None

    def bounded(self, index: ir.Expr, size: int, name: str, pos: ir.Position, state: PathState) -> None:
        """Report an index that may be `size` or more, for the stack or register `name`."""
        value = state.value(index)
        if not value.trusted and not (value.low >= 0 and value.high < size):
            self.report(f"{name} has {size} cells, and the index may be up to {value.high}", pos)
        elif value.low >= size:
            self.report(f"{name} has {size} cells, and the index is at least {value.low}", pos)


def shown(place: str) -> str:
    """Return a place such as ``hdr/s/[1]/a`` in P4 notation: ``hdr.s[1].a``."""
    return place.replace("/[", "[").replace("/", ".")
