"""Lets a `controller.SwitchSession` control a switch in the same process, without P4Runtime.

With P4Runtime, many simulations would take longer to set up than to run.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace

from controller.errors import NotPrimary, Refused, UpdateError
from controller.switches import names
from controller.switches.programs import ProgramBundle
from controller.switches.target import (
    CounterCell,
    Entry,
    Kind,
    Match,
    MulticastGroup,
    ProgramInfo,
    Range,
    RegisterCell,
    TableEntry,
    find,
)
from softswitch import PipelineError, Switch
from softswitch.compiler import ir
from softswitch.engine.pipeline import EntryExists, NoSuchEntry, Pipeline, TableFull

_CODES = {EntryExists: "ALREADY_EXISTS", NoSuchEntry: "NOT_FOUND", TableFull: "RESOURCE_EXHAUSTED"}


class PipelineTarget:
    """A `controller.switches.target.Target` for a switch in this process.

    `objects` come from the P4Info of its program; `slots` is the number of slots to offer (None: all);
    `sole`: no other controller writes to the switch.
    """

    def __init__(
        self,
        address: str,
        switch: Switch,
        pipeline: Pipeline,
        objects: ProgramInfo,
        *,
        slots: int | None = None,
        sole: bool = False,
    ) -> None:
        self.address = address
        self._switch = switch
        self._pipeline = pipeline
        if slots is not None:
            objects = replace(objects, registers={**objects.registers, names.SLOT_REGISTER: slots})
        self._objects = objects
        self._metadata: dict[tuple[str, tuple[ir.Pattern, ...]], bytes] = {}
        self._taken = False
        self.undisturbed = sole
        """True if only this controller has written to the switch since this controller's previous turn."""
        self._sole = sole

    @property
    def restarts(self) -> int:
        """Return 0: the switch never restarts."""
        return 0

    def close(self) -> None:
        """Do nothing: the testbed closes the switch."""

    def expect_silence(self) -> None:
        """Do nothing: the switch answers at once."""

    @contextmanager
    def turn(self, *, timeout_s: float) -> Iterator[None]:
        """Let no other controller write during the block.

        Raises NotPrimary at once if another controller has a turn: virtual time would not pass during a wait.
        """
        if self._taken:
            raise NotPrimary(f"another controller is the primary of the switch at {self.address}")
        self._taken = True
        try:
            yield
        finally:
            self._taken = False
            self.undisturbed = self._sole

    def program(self) -> ProgramInfo:
        """Return the tables, actions and counters of the program."""
        return self._objects

    def runs(self, bundle: ProgramBundle) -> bool:
        """Return False: the testbed loads the switch's program."""
        return False

    def load(self, bundle: ProgramBundle, replacing: Callable[[ProgramInfo, int], None]) -> bool:
        """Raise Refused: the program of the switch cannot be replaced."""
        raise Refused("loading the program", "UNIMPLEMENTED", f"{self.address} cannot replace its program")

    def write(self, kind: Kind, entries: Sequence[Entry]) -> None:
        """Insert, modify or delete entries, in their order. Raises Refused and UnknownName."""
        errors = []
        self.undisturbed &= self._taken
        with self._switch.locked():
            for position, entry in enumerate(entries):
                try:
                    self._write(kind, entry)
                except PipelineError as error:
                    code = _CODES.get(type(error), "INVALID_ARGUMENT")
                    errors.append(UpdateError(position, code, str(error)))
        if errors:
            raise Refused(f"{kind} of {len(entries)} entries", "UNKNOWN", errors[0].message, tuple(errors))

    def _write(self, kind: Kind, entry: Entry) -> None:
        pipeline, switch = self._pipeline, self._switch
        match entry:
            case TableEntry(default=True):
                pipeline.set_default(entry.table, self._invocation(entry))
            case TableEntry():
                keys = find("table", entry.table, pipeline.program.tables).keys
                patterns = tuple(_pattern(entry.match.get(key.name)) for key in keys)
                encoded = ir.ConstEntry(patterns, self._invocation(entry), entry.priority)
                getattr(pipeline, kind.lower())(entry.table, encoded)
                self._metadata[entry.table, patterns] = b"" if kind == "DELETE" else entry.metadata
            case MulticastGroup():
                if (entry.id in switch.multicast_groups()) == (kind == "INSERT"):
                    error = EntryExists if kind == "INSERT" else NoSuchEntry
                    raise error(f"{kind} of multicast group {entry.id}")
                switch.set_multicast_group(entry.id, None if kind == "DELETE" else entry.replicas)
            case CounterCell():
                pipeline.write_counter(entry.counter, entry.index, entry.packets, entry.bytes)
            case RegisterCell():
                pipeline.write_register(entry.register, entry.index, entry.value)

    def _invocation(self, row: TableEntry) -> ir.Invocation:
        params = find("action", row.action, self._pipeline.program.actions).params
        return ir.Invocation(row.action, tuple(row.params[param.name] for param in params))

    def read(self, tables: Iterable[str]) -> list[TableEntry | MulticastGroup]:
        """Read all entries of these tables, without default entries, and all multicast groups."""
        groups = [MulticastGroup(number, tuple(to)) for number, to in self._switch.multicast_groups().items()]
        return [*(row for table in tables for row in self._rows(table)), *groups]

    def _rows(self, table: str) -> Iterator[TableEntry]:
        program = self._pipeline.program
        keys = [key.name for key in program.tables[table].keys]
        for entry in self._pipeline.entries(table):
            action, arguments = entry.invocation.action, entry.invocation.args
            params = [param.name for param in program.actions[action].params]
            yield TableEntry(
                table,
                {
                    key: _match(pattern)
                    for key, pattern in zip(keys, entry.patterns, strict=True)
                    if pattern.kind != "any"
                },
                action,
                dict(zip(params, arguments, strict=True)),
                entry.priority,
                metadata=self._metadata.get((table, entry.patterns), b""),
            )

    def read_row(self, table: str, match: Mapping[str, Match]) -> TableEntry | None:
        """Read the entry of a table with this match; None if there is no such entry."""
        return next((row for row in self._rows(table) if row.match == match), None)

    def read_counter(self, counter: str, cells: Sequence[int]) -> list[int]:
        """Read the number of packets in each of these cells of a counter."""
        return [self._pipeline.read_counter(counter, cell)[0] for cell in cells]


def _pattern(value: Match | None) -> ir.Pattern:
    match value:
        case None:
            return ir.Pattern("any")
        case Range(low, high):
            return ir.Pattern("range", low, high)
        case int():
            return ir.Pattern("exact", value)
        case _:
            raise AssertionError("the controller's tables have only exact and range matches")


def _match(pattern: ir.Pattern) -> Match:
    return Range(pattern.value, pattern.mask) if pattern.kind == "range" else pattern.value
