"""Where the parser takes headers from: the tests that lead to them, and their offsets in the frame."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from softswitch.compiler import ir
from softswitch.compiler.ir.walk import Path, member_path
from softswitch.compiler.slots.follow import CannotFollow

MOST_STATES = 64
"""States that a packet may go through before the headers are found."""

MAX_BITS = 57
"""Widest field that is read: with what is beside it in its first byte it fits 64 bits."""


@dataclass(frozen=True, slots=True)
class Place:
    """Bits of a frame: `width` of them, from bit `offset` on."""

    offset: int
    width: int


@dataclass(frozen=True, slots=True)
class Found:
    """The end of a search: the offsets of the headers that were found, in bytes."""

    headers: tuple[tuple[Path, int], ...]


@dataclass(frozen=True, slots=True)
class Choice:
    """The frame has `least` bytes, and the first case whose patterns all match says how to go on.

    Without a case that fits, or if the frame is shorter, what was found in front of it is all.
    """

    least: int
    shorter: Found
    subjects: tuple[Place | ir.Const, ...]
    cases: tuple[tuple[tuple[ir.Pattern, ...], Search], ...]
    none: Found


Search = Found | Choice


def locate(
    program: ir.Program, wanted: frozenset[Path], *, touched: frozenset[Path], strictly: bool
) -> Search:
    """Return the way to some headers.

    Args:
        program: The program.
        wanted: The headers.
        touched: What the parser assigns.
        strictly: Whether exactly those frames have to lead to a header from which the parser takes it; else
            others may, too.

    Raises CannotFollow where their offsets are not constant.
    """
    return _Locator(program, wanted, touched, strictly).state("start", 0, {}, 0)


@dataclass(frozen=True, slots=True)
class _Locator:
    program: ir.Program
    wanted: frozenset[Path]
    touched: frozenset[Path]
    strictly: bool

    def state(self, name: str, offset: int, known: Mapping[Path, int], depth: int) -> Search:
        """Return the way from a parser state on, at a bit of the frame, with headers that are `known`."""
        if name not in self.program.states or self._is_all(known):
            return self._found(known)
        if depth == MOST_STATES:
            raise CannotFollow(f"its parser may take more than {MOST_STATES} steps to them")
        return self._rest(self.program.states[name], 0, offset, known, depth)

    def _rest(
        self, state: ir.State, position: int, offset: int, known: Mapping[Path, int], depth: int
    ) -> Search:
        """Return the way from one of a state's statements on: a header beyond the frame is not taken."""
        for number, statement in enumerate(state.body[position:], start=position):
            match statement:
                case ir.Extract(header=header, size=None) if (path := member_path(header)) is not None:
                    assert isinstance(header.type, ir.Header)
                    if path in known:
                        raise CannotFollow(f"its parser takes a header twice ({statement.pos})")
                    now, end = {**known, path: offset}, offset + _bits(header.type)
                    done = self._is_all(now)
                    after = self._found(now) if done else self._rest(state, number + 1, end, now, depth)
                    return Choice(end // 8, self._found(known), (), (((), after),), self._found(now))
                case ir.Extract() | ir.Advance():
                    raise CannotFollow(f"its parser takes what has no constant length ({statement.pos})")
                case ir.Verify() if self.strictly:
                    raise CannotFollow(f"its parser may stop in front of them ({statement.pos})")
                case ir.If() | ir.Switch() | ir.Scope() | ir.Loop() | ir.Call() | ir.Apply():
                    raise CannotFollow(f"its parser branches within a state ({statement.pos})")
                case _:
                    pass
        subjects = tuple(self._subject(subject, known) for subject in state.transition.subjects)
        cases = tuple(
            (patterns, self.state(target, offset, known, depth + 1))
            for patterns, target in state.transition.cases
        )
        return Choice(0, self._found(known), subjects, cases, self._found(known))

    def _is_all(self, known: Mapping[Path, int]) -> bool:
        return self.wanted <= known.keys()

    def _found(self, known: Mapping[Path, int]) -> Found:
        return Found(tuple((path, at // 8) for path, at in known.items() if path in self.wanted))

    def _subject(self, subject: ir.Expr, known: Mapping[Path, int]) -> Place | ir.Const:
        match subject:
            case ir.Const():
                return subject
            case ir.Slice(base=base, high=high, low=low):
                whole = self._subject(base, known)
                if isinstance(whole, Place):
                    return Place(whole.offset + whole.width - 1 - high, high - low + 1)
            case ir.Member(ir.Bits(width, signed=False), base, name) if (path := member_path(base)) in known:
                assert path is not None
                assert isinstance(base.type, ir.Header)
                if width <= MAX_BITS and not is_within((*path, name), self.touched):
                    return Place(known[path] + field_offset(base.type, name), width)
        raise CannotFollow(f"its parser decides by more than fields that it has taken ({subject.pos})")


def is_within(path: Path, places: Iterable[Path]) -> bool:
    """Return whether a place is one of these, or part of one."""
    return any(path[: len(place)] == place for place in places)


def header_type(program: ir.Program, header: Path) -> ir.Header:
    """Return the type of a header of packets."""
    type_: ir.Type = program.hdr
    for name in header[1:]:
        assert isinstance(type_, ir.Struct)
        type_ = dict(type_.fields)[name]
    assert isinstance(type_, ir.Header)
    return type_


def field_offset(header: ir.Header, name: str) -> int:
    """Return where a field of a header begins, in bits."""
    offset = 0
    for field, type_ in header.fields:
        if field == name:
            return offset
        offset += _width(type_)
    raise KeyError(name)


def _bits(header: ir.Header) -> int:
    if any(isinstance(type_, ir.VarBits) for _, type_ in header.fields):
        raise CannotFollow(f"header {header.name} has no constant length")
    return sum(_width(type_) for _, type_ in header.fields)


def _width(type_: ir.Bits | ir.Bool | ir.VarBits) -> int:
    return type_.width if isinstance(type_, ir.Bits) else 1


def leads_to(search: Search) -> Sequence[Found]:
    """Return all ends of a search."""
    if isinstance(search, Found):
        return [search]
    inner = [end for _, way in search.cases for end in leads_to(way)]
    return [*inner, search.none, search.shorter]
