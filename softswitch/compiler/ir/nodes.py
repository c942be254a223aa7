"""The nodes of the IR: types, expressions, statements."""

from __future__ import annotations

from dataclasses import dataclass

from softswitch.compiler.errors import Position


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
    """``varbit<max_width>``."""

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
    """A struct type or, if `union` is True, a header union, of which at most one header is valid.

    A stack of unions is stored as a struct of stacks, one for each member; its `union` is True, too.
    """

    name: str
    fields: tuple[tuple[str, Type], ...]
    union: bool = False


Scalar = Bits | Bool | Enum
Type = Bits | Bool | VarBits | Enum | Header | Stack | Struct


def width_of(type_: Type) -> int:
    """Return the width in bits of a scalar type: the maximum for a varbit, 32 for an enum."""
    match type_:
        case Bits():
            return type_.width
        case Bool():
            return 1
        case VarBits():
            return type_.max_width
        case Enum():
            return 32
        case _:
            raise TypeError(f"no scalar: {type_}")


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceNode:
    """The base of nodes with a source position, in the IR and in syntax trees."""

    pos: Position


@dataclass(frozen=True, slots=True)
class Const(SourceNode):
    """A literal.

    `value` is canonical: 0 <= value < 2**width (two's complement range if signed), 0/1 for Bool,
    the member's index for Enum.
    """

    type: Scalar
    value: int


@dataclass(frozen=True, slots=True)
class Var(SourceNode):
    """A variable or one of the storages ``hdr``, ``meta``, ``standard_metadata``."""

    type: Type
    name: str


@dataclass(frozen=True, slots=True)
class Member(SourceNode):
    """A field of a struct or header."""

    type: Type
    base: Expr
    field: str


@dataclass(frozen=True, slots=True)
class StackElement(SourceNode):
    """A header of a stack. Before `flatten`, it may also be a union in a stack; its type is then a Struct."""

    type: Header | Struct
    base: Expr


@dataclass(frozen=True, slots=True)
class Index(StackElement):
    """A header of a stack, selected by an index: an expression of any Bits type."""

    index: Expr


@dataclass(frozen=True, slots=True)
class Next(StackElement):
    """``stack.next``, in parsers; past the end of the stack, error StackOutOfBounds."""


@dataclass(frozen=True, slots=True)
class Last(StackElement):
    """``stack.last``, in parsers; for an empty stack, error StackOutOfBounds."""


@dataclass(frozen=True, slots=True)
class LastIndex(SourceNode):
    """``stack.lastIndex``, bit<32>."""

    type: Bits
    base: Expr


@dataclass(frozen=True, slots=True)
class Slice(SourceNode):
    """``base[high:low]``, also assignable."""

    type: Bits
    base: Expr
    high: int
    low: int


@dataclass(frozen=True, slots=True)
class Unary(SourceNode):
    """``-``, ``~`` on Bits; ``!`` on Bool."""

    type: Scalar
    op: str
    operand: Expr


@dataclass(frozen=True, slots=True)
class Binary(SourceNode):
    """``+ - * / % & | ^ |+| |-| ++ << >>`` on Bits, ``== != < <= > >=``, ``&& ||`` (short-circuit).

    Both operands have the same type, except for shifts and ``++``. ``==``/``!=`` also compare
    Bool, Enum, Header (validity, then fields) and Struct values.
    """

    type: Scalar
    op: str
    left: Expr
    right: Expr


@dataclass(frozen=True, slots=True)
class Cast(SourceNode):
    """A cast between Bits types (truncates, or extends by the operand's sign), or between bit<1> and Bool."""

    type: Bits | Bool
    operand: Expr


@dataclass(frozen=True, slots=True)
class Mux(SourceNode):
    """``condition ? then : otherwise``."""

    type: Scalar
    condition: Expr
    then: Expr
    otherwise: Expr


@dataclass(frozen=True, slots=True)
class IsValid(SourceNode):
    """``header.isValid()``."""

    type: Bool
    header: Expr


@dataclass(frozen=True, slots=True)
class Lookahead(SourceNode):
    """``packet.lookahead<bit<W>>()``, `skip` bytes ahead: Bits only (headers are lowered field by field)."""

    type: Bits
    skip: int = 0


@dataclass(frozen=True, slots=True)
class PacketLength(SourceNode):
    """``packet.length()`` in bytes, bit<32>."""

    type: Bits


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


@dataclass(frozen=True, slots=True)
class Assign(SourceNode):
    """``target = value``: scalars, whole headers, stacks or structs (copies values and validity)."""

    target: Expr
    value: Expr


@dataclass(frozen=True, slots=True)
class Forget(SourceNode):
    """Make a scalar's value undefined from here on: at its declaration, or when it is passed as ``out``.

    `undefined.settled` replaces this node by the chosen behaviour; back ends ignore it.
    """

    target: Expr


@dataclass(frozen=True, slots=True)
class If(SourceNode):
    """``if (condition) then else otherwise``."""

    condition: Expr
    then: tuple[Stmt, ...]
    otherwise: tuple[Stmt, ...]


@dataclass(frozen=True, slots=True)
class Switch(SourceNode):
    """Run the first case that has a constant equal to `subject`; a case without constants is the default."""

    subject: Expr
    cases: tuple[tuple[tuple[Const, ...], tuple[Stmt, ...]], ...]


