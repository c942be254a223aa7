"""Parser states, the objects with control-plane names, and the program as a whole."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from softswitch.compiler.ir.nodes import Bits, Bool, Enum, Expr, SourceNode, Stmt, Struct, Type

V1MODEL = "v1model"
BLOCKS = ("verify", "ingress", "ingress_deparser", "egress", "compute", "deparser")


class Pattern(NamedTuple):
    """One component of a keyset.

    `kind` is ``exact`` (equal to `value`), ``mask`` (equal to `value` in the bits of `mask`), ``range``
    (from `value` to `mask`, both included) or ``any``. Pattern, `Invocation` and `ConstEntry` are tuples
    because tables create, compare and hash millions of them.
    """

    kind: str
    value: int = 0
    mask: int = 0


@dataclass(frozen=True, slots=True)
class Transition(SourceNode):
    """The transition of a parser state: to the target of the first case whose patterns all match `subjects`.

    If no case matches, the error is NoMatch. An unconditional transition has no subjects, and one case
    without patterns.
    """

    subjects: tuple[Expr, ...]
    cases: tuple[tuple[tuple[Pattern, ...], str], ...]


@dataclass(frozen=True, slots=True)
class ParserState(SourceNode):
    """A parser state; ``accept`` and ``reject`` are targets without a ParserState."""

    name: str
    body: tuple[Stmt, ...]
    transition: Transition


@dataclass(frozen=True, slots=True)
class Annotation:
    """``@name(body)`` or ``@name[elements]``; `body` is the text in the parentheses or brackets, "" without.

    `elements` has the keys, "" without, and the values of a structured annotation, and is None for others.
    """

    name: str
    body: str
    elements: tuple[tuple[str, int | str | bool], ...] | None = None


@dataclass(frozen=True, slots=True)
class ControlObject(SourceNode):
    """The base of objects that the control plane addresses by name."""

    name: str
    annotations: tuple[Annotation, ...] = field(default=(), kw_only=True)


@dataclass(frozen=True, slots=True)
class Param:
    """An action parameter that a table entry sets: `name` in P4Info, `variable` in the action's body.

    `named` is the type with its name, if declared by ``type`` or as an enum with values: P4Info has these.
    """

    name: str
    variable: str
    type: Bits | Bool
    annotations: tuple[Annotation, ...] = ()
    named: DataType | None = None


@dataclass(frozen=True, slots=True)
class Action(ControlObject):
    """An action; its directional parameters have become variables.

    If tables use an action with different arguments for these parameters, each combination of arguments is an
    action of its own, ``name#2`` and so on. The control plane sees them as one action (`plain_name`).
    """

    params: tuple[Param, ...]
    body: tuple[Stmt, ...]


def group_action(table: str) -> str:
    """Return the name of the action that entries use to refer to a group, in a table with a selector."""
    return f"{table}#group"


def members_table(table: str) -> str:
    """Return the name of the auxiliary table that holds the members of a table's groups."""
    return f"{table}#members"


def plain_name(action: str) -> str:
    """Return the control-plane name of an action."""
    return action.partition("#")[0]


@dataclass(frozen=True, slots=True)
class Key:
    """One component of a table's key; `match` is exact, lpm, ternary, range or optional."""

    name: str
    expr: Expr
    match: str
    annotations: tuple[Annotation, ...] = ()
    named: DataType | None = None  # as for `Param`


@dataclass(frozen=True, slots=True)
class ActionRef:
    """An action that a table may run. `scope` is "" or "default_only" or "table_only"."""

    action: str
    scope: str = ""
    annotations: tuple[Annotation, ...] = ()


class Invocation(NamedTuple):
    """An action with the values of its parameters."""

    action: str
    args: tuple[int, ...]


class ConstEntry(NamedTuple):
    """A table entry; if several match, the one with the highest `priority` wins.

    ``const entries`` get descending priorities in source order.
    """

    patterns: tuple[Pattern, ...]
    invocation: Invocation
    priority: int


@dataclass(frozen=True, slots=True)
class DirectCell:
    """A scalar stored with each entry of a table. `place` holds the scalar while the entry's action runs.

    A default action reads the value `initial`, and the action's changes to the scalar are lost.
    """

    place: Expr
    initial: int = 0


@dataclass(frozen=True, slots=True)
class Table(ControlObject):
    """A match-action table. With no keys only the default action ever runs (a miss).

    A `value_set` of a parser is a table, too: its entries are the set's members. If `implementation` names an
    `ActionProfile`, entries refer to members of the profile. If the profile is a selector, an entry may also
    refer to a group: the entry's action is then `group_action`, and its arguments are the number of the group
    and the number of the group's members. The table `members_table` holds an entry for each member of a
    group; a hash chooses one of these entries.
    """

    keys: tuple[Key, ...]
    actions: tuple[ActionRef, ...]
    default: Invocation
    const_default: bool
    entries: tuple[ConstEntry, ...]
    const_entries: bool
    size: int
    direct_counter: str | None
    value_set: bool = False
    implementation: str = ""
    direct_meter: str | None = None
    idle_timeout: bool = False
    cells: tuple[DirectCell, ...] = ()


@dataclass(frozen=True, slots=True)
class Register(ControlObject):
    """``register<type>(size)`` of a scalar type; `RegisterArray` says how registers of structs are split."""

    type: Bits | Bool
    size: int
    initial: int = 0


@dataclass(frozen=True, slots=True)
class Counter(ControlObject):
    """An indirect counter array, or the direct counter of `table`.

    `unit` is packets, bytes or packets_and_bytes.
    """

    unit: str
    size: int
    table: str | None


