"""The typed intermediate representation: what the front end produces and the back ends consume.

By the time a program is IR, everything that P4 does at compile time is done:

* Names are resolved. Control and parser instances are inlined into the six blocks of the
  v1model pipeline; every table, action and extern instance is known by its control-plane name
  (``Ingress.admission.job``), every local variable by a name unique in the program.
* The parameters of the blocks are three storages that live as long as the packet:
  ``hdr``, ``meta`` and ``standard_metadata`` (whatever the source calls them).
* Types are explicit on every expression, constants are folded, ``int`` literals have the width
  of their context, serialisable enums and ``typedef``s are their underlying type.
* Calls have no arguments left to bind: an action's parameters are variables which the caller
  assigns before `Call` (and reads back after, for ``out`` and ``inout``) or which a table entry fills.

Semantics that P4 leaves open are fixed here, so that all back ends agree bit for bit:
variables and fields start at zero; an invalid header keeps its fields' values, and reading or
writing them is harmless; ``x / 0 == 0`` and ``x % 0 == 0``; a shift by at least the width gives 0
(-1 for a negative ``int<W>`` shifted right); a register, stack or counter index out of range
reads zero and writes nothing. ``setValid`` leaves the field values as they are.

* A packet's metadata and headers start at zero when ingress starts; `Program.variables` start at
  zero when ingress starts (parser, verify and ingress share them) and again when egress starts.
* ``push_front`` and ``pop_front`` leave the elements that become free invalid and all zero, and move
  the next index within 0..size. ``lastIndex`` of an empty stack is 2**32 - 1.
* `Extract` with a size: not a multiple of 8 is error ParserInvalidArgument; more than the packet holds,
  PacketTooShort; more than the varbit's width, HeaderTooShort; looked at in this order.
  `Advance` by no multiple of 8 is ParserInvalidArgument. A parser that enters a state for the
  1001st time in one packet stops with ParserTimeout.
* Counters count packets and bytes, whatever their unit; bytes are those of the frame that came in.
* ``random`` draws ``low + next() % (high - low + 1)``, ``low`` if ``high < low``, where ``next`` is
  splitmix64 from the pipeline's seed.
* ``truncate`` cuts the frame that leaves; of several calls the shortest holds.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

# --------------------------------------------------------------------------- positions


@dataclass(frozen=True, slots=True)
class Position:
    """A place in a source file; `line` and `column` count from 1."""

    file: str
    line: int
    column: int

    def __str__(self) -> str:
        return f"{self.file}:{self.line}:{self.column}"


# --------------------------------------------------------------------------- types


@dataclass(frozen=True, slots=True)
class Bits:
    """``bit<width>``, or ``int<width>`` when `signed`."""

    width: int
    signed: bool = False


@dataclass(frozen=True, slots=True)
class Bool:
    """``bool``."""


@dataclass(frozen=True, slots=True)
class VarBits:
    """``varbit<max_width>``: only as a header field."""

    max_width: int


@dataclass(frozen=True, slots=True)
class Enum:
    """An ``enum`` without underlying type, or ``error``; values are indices into `members`."""

    name: str
    members: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Header:
    """A header type: its fields in wire order, plus a validity bit."""

    name: str
    fields: tuple[tuple[str, Bits | Bool | VarBits], ...]


@dataclass(frozen=True, slots=True)
class Stack:
    """A header stack: `size` headers and the index of the next one to extract."""

    element: Header
    size: int


@dataclass(frozen=True, slots=True)
class Struct:
    """A struct type."""

    name: str
    fields: tuple[tuple[str, Type], ...]


Scalar = Bits | Bool | Enum
Type = Bits | Bool | VarBits | Enum | Header | Stack | Struct

# --------------------------------------------------------------------------- expressions


@dataclass(frozen=True, slots=True)
class Const:
    """A literal.

    `value` is canonical: 0 <= value < 2**width (two's complement range if signed), 0/1 for Bool,
    the member's index for Enum.
    """

    type: Scalar
    value: int
    pos: Position


@dataclass(frozen=True, slots=True)
class Var:
    """A variable or one of the storages ``hdr``, ``meta``, ``standard_metadata``."""

    type: Type
    name: str
    pos: Position


@dataclass(frozen=True, slots=True)
class Member:
    """A field of a struct or header."""

    type: Type
    base: Expr
    field: str
    pos: Position


@dataclass(frozen=True, slots=True)
class Index:
    """A header of a stack, by an expression of any Bits type."""

    type: Header
    base: Expr
    index: Expr
    pos: Position


@dataclass(frozen=True, slots=True)
class Next:
    """``stack.next`` (in parsers; past the end it is error StackOutOfBounds)."""

    type: Header
    base: Expr
    pos: Position


@dataclass(frozen=True, slots=True)
class Last:
    """``stack.last`` (in parsers; of an empty stack it is error StackOutOfBounds)."""

    type: Header
    base: Expr
    pos: Position


@dataclass(frozen=True, slots=True)
class LastIndex:
    """``stack.lastIndex``, bit<32>."""

    type: Bits
    base: Expr
    pos: Position


@dataclass(frozen=True, slots=True)
class Slice:
    """``base[high:low]``, also assignable."""

    type: Bits
    base: Expr
    high: int
    low: int
    pos: Position


@dataclass(frozen=True, slots=True)
class Unary:
    """``-``, ``~`` on Bits; ``!`` on Bool."""

    type: Scalar
    op: str
    operand: Expr
    pos: Position


@dataclass(frozen=True, slots=True)
class Binary:
    """``+ - * / % & | ^ |+| |-| ++ << >>`` on Bits, ``== != < <= > >=``, ``&& ||`` (short-circuit).

    Both operands of all but shifts and ``++`` have the same type. ``==``/``!=`` also compare
    Bool, Enum, Header (validity, then fields) and Struct values.
    """

    type: Scalar
    op: str
    left: Expr
    right: Expr
    pos: Position


@dataclass(frozen=True, slots=True)
class Cast:
    """Between Bits types (truncate, zero- or sign-extend by the operand's signedness), bit<1> and Bool."""

    type: Bits | Bool
    operand: Expr
    pos: Position


@dataclass(frozen=True, slots=True)
class Mux:
    """``condition ? then : otherwise``."""

    type: Scalar
    condition: Expr
    then: Expr
    otherwise: Expr
    pos: Position


@dataclass(frozen=True, slots=True)
class IsValid:
    """``header.isValid()``."""

    type: Bool
    header: Expr
    pos: Position


@dataclass(frozen=True, slots=True)
class Lookahead:
    """``packet.lookahead<bit<W>>()``: Bits only (headers are lowered field by field)."""

    type: Bits
    pos: Position


@dataclass(frozen=True, slots=True)
class PacketLength:
    """``packet.length()`` in bytes, bit<32>."""

    type: Bits
    pos: Position


Expr = (
    Const
    | Var
    | Member
    | Index
    | Next
    | Last
    | LastIndex
    | Slice
    | Unary
    | Binary
    | Cast
    | Mux
    | IsValid
    | Lookahead
    | PacketLength
)

# --------------------------------------------------------------------------- statements


@dataclass(frozen=True, slots=True)
class Assign:
    """``target = value``: scalars, whole headers, stacks or structs (copies values and validity)."""

    target: Expr
    value: Expr
    pos: Position


@dataclass(frozen=True, slots=True)
class If:
    """``if (condition) then else otherwise``."""

    condition: Expr
    then: tuple[Stmt, ...]
    otherwise: tuple[Stmt, ...]
    pos: Position


@dataclass(frozen=True, slots=True)
class Switch:
    """The first case one of whose constants equals `subject`; a case of no constants is the default."""

    subject: Expr
    cases: tuple[tuple[tuple[Const, ...], tuple[Stmt, ...]], ...]
    pos: Position


@dataclass(frozen=True, slots=True)
class Apply:
    """Apply a table.

    `hit` (Bool) and `action` (bit<32>: position in the table's `actions`), if asked for, are
    variables that receive the outcome.
    """

    table: str
    hit: Var | None
    action: Var | None
    pos: Position


@dataclass(frozen=True, slots=True)
class Call:
    """Run the body of an action; its parameter variables have been assigned."""

    action: str
    pos: Position


@dataclass(frozen=True, slots=True)
class Scope:
    """An inlined control body: `Return` inside leaves it."""

    body: tuple[Stmt, ...]
    pos: Position


@dataclass(frozen=True, slots=True)
class Return:
    """Leave the innermost `Scope` or action body, or the block."""

    pos: Position


@dataclass(frozen=True, slots=True)
class Exit:
    """Leave the whole block (ingress or egress)."""

    pos: Position


@dataclass(frozen=True, slots=True)
class SetValidity:
    """``header.setValid()`` or ``header.setInvalid()``."""

    header: Expr
    valid: bool
    pos: Position


@dataclass(frozen=True, slots=True)
class Shift:
    """``stack.push_front(count)`` if positive, ``stack.pop_front(-count)`` if negative."""

    stack: Expr
    count: int
    pos: Position


@dataclass(frozen=True, slots=True)
class Extract:
    """``packet.extract(header)``; with `size`, the width in bits of its one varbit field.

    Makes the header valid (also when its target is `Next`, which it then advances).
    Too short a packet is error PacketTooShort and leaves the header unchanged.
    """

    header: Expr
    size: Expr | None
    pos: Position


@dataclass(frozen=True, slots=True)
class Advance:
    """``packet.advance(bits)``."""

    bits: Expr
    pos: Position


@dataclass(frozen=True, slots=True)
class Verify:
    """``verify(condition, error)`` in a parser."""

    condition: Expr
    error: Const
    pos: Position


@dataclass(frozen=True, slots=True)
class Emit:
    """``packet.emit(header)`` of one header or stack; an invalid header emits nothing.

    Structs are lowered to one Emit per header.
    """

    header: Expr
    pos: Position


@dataclass(frozen=True, slots=True)
class Extern:
    """A call of a v1model extern; `instance` is the control-plane name, or "" for functions.

    =========================  ==========================================================
    function                   arguments
    =========================  ==========================================================
    ``register.read``          (target), (index)
    ``register.write``         (index), (value)
    ``counter.count``          (index)
    ``direct_counter.count``   none: the table's `Apply` counts, this call does nothing
    ``hash``                   (target), (algorithm), (base), data…, (max): ``base + H(data) % max`` in
                               64 bits, then cut to the target's width; max 0 counts as 1 (as BMv2)
    ``random``                 (target), (low), (high): both included
    ``verify_checksum``        (condition), data…, (checksum), (algorithm)
    ``update_checksum``        (condition), data…, (checksum), (algorithm)
    ``verify_checksum_with_payload``, ``update_checksum_with_payload``   as above
    ``mark_to_drop``           none
    ``clone``                  (type), (session)
    ``clone_preserving_field_list``      (type), (session), (index)
    ``resubmit_preserving_field_list``   (index)
    ``recirculate_preserving_field_list``  (index)
    ``truncate``               (length in bytes)
    ``log_msg``, ``assert``, ``assume``  (condition) or nothing
    =========================  ==========================================================

    Each argument is a tuple of expressions: one for a scalar, any number for ``data``.
    Algorithms and clone types are Enum constants. Data is concatenated in order, most significant
    bit first, and padded with zero bits at the end to whole bytes.
    """

    function: str
    instance: str
    args: tuple[tuple[Expr, ...], ...]
    pos: Position


Stmt = (
    Assign
    | If
    | Switch
    | Apply
    | Call
    | Scope
    | Return
    | Exit
    | SetValidity
    | Shift
    | Extract
    | Advance
    | Verify
    | Emit
    | Extern
)

# --------------------------------------------------------------------------- parser


@dataclass(frozen=True, slots=True)
class Pattern:
    """One component of a keyset.

    ``exact``: value; ``mask``: value under mask; ``range``: low..high in (value, mask); ``any``.
    """

    kind: str
    value: int = 0
    mask: int = 0


@dataclass(frozen=True, slots=True)
class Transition:
    """Where a parser state goes: the target of the first case all of whose patterns match `subjects`.

    No case is error NoMatch. Unconditional: no subjects and one case of no patterns.
    """

    subjects: tuple[Expr, ...]
    cases: tuple[tuple[tuple[Pattern, ...], str], ...]
    pos: Position


@dataclass(frozen=True, slots=True)
class State:
    """A parser state; ``accept`` and ``reject`` are targets but have no State."""

    name: str
    body: tuple[Stmt, ...]
    transition: Transition
    pos: Position


# --------------------------------------------------------------------------- objects of the control plane


@dataclass(frozen=True, slots=True)
class Annotation:
    """``@name(body)``; `body` is the text between the parentheses, "" without any."""

    name: str
    body: str


@dataclass(frozen=True, slots=True)
class Param:
    """An action parameter that a table entry fills: `name` in P4Info, `variable` in the body."""

    name: str
    variable: str
    type: Bits | Bool
    annotations: tuple[Annotation, ...] = ()


@dataclass(frozen=True, slots=True)
class Action:
    """An action; all its directional parameters are ordinary variables by now."""

    name: str
    params: tuple[Param, ...]
    body: tuple[Stmt, ...]
    pos: Position
    annotations: tuple[Annotation, ...] = ()


@dataclass(frozen=True, slots=True)
class Key:
    """One component of a table's key; `match` is exact, lpm, ternary, range or optional."""

    name: str
    expr: Expr
    match: str
    annotations: tuple[Annotation, ...] = ()


@dataclass(frozen=True, slots=True)
class ActionRef:
    """An action that a table may run. `scope` is "" or "default_only" or "table_only"."""

    action: str
    scope: str = ""
    annotations: tuple[Annotation, ...] = ()


@dataclass(frozen=True, slots=True)
class Invocation:
    """An action with the values of its parameters."""

    action: str
    args: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class ConstEntry:
    """A table entry: of several that match, the one with the highest `priority` wins.

    The front end numbers ``const entries`` downwards in source order.
    """

    patterns: tuple[Pattern, ...]
    invocation: Invocation
    priority: int


@dataclass(frozen=True, slots=True)
class Table:
    """A match-action table. With no keys only the default action ever runs (a miss)."""

    name: str
    keys: tuple[Key, ...]
    actions: tuple[ActionRef, ...]
    default: Invocation
    const_default: bool
    entries: tuple[ConstEntry, ...]
    const_entries: bool
    size: int
    direct_counter: str | None
    pos: Position
    annotations: tuple[Annotation, ...] = ()


@dataclass(frozen=True, slots=True)
class Register:
    """``register<type>(size)``."""

    name: str
    type: Bits | Bool
    size: int
    pos: Position
    annotations: tuple[Annotation, ...] = ()


@dataclass(frozen=True, slots=True)
class Counter:
    """An indirect counter array, or the direct counter of `table`.

    `unit` is packets, bytes or packets_and_bytes.
    """

    name: str
    unit: str
    size: int
    table: str | None
    pos: Position
    annotations: tuple[Annotation, ...] = ()


# --------------------------------------------------------------------------- the program


@dataclass(frozen=True, slots=True)
class Program:
    """A whole v1model pipeline. Dictionaries keep source order and are keyed by name."""

    name: str
    hdr: Struct
    meta: Type
    standard_metadata: Struct
    errors: Enum
    variables: Mapping[str, Type]
    states: Mapping[str, State]  # the parser; it starts in "start"
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