@dataclass(frozen=True, slots=True)
class Apply(SourceNode):
    """Apply a table.

    `hit` (Bool) and `action` (bit<32>: position in the table's `actions`), if requested, are
    variables that receive the outcome.
    """

    table: str
    hit: Var | None
    action: Var | None


@dataclass(frozen=True, slots=True)
class Call(SourceNode):
    """Run the body of an action, whose parameter variables must have been assigned before."""

    action: str


@dataclass(frozen=True, slots=True)
class Inlined(SourceNode):
    """An inlined control body; a `Return` inside ends the body."""

    body: tuple[Stmt, ...]


@dataclass(frozen=True, slots=True)
class Return(SourceNode):
    """Leave the innermost `Inlined` or action body, or the block."""


@dataclass(frozen=True, slots=True)
class Exit(SourceNode):
    """Leave the whole block (ingress or egress)."""


@dataclass(frozen=True, slots=True)
class SetValidity(SourceNode):
    """``header.setValid()`` or ``header.setInvalid()``."""

    header: Expr
    valid: bool


@dataclass(frozen=True, slots=True)
class Shift(SourceNode):
    """``stack.push_front(count)`` if `count` is positive, ``stack.pop_front(-count)`` if it is negative."""

    stack: Expr
    count: int


@dataclass(frozen=True, slots=True)
class Skip(SourceNode):
    """Increment a stack's next index, unless it is at the end of the stack."""

    stack: Expr


@dataclass(frozen=True, slots=True)
class Loop(SourceNode):
    """Repeat `body`, then `update`, until a `Break`; end after 2**20 rounds at the latest."""

    body: tuple[Stmt, ...]
    update: tuple[Stmt, ...]


@dataclass(frozen=True, slots=True)
class Break(SourceNode):
    """Leave the innermost `Loop`."""


@dataclass(frozen=True, slots=True)
class Continue(SourceNode):
    """Continue with the `update` of the innermost `Loop`."""


@dataclass(frozen=True, slots=True)
class Extract(SourceNode):
    """``packet.extract(header)``; `size` is the width in bits of the header's varbit field, if it has one.

    Makes the header valid; if the target is `Next`, also increments the stack's next index.
    If the packet is too short, the error is PacketTooShort and the header stays unchanged.
    """

    header: Expr
    size: Expr | None


@dataclass(frozen=True, slots=True)
class Advance(SourceNode):
    """``packet.advance(bits)``."""

    bits: Expr


@dataclass(frozen=True, slots=True)
class Verify(SourceNode):
    """``verify(condition, error)`` in a parser."""

    condition: Expr
    error: Expr


@dataclass(frozen=True, slots=True)
class Emit(SourceNode):
    """``packet.emit(header)`` of one header or stack; an invalid header emits nothing.

    Structs are lowered to one Emit per header.
    """

    header: Expr


@dataclass(frozen=True, slots=True)
class Extern(SourceNode):
    """A call of an extern; `instance` is the control-plane name, or "" for functions.

    For hashes and checksums, `instance` is the algorithm: one of v1model's ``HashAlgorithm`` or, for
    CRCs that v1model lacks, of `softswitch.compiler.ir.crc`.

    =========================  ==========================================================
    function                   arguments
    =========================  ==========================================================
    ``register.read``          (target), (index)
    ``register.write``         (index), (value)
    ``counter.count``          (index)
    ``direct_counter.count``   none: the table's `Apply` counts; this call does nothing
    ``meter.execute_meter``    (target), (index): the colour, 0 green, 1 yellow, 2 red
    ``digest``                 data…: sent to the control plane as a digest named `instance`
    ``hash``                   (target), (base), data…, (max): ``base + H(data) % max`` in 64 bits,
                               then cut to the target's width; max 0 counts as 1 (as BMv2)
    ``random``                 (target), (low), (high): bounds, both included
    ``verify_checksum``        (condition), data…, (checksum)
    ``update_checksum``        (condition), data…, (checksum)
    ``verify_checksum_with_payload``, ``update_checksum_with_payload``   as without ``_with_payload``
    ``mark_to_drop``           none
    ``clone``                  (session)
    ``clone_preserving_field_list``      (session), (index)
    ``resubmit_preserving_field_list``   (index)
    ``recirculate_preserving_field_list``  (index)
    ``truncate``               (length in bytes)
    ``mirror``                 (session), data… put in front of the copy (Tofino)
    ``resubmit``               data… that replaces the port's metadata (Tofino)
    ``log_msg``, ``assert``, ``assume``  (condition) or nothing
    =========================  ==========================================================

    Each argument is a tuple of expressions: one for a scalar, any number for ``data``.
    Data is concatenated in order, most significant bit first, and padded with
    zero bits at the end to whole bytes.
    """

    function: str
    instance: str
    args: tuple[tuple[Expr, ...], ...]


Stmt = (
    Assign
    | Forget
    | If
    | Switch
    | Apply
    | Call
    | Inlined
    | Return
    | Exit
    | SetValidity
    | Shift
    | Skip
    | Loop
    | Break
    | Continue
    | Extract
    | Advance
    | Verify
    | Emit
    | Extern
)