@dataclass(frozen=True, slots=True)
class Meter(ControlObject):
    """An array of meters, or the direct meter of `table`; `unit` is packets or bytes.

    A direct meter writes each packet's colour to the variable `colour` when the meter's table is applied.
    """

    unit: str
    size: int
    table: str | None
    colour: str = ""


@dataclass(frozen=True, slots=True)
class DataType:
    """The type of a register's cells or a digest's data, with names that P4Info needs and IR types lack.

    `kind` is bits, bool, enum, error, serializable_enum, new_type, header, struct or tuple. `scalar` is set
    for scalars, `members` for structs, headers and tuples, and `values` (name, value) for enums.
    """

    kind: str
    name: str = ""
    scalar: Bits | Bool | Enum | None = None
    members: tuple[tuple[str, DataType], ...] = ()
    values: tuple[tuple[str, int], ...] = ()

    def leaves(self, path: str = "") -> Iterator[tuple[str, Bits | Bool | Enum]]:
        """Yield path and type of each scalar; the path of a nested struct's member has dots."""
        if self.scalar is not None:
            yield path, self.scalar
        for name, member in self.members:
            yield from member.leaves(f"{path}.{name}" if path else name)


@dataclass(frozen=True, slots=True)
class RegisterArray(ControlObject):
    """A register as the control plane sees it.

    `parts` names the `Register` of each scalar of `data`: ``name#path``, or ``name`` if `data` is a scalar.
    """

    data: DataType
    size: int
    parts: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Digest(ControlObject):
    """A kind of message that calls of ``digest`` send to the control plane.

    `data` is the type of the data. `name` is the name of that type (v1model) or of the instance (Tofino).
    """

    data: DataType


@dataclass(frozen=True, slots=True)
class NewType:
    """A ``type`` declaration; `uri` and `width` come from ``@p4runtime_translation``, else "" and 0."""

    name: str
    type: Bits | Bool
    uri: str = ""
    width: int = 0
    annotations: tuple[Annotation, ...] = ()


@dataclass(frozen=True, slots=True)
class ActionProfile(ControlObject):
    """An action profile with up to `size` members. If `selector` is True, it also has groups of members."""

    size: int
    selector: bool


@dataclass(frozen=True, slots=True)
class ControllerHeader(ControlObject):
    """A header annotated with ``@controller_header``: `name` is "packet_in" or "packet_out".

    `type_name` is the name of the header's type; the header's P4Info id is derived from it, as in p4c.
    """

    type_name: str
    fields: tuple[Param, ...]


@dataclass(frozen=True, slots=True)
class Remark(SourceNode):
    """A warning: a legal construct that may be a mistake."""

    message: str

    def __str__(self) -> str:
        return f"{self.pos}: warning: {self.message}"


@dataclass(frozen=True, slots=True)
class Program:
    """A program in IR: a whole pipeline. Dictionaries are keyed by name, in source order.

    Programs of v1model have one parser and one deparser. Programs of Tofino have two of each: the ingress
    deparser emits the bytes that the egress parser gets, and `verify` and `compute` are empty.
    """

    name: str
    hdr: Struct
    meta: Type
    standard_metadata: Struct
    errors: Enum
    variables: Mapping[str, Type]
    states: Mapping[str, ParserState]  # the parser; it starts in "start"
    verify: tuple[Stmt, ...]
    ingress: tuple[Stmt, ...]
    egress: tuple[Stmt, ...]
    compute: tuple[Stmt, ...]
    deparser: tuple[Stmt, ...]
    actions: Mapping[str, Action]
    tables: Mapping[str, Table]
    registers: Mapping[str, Register]
    counters: Mapping[str, Counter]
    # @field_list(n) metadata fields: n to paths such as ("meta", "i2e", "x")
    field_lists: Mapping[int, tuple[tuple[str, ...], ...]] = field(default_factory=dict)
    annotations: tuple[Annotation, ...] = ()
    remarks: tuple[Remark, ...] = ()
    new_types: Mapping[str, NewType] = field(default_factory=dict)
    controller_headers: Mapping[str, ControllerHeader] = field(default_factory=dict)
    action_profiles: Mapping[str, ActionProfile] = field(default_factory=dict)
    meters: Mapping[str, Meter] = field(default_factory=dict)
    digests: Mapping[str, Digest] = field(default_factory=dict)
    register_arrays: Mapping[str, RegisterArray] = field(default_factory=dict)
    architecture: str = V1MODEL
    egress_states: Mapping[str, ParserState] = field(default_factory=dict)  # these also start in "start"
    ingress_deparser: tuple[Stmt, ...] = ()
    ingress_parser: str = ""  # its name, by which control planes of Tofino address port metadata
    # Actions that controls call directly, without their parameters and bodies
    called_actions: Mapping[str, Action] = field(default_factory=dict)
    # Digest of the source text and the compiler if the IR is cached: derived results may be cached, too
    origin: str | None = field(default=None, compare=False)

    @property
    def tofino(self) -> bool:
        """True for programs for Tofino: see `softswitch.compiler.lowering.architectures.tna`."""
        return self.architecture != V1MODEL

    @property
    def blocks(self) -> Mapping[str, tuple[Stmt, ...]]:
        """The statements of each block that is not a parser, by the block's name."""
        return {name: getattr(self, name) for name in BLOCKS}

    @property
    def parsers(self) -> Mapping[str, Mapping[str, ParserState]]:
        """The states of each parser, by the parser's name: "parser" and, for Tofino, "egress_parser"."""
        return {"parser": self.states} | ({"egress_parser": self.egress_states} if self.egress_states else {})
