"""One way to configure and observe both switches, the reference and the embedded one.

Table entries are those of `softswitch.engine.pipeline.Pipeline`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import Protocol

from softswitch.compiler import ir
from softswitch.engine.pipeline import Pipeline
from softswitch.engine.switch import Switch
from tests.bmv2.reference import Arrival, Reference

Members = Sequence[tuple[int, int]]
"""Copies to make, as (port, replication id)."""

Groups = Mapping[int, Members]

MIRROR_GROUPS = 0x8000
"""Where the reference keeps the members of clone sessions: multicast groups from here on."""

HIGHEST_PRIORITY = 1 << 20

NEVER = (1 << 19) - 1
"""A queue depth that no queue here reaches."""


@dataclass(frozen=True, slots=True)
class Write:
    """One change of a table."""

    table: str
    entry: ir.ConstEntry


class Insert(Write):
    """Add the entry."""


class Modify(Write):
    """Give the entry with this match this action."""


class Delete(Write):
    """Remove the entry with this match."""


@dataclass(frozen=True, slots=True)
class Phase:
    """What happens to the tables and groups, and then the packets.

    `mark_from` is the queue depth from which on packets are marked: never or always, for how long a queue of
    the reference gets depends on how fast its threads are.
    """

    writes: Sequence[Write]
    groups: Groups
    packets: Sequence[Arrival]
    mark_from: int = NEVER


@dataclass(frozen=True, slots=True)
class State:
    """Everything that a program keeps between packets, by name; `direct` counts in order of `entries`."""

    registers: dict[str, list[int]]
    counters: dict[str, list[tuple[int, int]]]
    direct: dict[str, list[tuple[int, int]]]


class Target(Protocol):
    """A switch under test."""

    def write(self, write: Write) -> None:
        """Change a table."""

    def set_default(self, table: str, invocation: ir.Invocation) -> None:
        """Set what a miss runs."""

    def add_group(self, group: int, members: Members) -> None:
        """Define a multicast group."""

    def write_register(self, name: str, index: int, value: int) -> None:
        """Set one cell."""

    def add_session(self, session: int, members: Members) -> None:
        """Define a clone session."""

    def registers(self) -> dict[str, list[int]]:
        """Read all registers, by name."""

    def state(self, entries: Mapping[str, Sequence[ir.ConstEntry]]) -> State:
        """Read all registers and counters; `entries` are those with direct counters, by table."""


# --------------------------------------------------------------------------- the embedded switch


class Embedded:
    """Our switch around a loaded program, in virtual time: every packet is through before the next."""

    def __init__(self, pipeline: Pipeline, switch: Switch) -> None:
        self._pipeline = pipeline
        self._switch = switch
        self._now_us = 0
        switch.load(pipeline)

    def write(self, write: Write) -> None:
        """Change a table."""
        match write:
            case Insert():
                self._pipeline.insert(write.table, write.entry)
            case Modify():
                self._pipeline.modify(write.table, write.entry)
            case Delete():
                self._pipeline.delete(write.table, write.entry)

    def set_default(self, table: str, invocation: ir.Invocation) -> None:
        """Set what a miss runs."""
        self._pipeline.set_default(table, invocation)

    def write_register(self, name: str, index: int, value: int) -> None:
        """Set one cell."""
        self._pipeline.write_register(name, index, value)

    def add_group(self, group: int, members: Members) -> None:
        """Define a multicast group."""
        self._switch.set_multicast_group(group, members)

    def add_session(self, session: int, members: Members) -> None:
        """Define a clone session."""
        self._switch.set_clone_session(session, members)

    def send(self, packets: Iterable[Arrival]) -> None:
        """Feed packets."""
        for port, frame in packets:
            self._now_us += 1000
            self._switch.inject(port, [frame], self._now_us)
            self._switch.advance(self._now_us)

    def sent(self) -> dict[int, list[bytes]]:
        """Take the frames that came out, in order, by port; only ports that had any."""
        frames = {port: self._switch.drain(port) for port in self._switch.ports}
        return {port: out for port, out in frames.items() if out}

    def state(self, entries: Mapping[str, Sequence[ir.ConstEntry]]) -> State:
        """Read all registers and counters."""
        program, pipeline = self._pipeline.program, self._pipeline
        return State(
            self.registers(),
            {name: pipeline.read_counters(name) for name, c in program.counters.items() if c.table is None},
            {
                table: [pipeline.read_direct_counter(table, entry) for entry in of_table]
                for table, of_table in entries.items()
            },
        )

    def registers(self) -> dict[str, list[int]]:
        """Read all registers."""
        return {
            name: [self._pipeline.read_register(name, i) for i in range(register.size)]
            for name, register in self._pipeline.program.registers.items()
        }


# --------------------------------------------------------------------------- the reference


class Commands:
    """The same for the reference, in the language of simple_switch_CLI. `program` tells the types of keys."""

    def __init__(self, reference: Reference, program: ir.Program) -> None:
        self._reference = reference
        self._program = program
        self._handles: dict[tuple[str, tuple[ir.Pattern, ...], int], int] = {}

    def write(self, write: Write) -> None:
        """Change a table."""
        table, entry = write.table, write.entry
        key = (table, entry.patterns, entry.priority)
        action, args = entry.invocation.action, _words(entry.invocation.args)
        match write:
            case Insert():
                matches = self._matches(table, entry)
                priority = HIGHEST_PRIORITY - entry.priority if self._has_priorities(table) else ""
                answer = self._reference.run(f"table_add {table} {action} {matches} => {args} {priority}")
                found = re.search(r"added with handle (\d+)", answer)
                assert found, answer
                self._handles[key] = int(found[1])
            case Modify():
                self._reference.run(f"table_modify {table} {action} {self._handles[key]} {args}")
            case Delete():
                self._reference.run(f"table_delete {table} {self._handles.pop(key)}")

    def set_default(self, table: str, invocation: ir.Invocation) -> None:
        """Set what a miss runs."""
        self._reference.run(f"table_set_default {table} {invocation.action} {_words(invocation.args)}")

    def write_register(self, name: str, index: int, value: int) -> None:
        """Set one cell."""
        self._reference.run(f"register_write {name} {index} {value}")

    def add_group(self, group: int, members: Members) -> None:
        """Define a multicast group."""
        self._reference.run(f"mc_mgrp_create {group}")
        for port, rid in members:
            answer = self._reference.run(f"mc_node_create {rid} {port}")
            found = re.search(r"handle (\d+)", answer)
            assert found, answer
            self._reference.run(f"mc_node_associate {group} {found[1]}")

    def add_session(self, session: int, members: Members) -> None:
        """Define a clone session."""
        group = MIRROR_GROUPS + session
        self.add_group(group, members)
        self._reference.run(f"mirroring_add_mc {session} {group}")

    def state(self, entries: Mapping[str, Sequence[ir.ConstEntry]]) -> State:
        """Read all registers and counters."""
        program = self._program
        return State(
            self.registers(),
            {
                name: [self._count(name, index) for index in range(counter.size)]
                for name, counter in program.counters.items()
                if counter.table is None
            },
            {table: [self._hits(table, entry) for entry in of_table] for table, of_table in entries.items()},
        )

    def registers(self) -> dict[str, list[int]]:
        """Read all registers."""
        registers = {}
        for name in self._program.registers:
            values = self._reference.run(f"register_read {name}").partition("=")[2]
            registers[name] = [int(value) for value in values.split(",")]
        return registers

    def _hits(self, table: str, entry: ir.ConstEntry) -> tuple[int, int]:
        counter = self._program.tables[table].direct_counter
        assert counter is not None, f"{table} has no direct counter"
        return self._count(counter, self._handles[table, entry.patterns, entry.priority])

    def _count(self, name: str, index: int) -> tuple[int, int]:
        answer = self._reference.run(f"counter_read {name} {index}")
        found = re.search(r"\((\d+) bytes, (\d+) packets\)", answer)
        assert found, answer
        return int(found[2]), int(found[1])

    def _has_priorities(self, table: str) -> bool:
        return any(key.match in ("ternary", "range", "optional") for key in self._program.tables[table].keys)

    def _matches(self, table: str, entry: ir.ConstEntry) -> str:
        keys = self._program.tables[table].keys
        return " ".join(_match(key, pattern) for key, pattern in zip(keys, entry.patterns, strict=True))


def _words(values: Iterable[int]) -> str:
    return " ".join(str(value) for value in values)


def _match(key: ir.Key, pattern: ir.Pattern) -> str:
    width = key.expr.type.width if isinstance(key.expr.type, ir.Bits) else 1
    ones = (1 << width) - 1
    value, mask = (pattern.value, pattern.mask) if pattern.kind == "mask" else (pattern.value, ones)
    if pattern.kind == "any":
        value, mask = 0, 0
    match key.match:
        case "exact":
            return str(pattern.value)
        case "lpm":
            return f"{value}/{mask.bit_count()}"
        case "range":
            low, high = (pattern.value, pattern.mask) if pattern.kind == "range" else (0, ones)
            return f"{low}->{high}"
        case _:
            return f"{value}&&&{mask}"


def first_difference(reference: Mapping[int, list[bytes]], embedded: Mapping[int, list[bytes]]) -> str:
    """Describe the first frame in which two outputs differ, or return an empty string."""
    for port in sorted(reference.keys() | embedded.keys()):
        pairs = zip_longest(reference.get(port, []), embedded.get(port, []), fillvalue=b"")
        for index, (expected, got) in enumerate(pairs):
            if expected != got:
                return f"frame {index} of port {port}: reference {expected.hex()}, embedded {got.hex()}"
    return ""


def state_differences(reference: State, embedded: State) -> list[str]:
    """Describe every register and counter cell in which two switches differ."""
    differences = []
    for kind in ("registers", "counters", "direct"):
        expected, got = getattr(reference, kind), getattr(embedded, kind)
        assert expected.keys() == got.keys(), f"{kind}: {expected.keys()} and {got.keys()}"
        for name in expected:
            cells = enumerate(zip(expected[name], got[name], strict=True))
            differences += [f"{name}[{i}]: reference {a}, embedded {b}" for i, (a, b) in cells if a != b]
    return differences
