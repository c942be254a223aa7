"""The control plane of scripts, for any kind of switch; and that of the embedded switch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from softswitch.compiler import ir
from softswitch.engine.meters import MeterRates
from softswitch.engine.native import Members
from softswitch.engine.pipeline import Pipeline
from softswitch.engine.switch import Switch


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
