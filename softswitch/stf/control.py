"""The control plane of a script: entries, counters, meters, registers, multicast and mirroring sessions.

Scripts may omit the front of a name (``tbl`` for ``ingress.tbl``) and write a stack's element
as ``stack$0`` and a validity as ``hdr.valid`` or ``hdr.$valid``, as in BMv2's scripts.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Protocol, TypeVar

from softswitch.compiler import ir
from softswitch.engine.entries import has_priorities
from softswitch.engine.native import Members
from softswitch.engine.pipeline import MeterRates, MeterReading, PipelineError
from softswitch.stf.script import (
    Add,
    CheckCounter,
    ScriptCommand,
    ScriptError,
    ScriptOperand,
    SetDefault,
    Statement,
)


def find(what: str, name: str, names: Iterable[str], line: int) -> str:
    """Return the one of `names` that equals `name`, or the only one that ends in `name`.

    Args:
        what: Kind of the object, for error messages.
        name: The name in the script.
        names: The program's names.
        line: Line of the script.

    Raises ScriptError.
    """
    known = list(names)
    if name in known:
        return name
    whole = [other for other in known if other.endswith(f".{name}")]
    found = whole or [other for other in known if other.endswith(name)]
    if len(found) == 1:
        return found[0]
    if found:
        raise ScriptError(f"{what} {name!r} is ambiguous: want {' or '.join(found)}", line)
    raise ScriptError(f"no {what} {name!r}; the program has {', '.join(known) or 'none'}", line)


def tables_of(program: ir.Program) -> list[str]:
    """Return the tables visible to the control plane."""
    return [name for name in program.tables if ir.plain_name(name) == name]


def entry_of(program: ir.Program, statement: Add) -> tuple[str, ir.ConstEntry]:
    """Return the table and the entry that a statement adds. Raises ScriptError."""
    name = find("table", statement.table, tables_of(program), statement.line)
    table = program.tables[name]
    given: dict[str, ScriptOperand] = {}
    for written, operand in statement.matches:
        given[key_named(written, [key.name for key in table.keys], name, statement.line)] = operand
    patterns = tuple(_pattern(key, given.get(key.name), statement.line) for key in table.keys)
    called = invocation_of(program, table, statement.action, statement.args, statement.line)
    priority = (statement.priority or 0) + 1 if has_priorities(table) else 0
    return name, ir.ConstEntry(patterns, called, priority)


def invocation_of(
    program: ir.Program, table: ir.Table, name: str, args: tuple[tuple[str, int], ...], line: int
) -> ir.Invocation:
    """Return the invocation of a table's action `name` with `args`.

    Args:
        program: The program.
        table: The table.
        name: Name of the action.
        args: Names and values of the action's parameters.
        line: Line of the script.

    Raises ScriptError.
    """
    own = {ir.plain_name(ref.action): ref.action for ref in table.actions}
    action = program.actions[own[find("action", name, own, line)]]
    given = dict(args)
    values = []
    for param in action.params:
        if param.name not in given:
            raise ScriptError(f"no value for parameter {param.name!r} of {action.name}", line)
        values.append(_value(param.type, given.pop(param.name)))
    if given:
        known = ", ".join(param.name for param in action.params) or "none"
        raise ScriptError(f"{action.name} has no parameter {next(iter(given))!r}; it has {known}", line)
    return ir.Invocation(action.name, tuple(values))


def _value(type_: ir.Type, number: int) -> int:
    if isinstance(type_, ir.Bits) and type_.signed and number >> (type_.width - 1) == 1:
        return number - (1 << type_.width)
    return number


def key_named(name: str, keys: list[str], table: str, line: int) -> str:
    """Return the key of a table that matches a script's name.

    Args:
        name: The name in the script.
        keys: The table's keys.
        table: Name of the table, for error messages.
        line: Line of the script.

    Raises ScriptError.
    """
    name = re.sub(r"\$(\d+)", r"[\1]", name)
    valid = re.sub(r"(\.|^)\$?valid$", r"\1$valid$", name)
    for candidate in (name, f"{name}$", valid, f"{name}.$valid$"):
        if candidate in keys:
            return candidate
    ending = [key for key in keys if key.endswith((f".{name}", f".{name}$", f".{valid}"))]
    if len(ending) == 1:
        return ending[0]
    raise ScriptError(f"no key {name!r} in table {table}; it has {', '.join(keys) or 'none'}", line)


def _pattern(key: ir.Key, operand: ScriptOperand | None, line: int) -> ir.Pattern:
    width = ir.width_of(key.expr.type)
    full = (1 << width) - 1
    if operand is None:
        return ir.Pattern("exact", 0) if key.match == "exact" else ir.Pattern("any")
    if operand.value > full:
        raise ScriptError(f"{operand.value:#x} does not fit in the {width} bits of key {key.name}", line)
    if operand.high is not None:
        if key.match != "range" or not operand.value <= operand.high <= full:
            raise ScriptError(
                f"the range does not fit key {key.name}, which is {key.match} of {width} bits", line
            )
        return ir.Pattern("range", operand.value, operand.high)
    if key.match == "lpm":
        return _prefix(operand, width, line)
    if operand.prefix is not None:
        raise ScriptError(f"a prefix length does not fit key {key.name}, which is {key.match}", line)
    if key.match == "ternary":
        mask = full if operand.digits == 0 else operand.mask & full
        return ir.Pattern("mask", operand.value & mask, mask)
    if not operand.whole:
        raise ScriptError(f"want no * in the value for key {key.name}, which is {key.match}", line)
    return ir.Pattern("exact", operand.value)


def _prefix(operand: ScriptOperand, width: int, line: int) -> ir.Pattern:
    length = operand.prefix
    if length is None:
        length = width if operand.whole else operand.mask.bit_count()
    if not 0 <= length <= width:
        raise ScriptError(f"a prefix of {length} bits of a key that has {width}", line)
    full = (1 << width) - 1
    mask = full ^ (full >> length)
    return ir.Pattern("mask", operand.value & mask, mask) if mask else ir.Pattern("any")


class Plane(Protocol):
    """Entries, counters, meters and registers of one switch, such as a `Pipeline`.

    Methods may raise PipelineError.
    """

    def insert(self, table: str, entry: ir.ConstEntry) -> None:
        """Add an entry."""

    def delete(self, table: str, entry: ir.ConstEntry) -> None:
        """Remove the entry with this match."""

    def entries(self, table: str) -> Sequence[ir.ConstEntry]:
        """Return the entries of a table."""

    def set_default(self, table: str, invocation: ir.Invocation) -> None:
        """Set the action that runs on a miss."""

    def read_counter(self, name: str, index: int) -> tuple[int, int]:
        """Return packets and bytes of a counter's cell."""

    def write_counter(self, name: str, index: int, packets: int, bytes_: int) -> None:
        """Set packets and bytes of a counter's cell; see `Pipeline.write_counter`."""

    def read_direct_counter(self, table: str, entry: ir.ConstEntry) -> tuple[int, int]:
        """Return the number of packets that have hit an entry, and their number of bytes."""

    def read_register(self, name: str, index: int) -> int:
        """Return the value of a register's cell."""

    def write_register(self, name: str, index: int, value: int) -> None:
        """Set the value of a register's cell."""

    def read_meter(self, name: str, index: int) -> MeterReading:
        """Return the rates of a meter's cell."""

    def configure_meter(self, name: str, index: int, rates: MeterRates) -> None:
        """Set the rates of a meter's cell."""


