"""Convert headers to and from bytes, and lists of values to the bytes for a hash.

A cell is a C integer: one field of 8, 16, 32 or 64 bits, or neighbouring smaller fields that fill 8 or 16
bits, as its bit fields. Where cells follow each other both in storage and on the wire, one instruction
converts up to 16 bytes: it reverses the bytes of each cell. Two one-byte cells that form a 16-bit word on the
wire are reversed together: so the word is a number in storage, too, and checksums can add these numbers.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache

from softswitch.compiler import ir
from softswitch.compiler.ir.verify import is_wide
from softswitch.engine.emit_c.expressions import load_bytes
from softswitch.engine.emit_c.layout import FieldRun, FieldSlot, HeaderLayout, whole_bytes
from softswitch.engine.emit_c.text import (
    Writer,
    c_integer,
    class_bits,
    literal,
    storage_bits,
    unparenthesised,
)

WINDOWS = (16, 8)
"""Possible numbers of bytes that one instruction reorders."""


@dataclass(frozen=True, slots=True)
class WireCell:
    """Fields that are one C integer of `size` bytes: on the wire at byte `at`, in storage at `place`."""

    slots: tuple[FieldSlot, ...]
    size: int
    at: int
    place: int

    @property
    def member(self) -> str:
        """The C name of the integer: a single field's name, or a name with the position of several fields."""
        return self.slots[0].member if len(self.slots) == 1 else f"p4_cell_{self.at}"


@dataclass(frozen=True, slots=True)
class CellBlock:
    """A cell, or two one-byte cells that form a 16-bit word. Its bytes are in reverse order in storage."""

    cells: tuple[WireCell, ...]

    @property
    def at(self) -> int:
        """Position of the first byte on the wire, from the header's start."""
        return self.cells[0].at

    @property
    def place(self) -> int:
        """Position of the first byte in storage, from the start of the C struct."""
        return self.cells[-1].place

    @property
    def size(self) -> int:
        """Number of bytes, equal on the wire and in storage."""
        return sum(cell.size for cell in self.cells)


@dataclass(frozen=True, slots=True)
class ReorderWindow:
    """`size` bytes that one instruction reorders: the bytes of `blocks`. Windows may overlap."""

    size: int
    blocks: tuple[CellBlock, ...]

    @property
    def order(self) -> tuple[int, ...]:
        """For each byte of the result, the index of its source byte; equal for loading and storing."""
        order = list(range(self.size))
        for block in self.blocks:
            begin = block.at - self.blocks[0].at
            order[begin : begin + block.size] = reversed(range(begin, begin + block.size))
        return tuple(order)


Item = CellBlock | FieldRun | FieldSlot
"""The parts of a header: cells, arrays of fields, and other fields."""


@cache
def items(layout: HeaderLayout) -> tuple[Item, ...]:
    """Return the parts of a header, in the order of the wire."""
    if not layout.dense:
        runs = {run.first: run for run in layout.runs}
        single = (runs.get(number, slot) for number, slot in enumerate(layout.slots))
        return tuple(item for item in single if isinstance(item, FieldRun) or item.array is None)
    found: list[Item] = []
    place = 0
    for slots in _integers(layout):
        at, bits = slots[0].offset // 8, sum(map(_width, slots))
        is_cell = slots[0].offset % 8 == 0 and bits in (8, 16, 32, 64)
        size = bits // 8 if is_cell or is_wide(slots[0].type) else storage_bits(bits) // 8
        place += 0 if is_wide(slots[0].type) else -place % size
        before = found[-1] if found else None
        if not is_cell:
            found.append(slots[0])
        elif isinstance(before, CellBlock) and size == before.size == 1 and at % 2:
            (first,) = before.cells
            found[-1] = CellBlock(
                (WireCell(first.slots, 1, first.at, place), WireCell(slots, 1, at, first.place))
            )
        else:
            found.append(CellBlock((WireCell(slots, size, at, place),)))
        place += size
    return tuple(found)


def _width(slot: FieldSlot) -> int:
    assert not isinstance(slot.type, ir.VarBits)
    return ir.width_of(slot.type)


def _integers(layout: HeaderLayout) -> Iterator[tuple[FieldSlot, ...]]:
    """Yield the slots of a header grouped by C integer."""
    for group in whole_bytes(layout.slots):
        small = sum(map(_width, group)) in (8, 16) and not any(
            isinstance(slot.type, ir.Bool) for slot in group
        )
        if len(group) == 1 or small:
            yield group
        else:
            yield from ((slot,) for slot in group)


