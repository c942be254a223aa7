"""Layouts and names shared by all parts of one generated program.

Registers that are used together are stored side by side.

A group is an array of structs, one struct per index. Its registers have the same size and are
indexed by the same expression wherever the program uses them, so that a packet finds its slot's
cells in consecutive cache lines, whatever the order or number of registers in the P4 source.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import groupby

from softswitch.compiler import ir
from softswitch.compiler.errors import NOWHERE, Unsupported
from softswitch.compiler.ir.verify import is_wide, too_wide
from softswitch.compiler.ir.walk import all_statements, bodies, without_positions
from softswitch.engine.emit_c.layout import (
    CACHE_LINE,
    RUN,
    ArrayRef,
    HeaderLayout,
    Homes,
    header_types,
    lay_out_header,
)
from softswitch.engine.emit_c.text import Names, Writer, comment, literal, storage_bits


@dataclass(frozen=True, slots=True)
class SlotCell:
    """A register's place in its group."""

    group: str  # the member of struct p4_pipeline, and the C struct's name
    size: int
    member: str
    array: ArrayRef | None
    bits: int  # of the C integer


@dataclass(frozen=True, slots=True)
class RegisterGroup:
    """Registers that share an array of structs."""

    name: str
    size: int
    registers: tuple[ir.Register, ...]
    lines: tuple[str, ...]
    align: int


class Registers:
    """The register groups of a program, and each register's place in its group."""

    def __init__(self, program: ir.Program) -> None:
        self.groups: list[RegisterGroup] = []
        self.cells: dict[str, SlotCell] = {}
        names = Names()
        for registers in _grouped(program):
            self._lay_out(registers, names)

    def _lay_out(self, registers: list[ir.Register], names: Names) -> None:
        """Lay out a group's cells: single cells from wide to narrow, to avoid padding, then arrays.

        A packet reads a slot's single cells before the arrays. The processor prefetches in the order of
        addresses, so it has begun to load the arrays when the packet reaches them.
        """
        shared = _common_prefix([register.name for register in registers]) if len(registers) > 1 else ""
        group = names.unique(f"{shared}slots" if len(registers) > 1 else registers[0].name)
        members = Names()
        runs = list(_runs(registers))
        arrays = [run for run in runs if len(run) >= RUN]
        singles = [register for run in runs if len(run) < RUN for register in run]
        lines: list[str] = []
        total = 0
        for register in sorted(singles, key=lambda register: -_bits(register)):
            bits = _bits(register)
            name = members.unique(_short(register))
            lines.append(f"{_c_type(bits)} {name};  /* {comment(register.pos)} */")
            total += bits // 8
            self.cells[register.name] = SlotCell(group, register.size, name, None, bits)
        for run in arrays:
            name = members.unique(f"{_short(run[0])}_to_{_short(run[-1])}")
            bits = _bits(run[0])
            aligned = f" __attribute__((aligned({CACHE_LINE})))" if len(run) * bits // 8 >= CACHE_LINE else ""
            lines.append(f"{_c_type(bits)} {name}[{len(run)}]{aligned};")
            total += len(run) * bits // 8
            for index, register in enumerate(run):
                ref = ArrayRef(f"{group}.{name}", index)
                cell = SlotCell(group, register.size, f"{name}[{index}]", ref, bits)
                self.cells[register.name] = cell
        align = 1
        if len(registers) > 1:
            align = min(CACHE_LINE, 1 << (total - 1).bit_length())
        self.groups.append(RegisterGroup(group, registers[0].size, tuple(registers), tuple(lines), align))

    def declare(self, out: Writer) -> None:
        """Write the C structs of all groups."""
        for group in self.groups:
            attribute = f" __attribute__((aligned({group.align})))" if group.align > 1 else ""
            with out.block(f"struct {group.name}", f"}}{attribute};"):
                for line in group.lines:
                    out.line(line)
            out.line()

    def initial_values(self) -> list[str]:
        """Return the statements that set cells to initial values other than zero."""
        lines = []
        for group in self.groups:
            for register in group.registers:
                if register.initial:
                    cell = self.cells[register.name]
                    value = literal(register.initial, ir.width_of(register.type))
                    lines.append(f"    for (size_t i = 0; i < {cell.size}; i++)")
                    lines.append(f"        s->{cell.group}[i].{cell.member} = ({_c_type(cell.bits)}){value};")
        return lines

    def describe(self, out: Writer) -> None:
        """Write the C table by which the control plane reads and writes cells."""
        with out.block("static const struct p4_register p4_registers[] =", "};"):
            for name, cell in self.cells.items():
                where = f"offsetof(struct {cell.group}, {cell.member})"
                out.line(
                    f'{{"{name}", offsetof(struct p4_pipeline, {cell.group}), {where}, '
                    f"sizeof(struct {cell.group}), {cell.size}, {cell.bits // 8}}},"
                )
            out.line("{NULL, 0, 0, 0, 0, 0},")
        out.line()


