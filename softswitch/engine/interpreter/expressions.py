"""Values and per-packet storage of the interpreter, and expressions of the IR as functions of a packet.

Scalars are Python integers in canonical form (`ir.Const`): unsigned, two's complement range for
``int<W>``, 0/1 for Bool, the member's index for Enum. Headers, stacks and structs are mutable
objects; evaluating an expression of such a type gives the live object, never a copy.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from copy import copy
from dataclasses import dataclass, field
from typing import Any, NamedTuple, assert_never

from softswitch.compiler import ir
from softswitch.compiler.ir import fold
from softswitch.engine.entries import TableEntries
from softswitch.engine.pipeline import MAX_FRAME, TokenMeter


class VarBitsValue(NamedTuple):
    """The value of a ``varbit`` field, and its present number of bits."""

    width: int
    value: int


class HeaderValue:
    """A header: validity and fields by name, in wire order."""

    __slots__ = ("fields", "valid")

    def __init__(self, valid: bool, fields: dict[str, Any]) -> None:
        self.valid = valid
        self.fields = fields

    def copy(self) -> HeaderValue:
        """Return an independent copy."""
        return HeaderValue(self.valid, self.fields.copy())


class StackValue:
    """A header stack: its elements and the index of the next one to extract."""

    __slots__ = ("elements", "next")

    def __init__(self, elements: list[HeaderValue], next_index: int) -> None:
        self.elements = elements
        self.next = next_index

    def copy(self) -> StackValue:
        """Return an independent copy."""
        return StackValue([element.copy() for element in self.elements], self.next)


class StructValue:
    """A struct: fields by name."""

    __slots__ = ("fields",)

    def __init__(self, fields: dict[str, Any]) -> None:
        self.fields = fields

    def copy(self) -> StructValue:
        """Return an independent copy."""
        return StructValue({name: copy_value(value) for name, value in self.fields.items()})


Aggregate = HeaderValue | StackValue | StructValue


def blank(type_: ir.Type) -> Any:
    """Return the initial value of a type: zero, invalid, empty."""
    match type_:
        case ir.Bits() | ir.Bool() | ir.Enum():
            return 0
        case ir.VarBits():
            return VarBitsValue(0, 0)
        case ir.Header():
            return HeaderValue(False, {name: blank(field) for name, field in type_.fields})
        case ir.Stack():
            return StackValue([blank(type_.element) for _ in range(type_.size)], 0)
        case ir.Struct():
            return StructValue({name: blank(field) for name, field in type_.fields})
        case _:
            assert_never(type_)


def copy_value(value: Any) -> Any:
    """Return an independent copy of any value."""
    return value.copy() if isinstance(value, HeaderValue | StackValue | StructValue) else value


def overwrite(target: Aggregate, source: Aggregate) -> None:
    """Make `target` equal to `source`, validity included, without sharing any object."""
    match target, source:
        case HeaderValue(), HeaderValue():
            target.valid = source.valid
            target.fields = source.fields.copy()
        case StackValue(), StackValue():
            target.next = source.next
            target.elements = [element.copy() for element in source.elements]
        case StructValue(), StructValue():
            target.fields = source.copy().fields
        case _:
            raise TypeError(f"cannot assign {type(source).__name__} to {type(target).__name__}")


def equal(left: Any, right: Any) -> bool:
    """Return the result of P4's ``==``: two invalid headers are equal, whatever values their fields have."""
    match left, right:
        case HeaderValue(), HeaderValue():
            if not left.valid or not right.valid:
                return left.valid == right.valid
            return left.fields == right.fields
        case StackValue(), StackValue():
            return all(equal(a, b) for a, b in zip(left.elements, right.elements, strict=True))
        case StructValue(), StructValue():
            return all(equal(left.fields[name], right.fields[name]) for name in left.fields)
        case _:
            return bool(left == right)


# --------------------------------------------------------------------------- scalars


def wrapper(type_: ir.Type) -> Callable[[int], int]:
    """Return the function that reduces any integer to the canonical range of `type_`."""
    mask = (1 << ir.width_of(type_)) - 1
    if isinstance(type_, ir.Bits) and type_.signed:
        half = 1 << (type_.width - 1)
        return lambda value: ((value + half) & mask) - half
    return lambda value: value & mask


# --------------------------------------------------------------------------- a packet


class ParserError(Exception):
    """Raised where parsing stops; `error` is the name of a member of ``error``."""

    def __init__(self, error: str) -> None:
        super().__init__(error)
        self.error = error


