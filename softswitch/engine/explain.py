"""Describe the C back end's choices for a program: register layout, table look-up, loops over lanes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from softswitch.compiler import ir
from softswitch.engine.emit_c.text import storage_bits
from softswitch.engine.emit_c.unit import RegisterGroup, Registers
from softswitch.engine.entries import TableLayout, lay_out_table

_LOOKUPS = {
    "none": "no key: the default action",
    "code": "comparisons in code, in the order of precedence",
    "exact": "hash table",
    "lpm": "one hash table, looked up once for each prefix length whose filter passes",
    "ordered": "tuple space search; linear search for a while after a change",
}


@dataclass(frozen=True, slots=True)
class Memory:
    """Registers stored together: each slot has one cell of each register, all accessed by a packet."""

    name: str
    registers: tuple[str, ...]
    slots: int
    slot_bytes: int

    @property
    def bytes(self) -> int:
        """Number of bytes of all slots."""
        return self.slots * self.slot_bytes


@dataclass(frozen=True, slots=True)
class Lookup:
    """A table: its look-up method as text, the width of its key in bits, its maximum number of entries."""

    table: str
    lookup: str
    key_bits: int
    entries: int


@dataclass(frozen=True, slots=True)
class Explanation:
    """The layout that the back end chooses for a program.

    `lane_loops` is the number of loops that replace statements that the program repeats for each lane.
    `vector_loops` is the number of loops that are marked for vectorization.
    """

    memory: tuple[Memory, ...]
    lookups: tuple[Lookup, ...]
    lane_loops: int
    vector_loops: int


def explain(program: ir.Program, text: str) -> Explanation:
    """Return the layout that the C back end chose for `program`; `text` is the C code. Raises Unsupported."""
    groups = tuple(_memory(group) for group in Registers(program).groups)
    loops = text.count("for (size_t i = 0;")
    vectors = text.count("#pragma GCC ivdep")
    return Explanation(groups, tuple(_lookups(program)), loops, vectors)


def _memory(group: RegisterGroup) -> Memory:
    used = sum(storage_bits(ir.width_of(register.type)) // 8 for register in group.registers)
    slot_bytes = -(-used // group.align) * group.align
    return Memory(group.name, tuple(one.name for one in group.registers), group.size, slot_bytes)


def _lookups(program: ir.Program) -> Iterator[Lookup]:
    for table in program.tables.values():
        layout = lay_out_table(table)
        bits = sum(part.width for part in layout.parts)
        yield Lookup(table.name, _lookup(layout), bits, table.size)


def _lookup(layout: TableLayout) -> str:
    if layout.kind == "ordered" and layout.ranges:
        return "linear search: the key has ranges"
    return _LOOKUPS[layout.kind]
