"""The interface of a loaded P4 program in Python, the same for all back ends.

Two classes implement `Pipeline`: the compiled one (`softswitch.engine.compiled`) and the
interpreter (`softswitch.engine.interpreter`). Everything here is plain data and errors::

    PipelineError
    ├── NoCompiler       the C back end is requested and there is no working ``cc``
    ├── NoCache          no folder is suitable for compiled programs
    ├── BuildFailed      the C compiler failed: the message states how
    ├── NoSuchObject     no table, counter or register of that name, or index out of range
    ├── BadEntry         an entry that does not fit its table: the message states why
    ├── EntryExists      insert of an existing match
    ├── NoSuchEntry      modify, delete or read of a missing match
    └── TableFull        insert beyond the table's size
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from softswitch.engine.meters import MeterRates, MeterReading

if TYPE_CHECKING:
    from softswitch.compiler import ir

DROP_PORT = 511
"""``egress_spec`` after ``mark_to_drop``."""

MAX_FRAME = 9216
"""Maximum length in bytes of a frame that enters or leaves."""


class PipelineError(Exception):
    """Base of all errors that a pipeline raises."""

    exit_code = 1


class NoCompiler(PipelineError):
    """There is no working C compiler on this machine."""


class NoCache(PipelineError):
    """No folder is suitable for compiled programs; the message lists the folders tried."""


class BuildFailed(PipelineError):
    """The C compiler did not compile the generated program; the message holds its output."""


class NoSuchObject(PipelineError):
    """No table, counter or register has that name, or the index is beyond its size."""


class BadEntry(PipelineError):
    """An entry does not fit its table."""


class EntryExists(PipelineError):
    """The table already has an entry with the match of the inserted entry."""


class NoSuchEntry(PipelineError):
    """The table holds no entry with that match."""


class TableFull(PipelineError):
    """The table holds as many entries as its size allows."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """A block's requests to the traffic manager; the fields of ``struct p4_verdict``."""

    egress_spec: int = 0
    mcast_grp: int = 0
    clone_session: int = 0
    clone: int = 0
    dropped: int = 0
    resubmit: int = 0
    recirculate: int = 0
    priority: int = 0
    unicast: int = 0
    mcast_grp_2: int = 0
    rid: int = 0
    exclude_1: int = 0
    exclude_2: int = 0
    clone_fields: int = -1
    resubmit_fields: int = -1
    recirculate_fields: int = -1


@dataclass(frozen=True, slots=True)
class Copy:
    """The traffic manager's metadata of a copy for egress; the fields of ``struct p4_copy``."""

    egress_port: int = 0
    egress_rid: int = 0
    instance_type: int = 0
    enq_timestamp: int = 0
    enq_qdepth: int = 0
    deq_timedelta: int = 0
    deq_qdepth: int = 0
    now_us: int = 0


Packet = Any
"""One packet between parser and deparser: opaque, valid only with the pipeline that made it."""


