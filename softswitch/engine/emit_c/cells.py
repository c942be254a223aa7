"""Cells: fields of headers whose byte order is changed many at a time.

A field of 8, 16, 32 or 64 bits is a C integer, and so are neighbouring smaller fields that fill 8 or 16 bits,
as bit fields of it. Where such cells follow each other as closely as on the wire, one instruction puts up to
16 bytes into their other order: those of a cell are reversed, and so are two cells of a byte each that are a
16-bit word of the wire. So a word of the wire is a number in storage, and checksums add up words there.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache

from softswitch.compiler import ir
from softswitch.engine.emit_c.layout import HeaderLayout, Slot, whole_bytes
from softswitch.engine.emit_c.text import c_integer, is_wide, storage_bits, width_of

WINDOWS = (16, 8)
"""Numbers of bytes that are put into order at a time."""


@dataclass(frozen=True, slots=True)
class Cell:
    """Fields that are one C integer of `size` bytes: on the wire at byte `at`, in storage at `place`."""

    slots: tuple[Slot, ...]
    size: int
    at: int
    place: int

    @property
    def member(self) -> str:
        """The C name of the integer; no field's is like that of several."""
        return self.slots[0].member if len(self.slots) == 1 else f"p4_cell_{self.at}"


@dataclass(frozen=True, slots=True)
class Block:
    """A cell, or two of a byte each that change places: in storage, its bytes are reversed."""

    cells: tuple[Cell, ...]

    @property
    def at(self) -> int:
        """The first byte on the wire."""
        return self.cells[0].at

    @property
    def place(self) -> int:
        """The first byte in storage."""
        return self.cells[-1].place

    @property
    def size(self) -> int:
        """Bytes, as many on the wire as in storage."""
        return sum(cell.size for cell in self.cells)


@dataclass(frozen=True, slots=True)
class Window:
    """Bytes that are put into order at a time: those of `blocks`, and some that are written again."""

    size: int
    blocks: tuple[Block, ...]

    @property
    def order(self) -> tuple[int, ...]:
        """For each byte the one that it comes from, on the way in and on the way out."""
        order = list(range(self.size))
        for block in self.blocks:
            begin = block.at - self.blocks[0].at
            order[begin : begin + block.size] = reversed(range(begin, begin + block.size))
        return tuple(order)


Item = Block | Slot
"""What a header consists of: cells, and fields that are none."""


@cache
def items(layout: HeaderLayout) -> tuple[Item, ...]:
    """Return the cells of a header and its fields that are none, in the order of the wire."""
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
        elif isinstance(before, Block) and size == before.size == 1 and at % 2:
            (first,) = before.cells
            found[-1] = Block((Cell(first.slots, 1, first.at, place), Cell(slots, 1, at, first.place)))
        else:
            found.append(Block((Cell(slots, size, at, place),)))
        place += size
    return tuple(found)


def _width(slot: Slot) -> int:
    assert not isinstance(slot.type, ir.VarBits)
    return width_of(slot.type)


def _integers(layout: HeaderLayout) -> Iterator[tuple[Slot, ...]]:
    """Yield the slots of a header by the C integers that they are."""
    for group in whole_bytes(layout.slots):
        small = sum(map(_width, group)) in (8, 16) and not any(
            isinstance(slot.type, ir.Bool) for slot in group
        )
        if len(group) == 1 or small:
            yield group
        else:
            yield from ((slot,) for slot in group)


def stretches(layout: HeaderLayout) -> Iterator[tuple[Block, ...]]:
    """Yield the blocks of a header that follow each other in storage as they do on the wire."""
    found: list[Block] = []
    for item in items(layout):
        if found and not (isinstance(item, Block) and _follows(found[-1], item)):
            yield tuple(found)
            found = []
        if isinstance(item, Block):
            found.append(item)
    if found:
        yield tuple(found)


def _follows(before: Block, block: Block) -> bool:
    return before.at + before.size == block.at and before.place + before.size == block.place


def windows(stretch: Sequence[Block]) -> Iterator[Window | Block]:
    """Yield how a stretch is put into order, from its begin to its end: in windows, or a block by itself.

    A window may begin before the end of the one before, in order to end with the stretch.
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


def _window(stretch: Sequence[Block], first: int, size: int, end: int) -> Window | None:
    """Return a window of `size` bytes for two blocks and more from `first` on, if there is one."""
    begin = min(stretch[first].at, end - size)
    blocks = tuple(block for block in stretch if begin <= block.at and block.at + block.size <= begin + size)
    if not blocks or blocks[0].at != begin or stretch.index(blocks[-1]) <= first:
        return None
    return Window(size, blocks)


def declaration(cell: Cell) -> str:
    """Return the C members of a cell. Of bit fields, gcc has the lowest first."""
    c_type = c_integer(8 * cell.size)
    if len(cell.slots) == 1:
        return f"{c_type} {cell.member};"
    fields = ", ".join(f"{slot.member} : {_width(slot)}" for slot in reversed(cell.slots))
    return f"union {{ {c_type} {cell.member}; struct {{ {c_type} {fields}; }}; }};"