def stretches(layout: HeaderLayout) -> Iterator[tuple[CellBlock, ...]]:
    """Yield the longest sequences of a header's blocks that are contiguous in storage and on the wire."""
    found: list[CellBlock] = []
    for item in items(layout):
        if found and not (isinstance(item, CellBlock) and _follows(found[-1], item)):
            yield tuple(found)
            found = []
        if isinstance(item, CellBlock):
            found.append(item)
    if found:
        yield tuple(found)


def _follows(before: CellBlock, block: CellBlock) -> bool:
    return before.at + before.size == block.at and before.place + before.size == block.place


def windows(stretch: Sequence[CellBlock]) -> Iterator[ReorderWindow | CellBlock]:
    """Yield the reordering steps of a stretch, from its beginning to its end: windows, or single blocks.

    The last window ends where the stretch ends, so it may overlap the window before it.
    """
    end = stretch[-1].at + stretch[-1].size
    first = 0
    while first < len(stretch):
        window = next(filter(None, (_window(stretch, first, size, end) for size in WINDOWS)), None)
        if window is None:
            yield stretch[first]
            first += 1
        else:
            yield window
            first = stretch.index(window.blocks[-1]) + 1


def _window(stretch: Sequence[CellBlock], first: int, size: int, end: int) -> ReorderWindow | None:
    """Return a window of `size` bytes that has block number `first` and at least the next block.

    The window does not go beyond byte `end`; None if there is no such window.
    """
    begin = min(stretch[first].at, end - size)
    blocks = tuple(block for block in stretch if begin <= block.at and block.at + block.size <= begin + size)
    if not blocks or blocks[0].at != begin or stretch.index(blocks[-1]) <= first:
        return None
    return ReorderWindow(size, blocks)


def declaration(cell: WireCell) -> str:
    """Return the C members of a cell. gcc places the lowest bit field first."""
    c_type = c_integer(8 * cell.size)
    if len(cell.slots) == 1:
        return f"{c_type} {cell.member};"
    fields = ", ".join(f"{slot.member} : {_width(slot)}" for slot in reversed(cell.slots))
    return f"union {{ {c_type} {cell.member}; struct {{ {c_type} {fields}; }}; }};"


def emit_header_functions(layout: HeaderLayout, out: Writer) -> None:
    """Write the functions that load a header from the wire, store it to the wire, and compare two headers."""
    name = layout.c_name
    size = ", uint32_t bytes" if layout.varbit else ""
    out.line(f"static const struct {name} p4_zero_{name} __attribute__((unused));")
    out.line()
    with out.block(f"P4_INLINE void p4_load_{name}(struct {name} *h, const uint8_t *at{size})"):
        _load_fields(layout, out)
    out.line()
    with out.block(f"P4_INLINE void p4_store_{name}(uint8_t *at, const struct {name} *h)"):
        _store_fields(layout, out)
    out.line()
    parameters = f"const struct {name} *a, int a_valid, const struct {name} *b, int b_valid"
    with out.block(f"P4_HELPER int p4_same_{name}({parameters})"):
        out.when("!a_valid || !b_valid", "return !a_valid == !b_valid;")
        for difference in _differences(layout):
            out.when(difference, "return 0;")
        out.line("return 1;")
    out.line()


def _load_fields(layout: HeaderLayout, out: Writer) -> None:
    for item in _windows(layout):
        match item:
            case ReorderWindow(blocks=blocks):
                out.line(
                    _static_place(layout, blocks[0]),
                    _reorder(item, f"(uint8_t *)h + {blocks[0].place}", _address("at", 8 * blocks[0].at)),
                )
            case CellBlock(cells):
                for cell in cells:
                    text = load_bytes(_address("at", 8 * cell.at), cell.size, max(32, 8 * cell.size))
                    out.line(f"h->{cell.member} = {text};")
            case FieldRun(array, first, count, bits):
                function = "memcpy" if bits == 8 else f"p4_load{bits}_all"
                out.line(f"{function}(h->{array}, {_address('at', layout.slots[first].offset)}, {count});")
            case FieldSlot(type=ir.VarBits(), member=member, offset=offset):
                out.line(
                    f"h->{member}.bits = 8 * bytes;",
                    f"memset(h->{member}.data, 0, sizeof h->{member}.data);",
                    f"memcpy(h->{member}.data, {_address('at', offset)}, bytes);",
                    f"at += {offset // 8} + bytes;",
                )
            case FieldSlot(type=ir.Bits(width=48), offset=offset) if layout.dense and offset % 8 == 0:
                out.line(f"h->{item.member} = {_load48(offset // 8, layout.fixed_bits // 8)};")
            case FieldSlot():
                _load_field(item, out)