class PacketState:
    """One packet between parser and deparser, with all data that lives as long as the packet."""

    __slots__ = (
        "bypass",
        "checksum_error",
        "clone_fields",
        "clone_session",
        "cos",
        "counted",
        "cursor",
        "frame",
        "left_by",
        "length",
        "mirrored",
        "output",
        "output_bits",
        "queue",
        "recirculate_fields",
        "resubmit_fields",
        "resubmitted",
        "truncate_to",
        "variables",
    )

    def __init__(self, frame: bytes, variables: dict[str, Any]) -> None:
        self.frame = frame
        self.variables = variables
        self.cursor = 0  # bits parsed so far
        self.length = len(frame)  # value of packet_length in egress
        self.checksum_error = 0
        self.truncate_to = MAX_FRAME
        self.output = 0  # the emitted headers as one number of output_bits bits
        self.output_bits = 0
        # For Tofino: ingress's requests to the traffic manager, and the bytes in front of copies
        self.queue = self.cos = self.bypass = self.left_by = 0
        self.counted = len(frame)  # bytes for counters and meters: on Tofino without the bytes in front
        self.mirrored = self.resubmitted = b""
        self.forget_requests()

    def forget_requests(self) -> None:
        """Drop the requests of the previous block to the traffic manager."""
        self.clone_session: int | None = None
        self.clone_fields = -1
        self.resubmit_fields: int | None = None
        self.recirculate_fields: int | None = None

    def copy(self) -> PacketState:
        """Return an independent copy that shares only the frame."""
        other = copy(self)
        other.variables = {name: copy_value(v) for name, v in self.variables.items()}
        return other

    @property
    def payload(self) -> bytes:
        """Return the bytes of the frame behind the last byte that the parser consumed."""
        return self.frame[(self.cursor + 7) // 8 :]

    def read_bits(self, count: int) -> int:
        """Return the next `count` bits without consuming them. Raises ParserError PacketTooShort."""
        end = self.cursor + count
        if end > 8 * len(self.frame):
            raise ParserError("PacketTooShort")
        first, last = self.cursor // 8, (end + 7) // 8
        window = int.from_bytes(self.frame[first:last], "big") >> (8 * last - end)
        return window & ((1 << count) - 1)


@dataclass(slots=True)
class EntryParts:
    """What an entry, or the default action, has besides its match and action."""

    hits: list[int] = field(default_factory=lambda: [0, 0])  # packets and bytes
    meter: TokenMeter = field(default_factory=TokenMeter)
    last_us: list[int] = field(default_factory=lambda: [0])  # time of the last hit
    cells: list[int] | None = None  # None: the initial values

    def hit(self, length: int, now_us: int) -> None:
        """Count a packet of `length` bytes that runs the action."""
        self.hits[0] += 1
        self.hits[1] += length
        self.last_us[0] = now_us


class TableState(TableEntries):
    """The entries of one table, with their counters, times of the last hit, meters and cells."""

    def __init__(self, program: ir.Program, table: ir.Table) -> None:
        super().__init__(program, table)
        self._masks = [(1 << ir.width_of(key.expr.type)) - 1 for key in table.keys]
        self.parts: dict[ir.ConstEntry | None, EntryParts] = {}  # None: of the default action
        # With exact keys alone at most one entry matches, so it can be looked up.
        self._exact: dict[tuple[int, ...], ir.ConstEntry] | None = None
        self._refresh()

    # ----------------------------------------------------------------- data plane

    def lookup(self, key: Sequence[int]) -> ir.ConstEntry | None:
        """Return the winning entry for the values of the key, or None for a miss."""
        if not key:
            return None
        bits = tuple(value & mask for value, mask in zip(key, self._masks, strict=True))
        if self._exact is not None:
            return self._exact.get(bits)
        best: ir.ConstEntry | None = None
        for entry in self._entries.values():
            matches = all(map(pattern_matches, entry.patterns, bits, self._masks))
            if matches and (best is None or self._rank(entry) > self._rank(best)):
                best = entry
        return best

    def _rank(self, entry: ir.ConstEntry) -> int:
        if self._prioritised:
            return entry.priority
        return sum(pattern.mask.bit_count() for pattern in entry.patterns)  # the longest prefix

    # ----------------------------------------------------------------- control plane

    def insert(self, entry: ir.ConstEntry) -> ir.ConstEntry:
        """Add an entry; see `TableEntries.insert`."""
        inserted = super().insert(entry)
        self._refresh()
        return inserted

    def modify(self, entry: ir.ConstEntry) -> ir.ConstEntry:
        """Replace the action of the entry with the match of `entry`; the position, counter and meter stay."""
        old, new = self.find(entry), super().modify(entry)
        self.parts[new] = self.parts.pop(old)
        self._refresh()
        return new

    def delete(self, entry: ir.ConstEntry) -> ir.ConstEntry:
        """Remove the entry with this match."""
        deleted = super().delete(entry)
        self._refresh()
        return deleted

    def _part(self, part: str, entry: ir.ConstEntry | None) -> Any:
        found = self.parts[entry]
        return {"direct counter": found.hits, "direct meter": found.meter, "idle timeout": found.last_us}[
            part
        ]

    def _refresh(self) -> None:
        entries = self.entries()
        self.parts = {entry: self.parts.get(entry) or EntryParts() for entry in (None, *entries)}
        if all(key.match == "exact" for key in self.table.keys):
            self._exact = {tuple(p.value for p in entry.patterns): entry for entry in entries}


def pattern_matches(pattern: ir.Pattern, value: int, full: int) -> bool:
    """Return True if a canonical value fits a pattern; `full` is the mask of all bits of its type."""
    match pattern.kind:
        case "any":
            return True
        case "exact":
            return (value ^ pattern.value) & full == 0
        case "mask":
            return (value ^ pattern.value) & pattern.mask & full == 0
        case "range":
            return pattern.value <= value <= pattern.mask
        case _:
            raise ValueError(f"no such pattern: {pattern.kind}")


Evaluate = Callable[[PacketState], Any]
Store = Callable[[PacketState, Any], None]


def compile_expression(expr: ir.Expr) -> Evaluate:
    """Return a function that evaluates `expr`.

    For a header, stack or struct, the function returns the packet's own object. It raises ParserError where
    P4 requires it: stacks used beyond their ends and lookahead beyond the frame.
    """
    match expr:
        case ir.Const(value=constant):
            return lambda packet: constant
        case ir.Var(name=name):
            return lambda packet: packet.variables[name]
        case ir.Member():
            return _member(expr)
        case ir.Index():
            return _index(expr)
        case ir.Next():
            base = compile_expression(expr.base)
            return lambda packet: _next_element(base(packet))
        case ir.Last():
            base = compile_expression(expr.base)
            return lambda packet: _last_element(base(packet))
        case ir.LastIndex():
            base = compile_expression(expr.base)
            wrap = wrapper(expr.type)
            return lambda packet: wrap(base(packet).next - 1)
        case ir.Slice():
            base = compile_expression(expr.base)
            low, mask = expr.low, (1 << (expr.high - expr.low + 1)) - 1
            return lambda packet: (base(packet) >> low) & mask
        case ir.Unary():
            return _unary(expr)
        case ir.Binary():
            return _binary(expr)
        case ir.Cast():
            operand = compile_expression(expr.operand)
            if isinstance(expr.type, ir.Bool):
                return lambda packet: int(operand(packet) != 0)
            wrap = wrapper(expr.type)
            return lambda packet: wrap(operand(packet))
        case ir.Mux():
            condition = compile_expression(expr.condition)
            then, otherwise = compile_expression(expr.then), compile_expression(expr.otherwise)
            return lambda packet: then(packet) if condition(packet) else otherwise(packet)
        case ir.IsValid():
            header = compile_expression(expr.header)
            return lambda packet: int(header(packet).valid)
        case ir.Lookahead():
            width, skip, wrap = expr.type.width, expr.skip, wrapper(expr.type)
            return lambda packet: wrap(packet.read_bits(8 * skip + width))
        case ir.PacketLength():
            return lambda packet: len(packet.frame)
        case _:
            assert_never(expr)


def compile_store(target: ir.Expr) -> Store:
    """Return a function that assigns a canonical scalar to `target`."""
    match target:
        case ir.Var(name=name):

            def store_variable(packet: PacketState, value: Any) -> None:
                packet.variables[name] = value

            return store_variable
        case ir.Member(field=field):
            base = compile_expression(target.base)

            def store_field(packet: PacketState, value: Any) -> None:
                base(packet).fields[field] = value

            return store_field
        case ir.Slice():
            return _store_slice(target)
        case _:
            raise TypeError(f"{target.pos}: not an assignable scalar: {type(target).__name__}")


def _member(expr: ir.Member) -> Evaluate:
    field = expr.field
    # Most expressions are like hdr.ethernet.dst or meta.index: evaluate these in one call instead of three.
    match expr.base:
        case ir.Var(name=name):
            return lambda packet: packet.variables[name].fields[field]
        case ir.Member(base=ir.Var(name=name), field=outer):
            return lambda packet: packet.variables[name].fields[outer].fields[field]
    base = compile_expression(expr.base)
    return lambda packet: base(packet).fields[field]


def _index(expr: ir.Index) -> Evaluate:
    base, index = compile_expression(expr.base), compile_expression(expr.index)

    def element(packet: PacketState) -> Any:
        elements = base(packet).elements
        position = index(packet)
        if 0 <= position < len(elements):
            return elements[position]
        return blank(expr.type)  # reads zero; writes to it are lost

    return element


def _next_element(stack: StackValue) -> Any:
    if stack.next >= len(stack.elements):
        raise ParserError("StackOutOfBounds")
    return stack.elements[stack.next]


def _last_element(stack: StackValue) -> Any:
    if stack.next == 0:
        raise ParserError("StackOutOfBounds")
    return stack.elements[stack.next - 1]


def _store_slice(target: ir.Slice) -> Store:
    load, store = compile_expression(target.base), compile_store(target.base)
    wrap = wrapper(target.base.type)
    low = target.low
    hole = ~(((1 << (target.high - low + 1)) - 1) << low)

    def store_bits(packet: PacketState, value: Any) -> None:
        store(packet, wrap((load(packet) & hole) | (value << low)))

    return store_bits


# --------------------------------------------------------------------------- operators


def _unary(expr: ir.Unary) -> Evaluate:
    operand = compile_expression(expr.operand)
    wrap = wrapper(expr.type)
    match expr.op:
        case "-":
            return lambda packet: wrap(-operand(packet))
        case "~":
            return lambda packet: wrap(~operand(packet))
        case "!":
            return lambda packet: 1 - operand(packet)
        case _:
            raise ValueError(f"{expr.pos}: no such operator: {expr.op}")


def _binary(expr: ir.Binary) -> Evaluate:
    left, right = compile_expression(expr.left), compile_expression(expr.right)
    wrap = wrapper(expr.type)
    plain = fold.PLAIN.get(expr.op)
    if plain is not None:
        return lambda packet: wrap(plain(left(packet), right(packet)))
    match expr.op:
        case "/":
            return lambda packet: wrap(divide(left(packet), right(packet))[0])
        case "%":
            return lambda packet: wrap(divide(left(packet), right(packet))[1])
        case "|+|":
            clamp = _clamp(expr.type)
            return lambda packet: clamp(left(packet) + right(packet))
        case "|-|":
            clamp = _clamp(expr.type)
            return lambda packet: clamp(left(packet) - right(packet))
        case "<<":
            width = ir.width_of(expr.type)
            amount = _unsigned(expr.right)
            return lambda packet: wrap(left(packet) << min(amount(packet), width))
        case ">>":
            amount = _unsigned(expr.right)
            return lambda packet: left(packet) >> amount(packet)  # an arithmetic shift for negative numbers
        case "++":
            high, low = _unsigned(expr.left), _unsigned(expr.right)
            shift = ir.width_of(expr.right.type)
            return lambda packet: wrap((high(packet) << shift) | low(packet))
        case "==":
            return lambda packet: int(equal(left(packet), right(packet)))
        case "!=":
            return lambda packet: int(not equal(left(packet), right(packet)))
        case "<" | "<=" | ">" | ">=":
            compare = fold.COMPARISONS[expr.op]
            return lambda packet: int(compare(left(packet), right(packet)))
        case "&&":
            return lambda packet: right(packet) if left(packet) else 0
        case "||":
            return lambda packet: 1 if left(packet) else right(packet)
        case _:
            raise ValueError(f"{expr.pos}: no such operator: {expr.op}")


def divide(dividend: int, divisor: int) -> tuple[int, int]:
    """Return quotient (rounded towards zero) and remainder; both are 0 if the divisor is 0."""
    if divisor == 0:
        return 0, 0
    quotient = abs(dividend) // abs(divisor)
    if (dividend < 0) != (divisor < 0):
        quotient = -quotient
    return quotient, dividend - quotient * divisor


def _clamp(type_: ir.Scalar) -> Callable[[int], int]:
    assert isinstance(type_, ir.Bits)
    lowest, highest = fold.limits(type_)
    return lambda value: max(lowest, min(highest, value))


def _unsigned(expr: ir.Expr) -> Callable[[PacketState], int]:
    """Return a function that returns the unsigned bit pattern of `expr`, which may be signed."""
    evaluate = compile_expression(expr)
    mask = (1 << ir.width_of(expr.type)) - 1
    return lambda packet: evaluate(packet) & mask
