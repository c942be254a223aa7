"""By what packets can be divided among threads: the slot of a packet, derived from its program.

Two packets may be worked on at the same time if they meet no register cell in common. A program mostly
indexes all its registers by one value, the slot, and that is a function of the packet's bytes, its port and
table entries: for ``exclusive.p4`` the place of its PSN in the region of slots that the job's entry names.
`find_slots` follows ingress on all paths at once (`follow`), with what is computed alike numbered alike
(`values`), and returns that function (`FoundSlots`): packets of one slot then go to one thread. What it
cannot follow, it names (`OneThread`).

What a register holds never decides to which thread a packet goes: another thread may be changing it. Where
an index depends on one behind a table, the table is assumed to be empty: `Slots.empty` lists such tables,
and while they have entries all packets go to one thread. In ``shared.p4`` that is ``change``, which has
entries while a job moves to another region.

Counters, direct counters and digests can be kept for each thread. Programs without registers and meters can
be divided by any hash that keeps a flow together (`SlotFlows`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations

from softswitch.compiler import ir
from softswitch.compiler.errors import NOWHERE
from softswitch.compiler.ir.walk import Path, all_statements, member_path
from softswitch.compiler.slots.follow import MAX_WIDTH, Access, CannotFollow, Follower
from softswitch.compiler.slots.state import (
    Argument,
    Atom,
    Chosen,
    Definition,
    Fact,
    FieldValue,
    Hash,
    Hit,
    KeyLookup,
    Port,
    SlotState,
    TakenBranch,
    UnknownValue,
    Values,
)

MOST_STATES = 64
"""States that a packet may go through before the headers are found."""

MAX_BITS = 57
"""Widest field that is read: with what is beside it in its first byte it fits 64 bits."""


@dataclass(frozen=True, slots=True)
class SlotPlace:
    """Bits of a frame: `width` of them, from bit `offset` on."""

    offset: int
    width: int


@dataclass(frozen=True, slots=True)
class Found:
    """The end of a search: the offsets of the headers that were found, in bytes."""

    headers: tuple[tuple[Path, int], ...]


@dataclass(frozen=True, slots=True)
class SlotChoice:
    """The frame has `least` bytes, and the first case whose patterns all match says how to go on.

    Without a case that fits, or if the frame is shorter, what was found in front of it is all.
    """

    least: int
    shorter: Found
    subjects: tuple[SlotPlace | ir.Const, ...]
    cases: tuple[tuple[tuple[ir.Pattern, ...], Search], ...]
    none: Found


Search = Found | SlotChoice


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
        self, state: ir.ParserState, position: int, offset: int, known: Mapping[Path, int], depth: int
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
                    return SlotChoice(end // 8, self._found(known), (), (((), after),), self._found(now))
                case ir.Extract() | ir.Advance():
                    raise CannotFollow(f"its parser takes what has no constant length ({statement.pos})")
                case ir.Verify() if self.strictly:
                    raise CannotFollow(f"its parser may stop in front of them ({statement.pos})")
                case ir.If() | ir.Switch() | ir.Inlined() | ir.Loop() | ir.Call() | ir.Apply():
                    raise CannotFollow(f"its parser branches within a state ({statement.pos})")
                case _:
                    pass
        subjects = tuple(self._subject(subject, known) for subject in state.transition.subjects)
        cases = tuple(
            (patterns, self.state(target, offset, known, depth + 1))
            for patterns, target in state.transition.cases
        )
        return SlotChoice(0, self._found(known), subjects, cases, self._found(known))

    def _is_all(self, known: Mapping[Path, int]) -> bool:
        return self.wanted <= known.keys()

    def _found(self, known: Mapping[Path, int]) -> Found:
        return Found(tuple((path, at // 8) for path, at in known.items() if path in self.wanted))

    def _subject(self, subject: ir.Expr, known: Mapping[Path, int]) -> SlotPlace | ir.Const:
        match subject:
            case ir.Const():
                return subject
            case ir.Slice(base=base, high=high, low=low):
                whole = self._subject(base, known)
                if isinstance(whole, SlotPlace):
                    return SlotPlace(whole.offset + whole.width - 1 - high, high - low + 1)
            case ir.Member(ir.Bits(width, signed=False), base, name) if (path := member_path(base)) in known:
                assert path is not None
                assert isinstance(base.type, ir.Header)
                if width <= MAX_BITS and not is_within((*path, name), self.touched):
                    return SlotPlace(known[path] + field_offset(base.type, name), width)
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


MOST_EMPTY = 2
"""Tables that may have to be empty at the same time."""

__all__ = [
    "Argument",
    "Atom",
    "Chosen",
    "Definition",
    "FieldValue",
    "Found",
    "FoundSlots",
    "Hash",
    "Hit",
    "KeyLookup",
    "OneThread",
    "Port",
    "Search",
    "SlotChoice",
    "SlotFlows",
    "SlotPlace",
    "TakenBranch",
    "field_offset",
    "find_slots",
    "header_type",
]


@dataclass(frozen=True, slots=True)
class FoundSlots:
    """A packet's slot: the value of `index`, which stands on `definitions`, those needed first, of `types`.

    `search` finds the headers of the `Field` and `Taken` among them. With `guarded`, a packet without one of
    these headers meets no register, so it has no slot. Holds only while the tables in `empty` are so.
    """

    index: Atom
    definitions: Mapping[str, Definition]
    types: Mapping[str, ir.Scalar]
    search: Search
    guarded: bool
    empty: tuple[str, ...]

    @property
    def fields(self) -> tuple[str, ...]:
        """The header fields that the slot depends on: header and field, with a point between them."""
        found = (each for each in self.definitions.values() if isinstance(each, FieldValue))
        return tuple(sorted(".".join((*each.header[1:], each.name)) for each in found))

    @property
    def tables(self) -> tuple[str, ...]:
        """The tables that it depends on."""
        return tuple(each.table for each in self.definitions.values() if isinstance(each, KeyLookup))


@dataclass(frozen=True, slots=True)
class SlotFlows:
    """The program keeps nothing from packet to packet: any hash will do."""


@dataclass(frozen=True, slots=True)
class OneThread:
    """The program has to run on one thread; `why` goes on from "because"."""

    why: str


def find_slots(program: ir.Program) -> FoundSlots | SlotFlows | OneThread:
    """Return by what the packets of a program can be divided among threads."""
    if (why := _refusal(program)) is not None:
        return OneThread(why)
    if not _keeps(program):
        return SlotFlows()
    found = _derive(program, frozenset())
    if not isinstance(found, OneThread):
        return found
    candidates = [
        name
        for name, table in program.tables.items()
        if table.keys and not table.entries and table.const_default
    ]
    for count in range(1, MOST_EMPTY + 1):
        for empty in combinations(candidates, count):
            other = _derive(program, frozenset(empty))
            if isinstance(other, FoundSlots):
                return other
    return found


def _refusal(program: ir.Program) -> str | None:
    """Return the reason that rules threads out before any path is followed, None if there is none."""
    if program.tofino:
        return "programs for Tofino are not divided"
    if _has_unions(program.hdr):
        return "it has header unions"
    for meter in program.meters.values():
        if meter.table is not None:
            return f"direct meter {meter.name} belongs to all packets of an entry"
    again = ("resubmit_preserving_field_list", "recirculate_preserving_field_list")
    for statement in _statements(program):
        if isinstance(statement, ir.Extern) and statement.function in again:
            how = statement.function.partition("_")[0]
            return f"it has packets pass ingress twice: {how} ({statement.pos})"
    return None


def _has_unions(type_: ir.Type) -> bool:
    match type_:
        case ir.Struct(fields=fields, union=union):
            return union or any(_has_unions(inner) for _, inner in fields)
        case ir.Stack(element=element):
            return _has_unions(element)
        case _:
            return False


def _keeps(program: ir.Program) -> bool:
    return bool(program.registers) or any(meter.table is None for meter in program.meters.values())


def _derive(program: ir.Program, empty: frozenset[str]) -> FoundSlots | OneThread:
    """Derive the slot, given that tables are `empty`; without an access left, that is no answer."""
    try:
        for access in _follow(program, program.egress, empty, Values(), frozenset(), known=False):
            return OneThread(f"{access.what} is used in egress ({access.pos})")
        values = Values()
        touched = frozenset(_touched_by_parser(program))
        accesses = _follow(program, program.ingress, empty, values, touched, known=True)
        return _slots(program, values, accesses, touched, empty)
    except CannotFollow as error:
        return OneThread(str(error))


def _follow(
    program: ir.Program,
    body: Sequence[ir.Stmt],
    empty: frozenset[str],
    values: Values,
    touched: frozenset[Path],
    *,
    known: bool,
) -> list[Access]:
    """Return the accesses to registers in a block; without `known`, nothing is known of the packet."""

    def origin(path: Path, type_: ir.Type) -> Atom:
        name = ".".join(path)
        if not known or not isinstance(type_, ir.Scalar) or is_within(path, touched):
            return values.unknown(name, type_)
        match path:
            case ("hdr", *_):
                return values.define(FieldValue(path[:-1], path[-1]), type_)
            case ("standard_metadata", "ingress_port"):
                return values.define(Port(), type_)
            case ("standard_metadata", "instance_type" | "egress_spec" | "mcast_grp" | "priority"):
                return ir.Const(type_, 0, pos=NOWHERE)
            case ("standard_metadata", *_):
                return values.unknown(name, type_)
            case _:
                return ir.Const(type_, 0, pos=NOWHERE)

    def taken(header: Path) -> Atom:
        if not known or header[0] != "hdr" or is_within(header, touched):
            return values.unknown(".".join(header), ir.Bool())
        return values.define(TakenBranch(header), ir.Bool())

    follower = Follower(program, values, empty)
    follower.block(body, SlotState(values, origin, taken))
    return follower.accesses


def _touched_by_parser(program: ir.Program) -> Iterator[Path]:
    """Yield what parser and checksums assign, beside the headers that are extracted."""
    in_parser = all_statements(s for state in program.states.values() for s in state.body)
    for statement in (*in_parser, *program.verify):
        match statement:
            case ir.Assign(target=target) | ir.Forget(target=target):
                yield from _whole(target)
            case ir.Extern(function="hash" | "random", args=((target,), *_)):
                yield from _whole(target)
            case ir.SetValidity(header=header):
                yield from _whole(header)
            case _:
                pass


def _whole(target: ir.Expr) -> Iterator[Path]:
    while isinstance(target, ir.Slice):
        target = target.base
    if (path := member_path(target)) is not None:
        yield path


def _slots(
    program: ir.Program,
    values: Values,
    accesses: Sequence[Access],
    touched: frozenset[Path],
    empty: frozenset[str],
) -> FoundSlots | OneThread:
    if not accesses:
        return OneThread("no packet meets a register that way")
    # Accesses in a row, such as those of lanes, are alike: each kind is looked at once.
    kinds = {(access.index, access.facts): access for access in accesses}
    known = {kind: values.implied(kind[1]) for kind in kinds}
    indices = {kind: values.under(kind[0], facts) for kind, facts in known.items()}
    for kind, access in kinds.items():
        if (why := _useless(values, indices[kind])) is not None:
            return OneThread(f"the index of {access.what} {why} ({access.pos})")
    general = next((raw for raw, _ in kinds if _fits_all(values, raw, known, indices)), None)
    if general is None:
        first, *_, last = kinds.values()
        return OneThread(f"{first.what} and {last.what} have different indices ({last.pos})")
    always = frozenset.intersection(*(frozenset(facts.items()) for facts in known.values()))
    index = values.under(general, dict(always))
    if (why := _useless(values, index)) is not None:
        return OneThread(f"the slot {why}")
    needed = values.needed(index)
    headers = frozenset(each.header for each in needed.values() if isinstance(each, FieldValue | TakenBranch))
    taken = {values.define(TakenBranch(header), ir.Bool()).name for header in headers}
    guarded = all((name, True) in always for name in taken)
    search = locate(program, headers, touched=touched, strictly=not guarded)
    if not any(len(end.headers) == len(headers) for end in leads_to(search)):
        return OneThread(
            f"its parser never takes {', '.join('.'.join(h[1:]) for h in sorted(headers))} together"
        )
    types = {name: values.type_of(name) for name in needed}
    for name, definition in needed.items():
        if isinstance(definition, FieldValue) and not _readable(program, definition, types[name]):
            return OneThread(
                f"the slot depends on {'.'.join(definition.header[1:])}.{definition.name}, too wide"
            )
    return FoundSlots(index, needed, types, search, guarded, tuple(sorted(empty)))


def _readable(program: ir.Program, field: FieldValue, type_: ir.Scalar) -> bool:
    """Return whether a field and what is beside it in its bytes fit 64 bits."""
    width = type_.width if isinstance(type_, ir.Bits) else 1
    return field_offset(header_type(program, field.header), field.name) % 8 + width <= MAX_WIDTH


_Kind = tuple[Atom, frozenset[Fact]]


def _useless(values: Values, index: Atom) -> str | None:
    """Return why packets cannot be divided by an index."""
    if isinstance(index, ir.Const):
        return "is the same for all packets"
    unknown = (each.why for each in values.needed(index).values() if isinstance(each, UnknownValue))
    return next((f"depends on {why}" for why in unknown), None)


def _fits_all(
    values: Values, general: Atom, known: Mapping[_Kind, Mapping[str, bool]], indices: Mapping[_Kind, Atom]
) -> bool:
    """Return whether `general` is the index of every access, where that happens."""
    return all(values.under(general, known[kind]) == index for kind, index in indices.items())


def _statements(program: ir.Program) -> Iterator[ir.Stmt]:
    for body in (*program.blocks.values(), *(action.body for action in program.actions.values())):
        yield from all_statements(body)
    for action in program.called_actions.values():
        yield from all_statements(action.body)