def _store_fields(layout: HeaderLayout, out: Writer) -> None:
    parts: list[FieldSlot] = []  # neighbouring fields, until they fill whole bytes
    for item in _windows(layout):
        match item:
            case ReorderWindow(blocks=blocks):
                source = f"(const uint8_t *)h + {blocks[0].place}"
                out.line(_reorder(item, _address("at", 8 * blocks[0].at), source))
            case CellBlock(cells):
                for cell in cells:
                    bits = 8 * cell.size
                    _store_chunk("at", cell.at, [BitPart(f"h->{cell.member}", bits)], bits, out)
            case FieldRun(array, first, count, bits):
                function = "memcpy" if bits == 8 else f"p4_store{bits}_all"
                out.line(f"{function}({_address('at', layout.slots[first].offset)}, h->{array}, {count});")
            case FieldSlot(type=ir.VarBits(), member=member, offset=offset):
                out.line(
                    f"memcpy({_address('at', offset)}, h->{member}.data, h->{member}.bits / 8);",
                    f"at += {offset // 8} + h->{member}.bits / 8;",
                )
            case FieldSlot(type=ir.Bits(width=48), offset=offset) if (
                layout.dense and offset % 8 == 0 and offset + 64 <= layout.fixed_bits
            ):
                # Over bytes that are stored next.
                out.line(f"p4_store64({_address('at', offset)}, h->{item.member} << 16);")
            case FieldSlot(type=type_, offset=offset):
                parts.append(item)
                if (offset + ir.width_of(type_)) % 8 == 0:
                    store_slots(parts, out)
                    parts.clear()


def _windows(layout: HeaderLayout) -> Iterator[ReorderWindow | Item]:
    """Yield the parts of a header to load or store, from its first byte to its last one."""
    whole = {stretch[0]: stretch for stretch in stretches(layout)}
    for item in items(layout):
        if not isinstance(item, CellBlock):
            yield item
        elif item in whole:
            yield from windows(whole[item])


def _static_place(layout: HeaderLayout, block: CellBlock) -> str:
    member = min(block.cells, key=lambda cell: cell.place).member
    return f'_Static_assert(offsetof(struct {layout.c_name}, {member}) == {block.place}, "as in cells.py");'


def _reorder(window: ReorderWindow, to: str, source: str) -> str:
    order = (*window.order, *range(window.size, 16))
    return f"P4_REORDER{window.size}({to}, {source}, {', '.join(map(str, order))});"


def _load48(at: int, size: int) -> str:
    """Return C text that loads 48 bits at byte `at` of a header of `size` bytes.

    If the header has eight bytes there, one load of eight bytes is enough.
    """
    if at + 8 <= size:
        return f"p4_load64({_address('at', 8 * at)}) >> 16"
    if at >= 2:
        return f"p4_load64({_address('at', 8 * (at - 2))}) & {literal(-1, 48)}"
    return f"p4_load48({_address('at', 8 * at)})"


def load_slots(slots: Iterable[FieldSlot], out: Writer) -> None:
    """Write the loads of fields outside arrays, of a header `h` that begins at `at`."""
    for slot in slots:
        _load_field(slot, out)