def _grouped(program: ir.Program) -> list[list[ir.Register]]:
    index_of: dict[str, set[ir.Expr]] = {name: set() for name in program.registers}
    for body in bodies(program):
        for statement in all_statements(body):
            if isinstance(statement, ir.Extern) and statement.function.startswith("register."):
                index = statement.args[1 if statement.function == "register.read" else 0][0]
                index_of[statement.instance].add(without_positions(index))
    groups: dict[object, list[ir.Register]] = {}
    for name, register in program.registers.items():
        if is_wide(register.type):
            raise too_wide("a register", ir.width_of(register.type), register.pos)
        indices = index_of[name]
        key: object = (register.size, next(iter(indices))) if len(indices) == 1 else name
        groups.setdefault(key, []).append(register)
    return list(groups.values())


def _runs(registers: Sequence[ir.Register]) -> Iterator[list[ir.Register]]:
    """Yield runs of neighbouring registers of the same width.

    At least `RUN` registers whose names differ only in digits (lanes) are a run of their own, which begins a
    cache line.
    """
    for _, same in groupby(registers, _bits):
        others: list[ir.Register] = []
        for _, group in groupby(same, _without_digits):
            alike = list(group)
            if len(alike) < RUN:
                others += alike
                continue
            if others:
                yield others
                others = []
            yield alike
        if others:
            yield others


def _without_digits(register: ir.Register) -> str:
    return re.sub(r"\d+", "", register.name)


def _common_prefix(names: list[str]) -> str:
    first = names[0].split(".")
    common = 0
    while common < len(first) and all(name.split(".")[: common + 1] == first[: common + 1] for name in names):
        common += 1
    return "_".join(first[:common]) + "_" if common else ""


def _short(register: ir.Register) -> str:
    return register.name.rsplit(".", 1)[-1]


def _bits(register: ir.Register) -> int:
    return storage_bits(ir.width_of(register.type))


def _c_type(bits: int) -> str:
    return "p4_u128" if bits == 128 else f"uint{bits}_t"


@dataclass(frozen=True, slots=True)
class Translation:
    """A program with the layouts and C names that all parts of its translation share."""

    program: ir.Program
    architecture: CArchitecture
    headers: dict[ir.Header, HeaderLayout]
    homes: Homes
    registers: Registers
    action_names: dict[str, str]  # P4 name to C name, without prefix
    table_names: dict[str, str]
    counter_names: dict[str, str]
    meter_names: dict[str, str]
    leaving_actions: frozenset[str]  # actions that may exit the block
    leaving_tables: frozenset[str]
    loop_names: Names = field(default_factory=Names)

    def error(self, name: str) -> int:
        """Return the number of a parser error."""
        members = self.program.errors.members
        if name not in members:
            raise Unsupported(f"the program does not declare error.{name}: include core.p4", NOWHERE)
        return members.index(name)


def make_unit(program: ir.Program, architecture: CArchitecture) -> Translation:
    """Lay out `program` for `architecture`, and choose C names for its parts. Raises Unsupported."""
    header_names = Names()
    headers = {
        header: lay_out_header(
            header, header_names.unique(header.name), NOWHERE, dense=not architecture.by_gress
        )
        for header in header_types(program)
    }
    actions, tables, counters, meters = Names(), Names(), Names(), Names()
    leaving = _leaving_actions(program)
    return Translation(
        program=program,
        architecture=architecture,
        headers=headers,
        homes=Homes(program, headers, by_gress=architecture.by_gress),
        registers=Registers(program),
        action_names={name: actions.unique(name) for name in program.actions},
        table_names={name: tables.unique(name) for name in program.tables},
        counter_names={name: counters.unique(name) for name in program.counters},
        meter_names={name: meters.unique(name) for name in program.meters},
        leaving_actions=leaving,
        leaving_tables=frozenset(
            name
            for name, table in program.tables.items()
            if leaving & {table.default.action, *(ref.action for ref in table.actions)}
        ),
    )


def _leaving_actions(program: ir.Program) -> frozenset[str]:
    """Return the actions that may run an exit statement, themselves or through calls."""
    leaving: set[str] = set()
    while True:
        more = {
            name
            for name, action in program.actions.items()
            if name not in leaving
            and any(_leaves(statement, leaving) for statement in all_statements(action.body))
        }
        if not more:
            return frozenset(leaving)
        leaving |= more


def _leaves(statement: ir.Stmt, leaving: set[str]) -> bool:
    match statement:
        case ir.Exit():
            return True
        case ir.Call(action=action):
            return action in leaving
        case _:
            return False


@dataclass(frozen=True, slots=True)
class CArchitecture:
    """The C text specific to programs for one architecture.

    Attributes:
        by_gress: True if a packet's state belongs to one gress; else it lives from parser to deparser.
        counted: C text of the number of bytes that counters and meters count for a packet.
        options: Lines at the beginning of the C text.
        blocks: Controls except deparsers, in the order of the text.
        deparsers: Deparsers.
        declare_packet: Writes ``struct p4_packet`` and ``p4_state``.
        emit_packet_functions: Writes the functions that start, copy and lend packets.
        emit_entries: Writes the engine's entry points; the bool states whether the program needs the time.
    """

    by_gress: bool
    counted: str
    options: Sequence[str]
    blocks: tuple[str, ...]
    deparsers: tuple[str, ...]
    declare_packet: Callable[[Translation, Writer], None]
    emit_packet_functions: Callable[[Translation, Writer], None]
    emit_entries: Callable[[Translation, bool, Writer], None]