class Replication(Protocol):
    """Multicast groups and clone sessions of one switch, such as a `Switch`.

    Methods may raise PipelineError.
    """

    def set_multicast_group(self, group: int, members: Members) -> None:
        """Define a multicast group."""

    def set_clone_session(self, session: int, members: Members | None, truncate: int = 0) -> None:
        """Define a clone session; None removes it. Clones are cut to `truncate` bytes (0: uncut)."""


_Result = TypeVar("_Result")

_MILLION = 1_000_000
_RELATIONS: dict[str, Callable[[int, int], bool]] = {
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


class Control:
    """Applies the statements of one script to one switch, on which `program` runs."""

    def __init__(self, program: ir.Program, plane: Plane, replication: Replication) -> None:
        self.program = program
        self.replication = replication
        self._plane = plane
        self._labels: dict[str, tuple[str, ir.ConstEntry]] = {}
        self._nodes: list[tuple[int, tuple[int, ...]]] = []
        self._groups: dict[int, list[int]] = {}
        self._mirrors: dict[int, tuple[str, int]] = {}

    def configure(self, statements: Iterable[Statement]) -> None:
        """Apply the entries, default actions and commands among `statements`. Raises ScriptError."""
        for statement in statements:
            match statement:
                case Add():
                    self.add(statement)
                case SetDefault():
                    self.set_default(statement)
                case ScriptCommand():
                    self.command(statement)

    def add(self, statement: Add) -> None:
        """Insert an entry. Raises ScriptError."""
        table, entry = entry_of(self.program, statement)
        self._call(statement.line, lambda: self._plane.insert(table, entry))
        if statement.label is not None:
            self._labels[statement.label] = (table, entry)

    def set_default(self, statement: SetDefault) -> None:
        """Set a default action. Raises ScriptError."""
        name = find("table", statement.table, tables_of(self.program), statement.line)
        called = invocation_of(
            self.program, self.program.tables[name], statement.action, statement.args, statement.line
        )
        self._call(statement.line, lambda: self._plane.set_default(name, called))

    def remove_all(self, line: int) -> None:
        """Remove all entries except constant ones. Raises ScriptError."""
        for name, table in self.program.tables.items():
            if not table.const_entries:
                for entry in self._plane.entries(name):
                    self._call(line, partial(self._plane.delete, name, entry))

    def check_counter(self, statement: CheckCounter) -> str | None:
        """Return a message if a counter does not have its expected value, else None. Raises ScriptError."""
        packets, bytes_ = self._counted(statement)
        value = packets if statement.kind == "packets" else bytes_
        if _RELATIONS[statement.relation](value, statement.number):
            return None
        wanted = f"{statement.relation} {statement.number}"
        return f"counter {statement.counter} has {value} {statement.kind}, not {wanted}"

    def _counted(self, statement: CheckCounter) -> tuple[int, int]:
        counters, line = self.program.counters, statement.line
        name = find("counter", statement.counter, counters, line)
        owner = counters[name].table
        if owner is None:
            cell = statement.index
            if isinstance(cell, str):
                raise ScriptError(f"counter {name} is counted by index, not by entry ${cell}", line)
            return self._call(line, lambda: self._plane.read_counter(name, cell))
        index = str(statement.index)
        if index not in self._labels:
            raise ScriptError(f"counter {name} is direct: name an entry of {owner} that has a label", line)
        _, entry = self._labels[index]
        return self._call(line, lambda: self._plane.read_direct_counter(owner, entry))

    def _call(self, line: int, act: Callable[[], _Result]) -> _Result:
        """Call `act` and return its result; convert a PipelineError to a ScriptError at `line`."""
        try:
            return act()
        except PipelineError as error:
            raise ScriptError(str(error), line) from error

    # ----------------------------------------------------------------------- commands

    def command(self, statement: ScriptCommand) -> str | None:
        """Apply a command; return the value that it reads, if any. Raises ScriptError."""
        group, _, _ = statement.command.partition("_")
        handlers = {
            "mirroring": self._mirroring,
            "mc": self._multicast,
            "counter": self._counter,
            "register": self._register,
            "meter": self._meter,
        }
        return handlers[group](statement)

    def _mirroring(self, statement: ScriptCommand) -> str | None:
        session, *rest = statement.numbers
        match statement.command:
            case "mirroring_add":
                self._mirrors[session] = ("port", rest[0])
            case "mirroring_add_mc":
                self._mirrors[session] = ("group", rest[0])
            case "mirroring_delete":
                self._mirrors.pop(session, None)
                self._call(statement.line, lambda: self.replication.set_clone_session(session, None))
            case _:
                kind, number = self._mirrors.get(session, ("none", 0))
                return f"mirroring session {session}: {kind} {number}"
        self._call(statement.line, self._configure)
        return None

    def _multicast(self, statement: ScriptCommand) -> None:
        first, *rest = statement.numbers
        match statement.command:
            case "mc_mgrp_create":
                self._groups[first] = []
            case "mc_node_create":
                self._nodes.append((first, tuple(rest)))
            case "mc_node_update":
                node = self._node(first, statement.line)
                self._nodes[first] = (node[0], tuple(rest))
            case _:
                self._node(rest[0], statement.line)
                if first not in self._groups:
                    raise ScriptError(
                        f"there is no multicast group {first}; create it by mc_mgrp_create {first}",
                        statement.line,
                    )
                self._groups[first].append(rest[0])
        self._call(statement.line, self._configure)

    def _node(self, handle: int, line: int) -> tuple[int, tuple[int, ...]]:
        if handle >= len(self._nodes):
            raise ScriptError(f"no multicast node {handle}; {len(self._nodes)} have been created", line)
        return self._nodes[handle]

    def _members(self, group: int) -> list[tuple[int, int]]:
        """Return the copies that a multicast group makes, as (port, replication id)."""
        nodes = [self._nodes[handle] for handle in self._groups.get(group, ())]
        return [(port, rid) for rid, ports in nodes for port in ports]

    def _configure(self) -> None:
        for group in self._groups:
            self.replication.set_multicast_group(group, self._members(group))
        for session, (kind, number) in self._mirrors.items():
            members = [(number, 0)] if kind == "port" else self._members(number)
            self.replication.set_clone_session(session, members)

    def _counter(self, statement: ScriptCommand) -> str | None:
        name = find("counter", statement.name, self.program.counters, statement.line)
        index, *values = statement.numbers
        if values:
            packets, bytes_ = values
            self._call(statement.line, lambda: self._plane.write_counter(name, index, packets, bytes_))
            return None
        packets, bytes_ = self._call(statement.line, lambda: self._plane.read_counter(name, index))
        return f"{name}[{index}] = {packets} packets, {bytes_} bytes"

    def _register(self, statement: ScriptCommand) -> str | None:
        name = find("register", statement.name, self.program.registers, statement.line)
        match statement.numbers:
            case ():
                for index in range(self.program.registers[name].size):
                    self._call(statement.line, partial(self._plane.write_register, name, index, 0))
                return None
            case (index,):
                value = self._call(statement.line, lambda: self._plane.read_register(name, index))
                return f"{name}[{index}] = {value}"
            case (index, value, *_):
                self._call(statement.line, lambda: self._plane.write_register(name, index, value))
        return None

    def _meter(self, statement: ScriptCommand) -> str | None:
        meters, line = self.program.meters, statement.line
        name = find("meter", statement.name, meters, line)
        if meters[name].table is not None:
            raise ScriptError(f"meter {name} is direct: scripts set the rates of arrays only", line)
        if statement.command == "meter_get_rates":
            (index,) = statement.numbers
            found = self._call(line, lambda: self._plane.read_meter(name, index))
            return f"{name}[{index}] = {_shown(found.rates)}"
        rates = _rates(statement)
        for index in statement.numbers or range(meters[name].size):
            self._call(line, partial(self._plane.configure_meter, name, index, rates))
        return None


def _rates(statement: ScriptCommand) -> MeterRates:
    """Return the rates of a command, converted from BMv2's per microsecond to per second.

    Raises ScriptError.
    """
    if len(statement.rates) != 2:
        wanted = "two, committed and peak"
        raise ScriptError(
            f"{statement.command} with {len(statement.rates)} rates; want {wanted}", statement.line
        )
    (committed, burst), (peak, peak_burst) = statement.rates
    if committed > peak:
        raise ScriptError(
            f"committed rate {committed:g} is above peak rate {peak:g}; want the smaller one first",
            statement.line,
        )
    return MeterRates(round(committed * _MILLION), burst, round(peak * _MILLION), peak_burst)


def _shown(rates: MeterRates | None) -> str:
    if rates is None:
        return "no rates"
    return f"{rates.cir / _MILLION:g}:{rates.cburst} {rates.pir / _MILLION:g}:{rates.pburst}"