def store_slots(slots: Sequence[FieldSlot], out: Writer) -> None:
    """Write the stores of neighbouring fields outside arrays, which together fill whole bytes."""
    for slot in slots:
        if is_wide(slot.type):
            size = ir.width_of(slot.type) // 8
            out.line(f"memcpy({_address('at', slot.offset)}, h->{slot.member}, {size});")
            return
    parts = [BitPart(f"h->{slot.member}", ir.width_of(slot.type)) for slot in slots]
    store_parts("at", slots[0].offset // 8, parts, out)


def _load_field(slot: FieldSlot, out: Writer) -> None:
    assert not isinstance(slot.type, ir.VarBits)
    width = ir.width_of(slot.type)
    if is_wide(slot.type):
        out.line(f"memcpy(h->{slot.member}, {_address('at', slot.offset)}, {width // 8});")
        return
    first, end = slot.offset // 8, (slot.offset + width + 7) // 8
    count, pad = end - first, 8 * end - slot.offset - width
    if count > 16:  # it spans 17 bytes, more than any integer
        head = load_bytes(_address("at", 8 * first), 16, 128)
        text = f"({head} << {8 - pad} | at[{first + 16}] >> {pad})"
        out.line(f"h->{slot.member} = {text} & {literal(-1, width)};")
        return
    text = load_bytes(_address("at", 8 * first), count, class_bits(8 * count))
    if pad:
        text = f"({text} >> {pad})"
    if width < 8 * count - pad:
        text = f"({text} & {literal(-1, width)})"
    out.line(f"h->{slot.member} = {unparenthesised(text)};")


@dataclass(frozen=True, slots=True)
class BitPart:
    """A part of a string of bits: C text of an unsigned integer below 2**width."""

    text: str
    width: int


def store_parts(at: str, offset: int, parts: Sequence[BitPart], out: Writer) -> None:
    """Write the concatenation of `parts` to bytes ``at[offset...]``, padded with zero bits.

    Values that share bytes are combined first; values of whole bytes are stored separately.
    """
    chunk: list[BitPart] = []
    bits = 0
    for part in parts:
        chunk.append(part)
        bits += part.width
        if bits % 8 == 0:
            _store_chunk(at, offset, chunk, bits, out)
            offset += bits // 8
            chunk, bits = [], 0
    if chunk:
        pad = -bits % 8
        _store_chunk(at, offset, [*chunk, BitPart("0u", pad)], bits + pad, out)


def _store_chunk(at: str, offset: int, chunk: list[BitPart], bits: int, out: Writer) -> None:
    address = _address(at, 8 * offset)
    if bits <= 128:
        whole = 32 if bits <= 32 else 64 if bits <= 64 else 128
        cast = {32: "(uint32_t)", 64: "(uint64_t)", 128: "(p4_u128)"}[whole]
        shift = bits
        terms = []
        for part in chunk:
            shift -= part.width
            if part.text == "0u":
                continue
            terms.append(f"{cast}{part.text} << {shift}" if shift else part.text)
        text = " | ".join(terms) or "0"
        match bits:
            case 8:
                out.line(f"{at}[{offset}] = {text if len(chunk) == 1 else f'(uint8_t)({text})'};")
            case 16 | 32 | 48 | 64:
                out.line(f"p4_store{bits}({address}, {text});")
            case _:
                out.line(f"p4_store({address}, {text}, {bits // 8});")
        return
    # Bytes of many unaligned fields: each from its overlapping fields.
    for byte in range(bits // 8):
        terms, start = [], 0
        for part in chunk:
            end = start + part.width
            if start < 8 * byte + 8 and end > 8 * byte and part.text != "0u":
                shift = end - (8 * byte + 8)
                terms.append(f"{part.text} >> {shift}" if shift >= 0 else f"{part.text} << {-shift}")
            start = end
        out.line(f"{at}[{offset + byte}] = (uint8_t)({' | '.join(f'({term})' for term in terms) or '0'});")


def _differences(layout: HeaderLayout) -> Iterator[str]:
    """Yield C conditions of which one holds if the fields of the headers `a` and `b` differ."""
    for item in items(layout):
        match item:
            case CellBlock(cells):
                for member in (slot.member for cell in cells for slot in cell.slots):
                    yield f"a->{member} != b->{member}"
            case FieldRun(array):
                yield f"memcmp(a->{array}, b->{array}, sizeof a->{array})"
            case FieldSlot(type=ir.VarBits(), member=member):
                same_length = f"memcmp(a->{member}.data, b->{member}.data, a->{member}.bits / 8)"
                yield f"a->{member}.bits != b->{member}.bits || {same_length}"
            case FieldSlot(type=type_, member=member) if is_wide(type_):
                yield f"memcmp(a->{member}, b->{member}, sizeof a->{member})"
            case FieldSlot(member=member):
                yield f"a->{member} != b->{member}"


def _address(at: str, bits: int) -> str:
    return f"{at} + {bits // 8}" if bits else at


def checksum_terms(parts: Sequence[BitPart], position: int = 0) -> list[str]:
    """Return C terms whose sum has the same Internet checksum as the concatenation of `parts`.

    `parts` begin at bit `position` of the summed data.

    The checksum is a sum modulo 2**16 - 1. As 2**16 is 1 modulo 2**16 - 1, a 16-bit word contributes the same
    at any position in a larger number. So a value is added as a whole, shifted only so that its last
    bit is at the right position within a 16-bit word.
    """
    terms = []
    for part in parts:
        position += part.width
        shift = -position % 16
        if part.width <= 32:
            text = f"(uint64_t){part.text}"
            terms.append(f"({text} << {shift})" if shift else text)
            continue
        for low in range(0, part.width, 32):
            piece = (
                f"(uint64_t)(uint32_t)({part.text} >> {low})" if low else f"(uint64_t)(uint32_t){part.text}"
            )
            terms.append(f"({piece} << {shift})" if shift else piece)
    return terms