class Pipeline(Protocol):
    """A loaded program: its tables, registers and counters, and the two blocks that packets pass.

    Table entries are `ir.ConstEntry`. The patterns for the match kinds of keys are:

    * ``exact`` and ``optional``: ``Pattern("exact", value)``
    * ``lpm`` and ``ternary``: ``Pattern("mask", value, mask)``
    * ``range``: ``Pattern("range", low, high)``
    * all kinds except ``exact``: ``Pattern("any")``

    If several entries of a table with a ternary, range or optional key match, the one with the highest
    priority wins or, if priorities are equal, the one that was inserted first. In a table with an lpm key,
    the longest prefix wins. Validate and order entries with `softswitch.engine.entries`.

    A pipeline has no lock: calls must not overlap.
    """

    program: ir.Program

    # control plane -----------------------------------------------------------------

    def insert(self, table: str, entry: ir.ConstEntry) -> None:
        """Add an entry. Raises EntryExists, TableFull or BadEntry, and then changes nothing."""

    def modify(self, table: str, entry: ir.ConstEntry) -> None:
        """Replace the action of the entry with the match of `entry`. Raises NoSuchEntry or BadEntry."""

    def delete(self, table: str, entry: ir.ConstEntry) -> None:
        """Remove the entry with the match and priority of `entry`. Raises NoSuchEntry or BadEntry."""

    def entries(self, table: str) -> list[ir.ConstEntry]:
        """Return all entries of a table: first the constant ones, then the others in order of insertion."""

    def find(self, table: str, entry: ir.ConstEntry) -> ir.ConstEntry:
        """Return the stored entry with the match and priority of `entry`. Raises NoSuchEntry or BadEntry."""

    def set_default(self, table: str, invocation: ir.Invocation | None) -> None:
        """Set the default action; None restores the program's default. Raises BadEntry."""

    def default(self, table: str) -> ir.Invocation:
        """Return the present default action, which runs on a miss."""

    def read_counter(self, name: str, index: int) -> tuple[int, int]:
        """Return (packets, bytes) of cell `index` of an indirect counter."""

    def read_counters(self, name: str) -> list[tuple[int, int]]:
        """Return (packets, bytes) of every cell of an indirect counter."""

    def write_counter(self, name: str, index: int, packets: int, bytes_: int) -> None:
        """Set one cell of an indirect counter.

        Args:
            name: Name of the counter.
            index: Number of the cell.
            packets: The cell's new number of packets.
            bytes_: The cell's new number of bytes.
        """

    def read_direct_counter(self, table: str, entry: ir.ConstEntry | None) -> tuple[int, int]:
        """Return (packets, bytes) of the hits on `entry` or, for None, of the misses. Raises NoSuchEntry."""

    def write_direct_counter(
        self, table: str, entry: ir.ConstEntry | None, packets: int, bytes_: int
    ) -> None:
        """Set a direct counter.

        Args:
            table: Name of the table.
            entry: The entry that has the counter; None: the default action.
            packets: The counter's new number of packets.
            bytes_: The counter's new number of bytes.

        Raises NoSuchEntry.
        """

    def read_meter(self, name: str, index: int) -> MeterReading:
        """Return the rates and counts of one meter of an array."""

    def configure_meter(self, name: str, index: int, rates: MeterRates | None) -> None:
        """Set the rates of meter `index` of an array; with `rates` None, it marks all packets green."""

    def read_direct_meter(self, table: str, entry: ir.ConstEntry | None) -> MeterReading:
        """Return the meter reading of `entry` or, for None, of the default action. Raises NoSuchEntry."""

    def configure_direct_meter(
        self, table: str, entry: ir.ConstEntry | None, rates: MeterRates | None
    ) -> None:
        """Set the rates of the meter of `entry` or, for None, of the default action. Raises NoSuchEntry."""

    def read_last_hit(self, table: str, entry: ir.ConstEntry) -> int:
        """Return the time of the entry's last hit in microseconds. The table must have idle timeouts."""

    def write_last_hit(self, table: str, entry: ir.ConstEntry, now_us: int) -> None:
        """Record `now_us` as the time of the entry's last hit, from which its idle time counts."""

    def take_digests(self) -> list[tuple[str, tuple[int, ...]]]:
        """Remove and return the waiting digests as (name, values), in the order of the program's calls."""

    def read_register(self, name: str, index: int) -> int:
        """Return one cell of a register."""

    def write_register(self, name: str, index: int, value: int) -> None:
        """Set one cell of a register."""

    # data plane --------------------------------------------------------------------

    def ingress(
        self,
        frame: bytes,
        port: int,
        now_us: int = 0,
        instance_type: int = 0,
        previous: Packet = None,
        field_list: int = -1,
    ) -> tuple[Packet, Verdict]:
        """Parse a frame, verify checksums, run ingress.

        Args:
            frame: The frame.
            port: The ingress port.
            now_us: The time in microseconds.
            instance_type: v1model's instance type.
            previous: The packet that was cloned or resubmitted, whose metadata in `field_list` is kept;
                None: a new packet.
            field_list: Number of the field list whose metadata is kept from `previous`; -1: none.

        Returns:
            The packet, and its verdict.
        """

    def egress(self, packet: Packet, copy: Copy) -> tuple[bytes | None, Verdict]:
        """Run egress, update checksums, deparse; return the frame, cut to MAX_FRAME; None if dropped."""

    def metadata(self, packet: Packet, names: Sequence[str]) -> dict[str, int]:
        """Return the present values of the given metadata fields (``a.b``) that the program has."""

    def copy_packet(self, packet: Packet) -> Packet:
        """Return an independent copy of a packet, for replication."""

    def clone_packet(self, packet: Packet, frame: bytes, field_list: int = -1) -> Packet:
        """Return a clone of `packet`: parse `frame` anew, keep only the metadata in the field list."""
