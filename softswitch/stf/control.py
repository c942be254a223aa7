"""The control plane of a script: entries, counters, meters, registers, multicast and mirroring sessions."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Protocol, TypeVar

from softswitch.compiler import ir
from softswitch.engine.meters import MeterRates
from softswitch.engine.native import Members
from softswitch.engine.pipeline import Pipeline, PipelineError
from softswitch.engine.switch import Switch
from softswitch.stf.names import entry_of, find, invocation_of, tables_of
from softswitch.stf.script import Add, CheckCounter, Command, ScriptError, SetDefault, Statement


class Plane(Protocol):
    """Entries, counters, meters, registers and replication of one switch. All may raise PipelineError."""

    def insert(self, table: str, entry: ir.ConstEntry) -> None:
        """Add an entry."""

    def delete(self, table: str, entry: ir.ConstEntry) -> None:
        """Remove the entry with this match."""

    def entries(self, table: str) -> Sequence[ir.ConstEntry]:
        """Return the entries of a table."""

    def set_default(self, table: str, called: ir.Invocation) -> None:
        """Set what a miss runs."""

    def read_counter(self, name: str, index: int) -> tuple[int, int]:
        """Return packets and bytes of a cell."""

    def write_counter(self, name: str, index: int, packets: int, bytes_: int) -> None:
        """Set a cell; see `Pipeline.write_counter`."""

    def read_direct_counter(self, table: str, entry: ir.ConstEntry) -> tuple[int, int]:
        """Return packets and bytes that an entry has met."""

    def read_register(self, name: str, index: int) -> int:
        """Return a cell."""

    def write_register(self, name: str, index: int, value: int) -> None:
        """Set a cell."""

    def read_meter_rates(self, name: str, index: int) -> MeterRates | None:
        """Return the rates of a cell, None if it has none."""

    def set_meter_rates(self, name: str, index: int, rates: MeterRates) -> None:
        """Set the rates of a cell."""

    def set_multicast_group(self, group: int, members: Members) -> None:
        """Define a multicast group."""

    def set_clone_session(self, session: int, members: Members | None, truncate: int = 0) -> None:
        """Define a clone session, whose copies have this many bytes (0: all); None removes it."""


class EmbeddedPlane:
    """A `Plane` of a switch of this process and the program on it."""

    def __init__(self, switch: Switch, pipeline: Pipeline) -> None:
        self.insert = pipeline.insert
        self.delete = pipeline.delete
        self.entries = pipeline.entries
        self.set_default = pipeline.set_default
        self.read_counter = pipeline.read_counter
        self.write_counter = pipeline.write_counter
        self.read_direct_counter = pipeline.read_direct_counter
        self.read_register = pipeline.read_register
        self.write_register = pipeline.write_register
        self.set_meter_rates = pipeline.configure_meter
        self._pipeline = pipeline
        self._switch = switch

    def set_multicast_group(self, group: int, members: Members) -> None:
        """As of `Plane`."""
        self._switch.set_multicast_group(group, members)

    def set_clone_session(self, session: int, members: Members | None, truncate: int = 0) -> None:
        """As of `Plane`."""
        self._switch.set_clone_session(session, members, truncate)

    def read_meter_rates(self, name: str, index: int) -> MeterRates | None:
        """As of `Plane`."""
        return self._pipeline.read_meter(name, index).rates


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
    """Does what the statements of one script say to one switch, on which `program` runs."""

    def __init__(self, program: ir.Program, plane: Plane) -> None:
        self._program = program
        self._plane = plane
        self._labels: dict[str, tuple[str, ir.ConstEntry]] = {}
        self._nodes: list[tuple[int, tuple[int, ...]]] = []
        self._groups: dict[int, list[int]] = {}
        self._mirrors: dict[int, tuple[str, int]] = {}

    def configure(self, statements: Iterable[Statement]) -> None:
        """Obey what says how the switch is set up: entries, default actions, commands. Raises ScriptError."""
        for statement in statements:
            match statement:
                case Add():
                    self.add(statement)
                case SetDefault():
                    self.set_default(statement)
                case Command():
                    self.command(statement)

    def add(self, statement: Add) -> None:
        """Insert an entry. Raises ScriptError."""
        table, entry = entry_of(self._program, statement)
        self._tell(statement.line, lambda: self._plane.insert(table, entry))
        if statement.label is not None:
            self._labels[statement.label] = (table, entry)

    def set_default(self, statement: SetDefault) -> None:
        """Set a default action. Raises ScriptError."""
        name = find("table", statement.table, tables_of(self._program), statement.line)
        called = invocation_of(
            self._program, self._program.tables[name], statement.action, statement.args, statement.line
        )
        self._tell(statement.line, lambda: self._plane.set_default(name, called))

    def remove_all(self, line: int) -> None:
        """Remove all entries but constant ones. Raises ScriptError."""
        for name, table in self._program.tables.items():
            if not table.const_entries:
                for entry in self._plane.entries(name):
                    self._tell(line, partial(self._plane.delete, name, entry))

    def check_counter(self, statement: CheckCounter) -> str | None:
        """Return the error of a counter, or None. Raises ScriptError."""
        packets, bytes_ = self._counted(statement)
        value = packets if statement.kind == "packets" else bytes_
        if _RELATIONS[statement.relation](value, statement.number):
            return None
        wanted = f"{statement.relation} {statement.number}"
        return f"counter {statement.counter} has {value} {statement.kind}, not {wanted}"

    def _counted(self, statement: CheckCounter) -> tuple[int, int]:
        counters, line = self._program.counters, statement.line
        name = find("counter", statement.counter, counters, line)
        owner = counters[name].table
        if owner is None:
            cell = statement.index
            if isinstance(cell, str):
                raise ScriptError(f"counter {name} is counted by index, not by entry ${cell}", line)
            return self._tell(line, lambda: self._plane.read_counter(name, cell))
        index = str(statement.index)
        if index not in self._labels:
            raise ScriptError(f"counter {name} is direct: name an entry of {owner} that has a label", line)
        _, entry = self._labels[index]
        return self._tell(line, lambda: self._plane.read_direct_counter(owner, entry))

    def _tell(self, line: int, act: Callable[[], _Result]) -> _Result:
        """Return the result of `act`, whose errors are the script's."""
        try:
            return act()
        except PipelineError as error:
            raise ScriptError(str(error), line) from error

    # ----------------------------------------------------------------------- commands

    def command(self, statement: Command) -> str | None:
        """Obey a command; return what it reads, if it reads. Raises ScriptError."""
        group, _, _ = statement.command.partition("_")
        handlers = {
            "mirroring": self._mirroring,
            "mc": self._multicast,
            "counter": self._counter,
            "register": self._register,
            "meter": self._meter,
        }
        return handlers[group](statement)

    def _mirroring(self, statement: Command) -> str | None:
        session, *rest = statement.numbers
        match statement.command:
            case "mirroring_add":
                self._mirrors[session] = ("port", rest[0])
            case "mirroring_add_mc":
                self._mirrors[session] = ("group", rest[0])
            case "mirroring_delete":
                self._mirrors.pop(session, None)
                self._tell(statement.line, lambda: self._plane.set_clone_session(session, None))
            case _:
                kind, number = self._mirrors.get(session, ("none", 0))
                return f"mirroring session {session}: {kind} {number}"
        self._tell(statement.line, self._configure)
        return None

    def _multicast(self, statement: Command) -> None:
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
                    raise ScriptError(f"no multicast group {first}: mc_mgrp_create {first}", statement.line)
                self._groups[first].append(rest[0])
        self._tell(statement.line, self._configure)

    def _node(self, handle: int, line: int) -> tuple[int, tuple[int, ...]]:
        if handle >= len(self._nodes):
            raise ScriptError(f"no multicast node {handle}; {len(self._nodes)} have been created", line)
        return self._nodes[handle]

    def _members(self, group: int) -> list[tuple[int, int]]:
        """Return the copies of a group as (port, replication id)."""
        nodes = [self._nodes[handle] for handle in self._groups.get(group, ())]
        return [(port, rid) for rid, ports in nodes for port in ports]

    def _configure(self) -> None:
        for group in self._groups:
            self._plane.set_multicast_group(group, self._members(group))
        for session, (kind, number) in self._mirrors.items():
            members = [(number, 0)] if kind == "port" else self._members(number)
            self._plane.set_clone_session(session, members)

    def _counter(self, statement: Command) -> str | None:
        name = find("counter", statement.name, self._program.counters, statement.line)
        index, *values = statement.numbers
        if values:
            packets, bytes_ = values
            self._tell(statement.line, lambda: self._plane.write_counter(name, index, packets, bytes_))
            return None
        packets, bytes_ = self._tell(statement.line, lambda: self._plane.read_counter(name, index))
        return f"{name}[{index}] = {packets} packets, {bytes_} bytes"

    def _register(self, statement: Command) -> str | None:
        name = find("register", statement.name, self._program.registers, statement.line)
        match statement.numbers:
            case ():
                for index in range(self._program.registers[name].size):
                    self._tell(statement.line, partial(self._plane.write_register, name, index, 0))
                return None
            case (index,):
                value = self._tell(statement.line, lambda: self._plane.read_register(name, index))
                return f"{name}[{index}] = {value}"
            case (index, value, *_):
                self._tell(statement.line, lambda: self._plane.write_register(name, index, value))
        return None

    def _meter(self, statement: Command) -> str | None:
        meters, line = self._program.meters, statement.line
        name = find("meter", statement.name, meters, line)
        if meters[name].table is not None:
            raise ScriptError(f"meter {name} is direct: scripts set the rates of arrays only", line)
        if statement.command == "meter_get_rates":
            (index,) = statement.numbers
            found = self._tell(line, lambda: self._plane.read_meter_rates(name, index))
            return f"{name}[{index}] = {_shown(found)}"
        rates = _rates(statement)
        for index in statement.numbers or range(meters[name].size):
            self._tell(line, partial(self._plane.set_meter_rates, name, index, rates))
        return None


def _rates(statement: Command) -> MeterRates:
    """Return the rates of a command per second; BMv2's are per microsecond. Raises ScriptError."""
    if len(statement.rates) != 2:
        wanted = "two, committed and peak"
        raise ScriptError(
            f"{statement.command} with {len(statement.rates)} rates; want {wanted}", statement.line
        )
    (committed, burst), (peak, peak_burst) = statement.rates
    if committed > peak:
        message = f"committed rate {committed:g} is above peak rate {peak:g}; want the smaller one first"
        raise ScriptError(message, statement.line)
    return MeterRates(round(committed * _MILLION), burst, round(peak * _MILLION), peak_burst)


def _shown(rates: MeterRates | None) -> str:
    if rates is None:
        return "no rates"
    return f"{rates.cir / _MILLION:g}:{rates.cburst} {rates.pir / _MILLION:g}:{rates.pburst}"
