"""Entries as plain values, by name: as written to a switch and read from it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Lpm:
    """The first `prefix_len` bits of `value`."""

    value: int
    prefix_len: int


@dataclass(frozen=True, slots=True)
class Ternary:
    """The bits of `value` where `mask` has ones."""

    value: int
    mask: int


@dataclass(frozen=True, slots=True)
class Range:
    """`low` to `high`, both included."""

    low: int
    high: int


Match = int | Lpm | Ternary | Range
"""Match of one field; a number is an exact (or optional) match."""


@dataclass(frozen=True, slots=True)
class TableEntry:
    """A table entry. Fields left out of `match` match anything; `default` makes it the miss entry.

    The switch stores `metadata` with it for controllers.
    """

    table: str
    match: Mapping[str, Match]
    action: str
    params: Mapping[str, int] = field(default_factory=dict)
    priority: int = 0
    default: bool = False
    metadata: bytes = b""


@dataclass(frozen=True, slots=True)
class MulticastGroup:
    """A multicast group: pairs of port and replication id."""

    id: int
    replicas: tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True)
class CounterCell:
    """One cell of an indirect counter."""

    counter: str
    index: int
    packets: int = 0
    bytes: int = 0


@dataclass(frozen=True, slots=True)
class RegisterCell:
    """One cell of a register of numbers."""

    register: str
    index: int
    value: int = 0


Entry = TableEntry | MulticastGroup | CounterCell | RegisterCell
