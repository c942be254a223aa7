"""The interface of a loaded P4 program in Python, for all back ends alike; its meters, and a packet's steps.

Two classes derive from `Pipeline`: the compiled one (`softswitch.engine.compiled`) and the
interpreter (`softswitch.engine.interpreter`). The errors are::

    PipelineError
    ├── NoCompiler       the C back end is requested and there is no working ``cc``
    ├── NoCache          no folder is suitable for compiled programs
    ├── BuildFailed      the C compiler failed: the message states how
    ├── NoSuchObject     no table, counter or register of that name, or index out of range
    ├── BadEntry         an entry that does not fit its table: the message states why
    ├── EntryExists      insert of an existing match
    ├── NoSuchEntry      modify, delete or read of a missing match
    └── TableFull        insert beyond the table's size

Meters are two-rate three-colour markers (RFC 2698) that ignore earlier colours. Those of the interpreter
(`TokenMeter`) and ``runtime/meters.h`` give the same result for every packet, to the token.

The steps of a packet, for debugging programs:

========  ==============================  ======================================================
kind      name                            details
========  ==============================  ======================================================
ingress                                   port, bytes, instance_type
state     of the parser
extract   header                          its fields
error     of the parser
table     control-plane name              key, hit, action, arguments
action    called directly
read      register                        index, value (null: the index is beyond the end)
write     register                        index, old, value (old is null: beyond the end, lost)
drop      block
egress                                    port, bytes
========  ==============================  ======================================================
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from softswitch.compiler.errors import Position

if TYPE_CHECKING:
    from softswitch.compiler import ir

GREEN, YELLOW, RED = range(3)
_MILLION = 1_000_000
_NOTHING = ((0, 0), (0, 0), (0, 0))


@dataclass(frozen=True, slots=True)
class MeterRates:
    """Committed and peak rates, in packets or bytes per second, and the bursts that they allow."""

    cir: int
    cburst: int
    pir: int
    pburst: int


@dataclass(frozen=True, slots=True)
class MeterReading:
    """A meter's rates (None: all packets are green), and the (packets, bytes) seen so far of each colour."""

    rates: MeterRates | None = None
    seen: tuple[tuple[int, int], ...] = _NOTHING


@dataclass(slots=True)
class _Bucket:
    rate: int = 0
    burst: int = 0
    tokens: int = 0
    millionths: int = 0

    def refill(self, elapsed_us: int) -> None:
        more, millionths = divmod(self.rate * elapsed_us + self.millionths, _MILLION)
        full = self.tokens + more >= self.burst
        self.tokens = self.burst if full else self.tokens + more
        self.millionths = 0 if full else millionths


@dataclass(slots=True)
class TokenMeter:
    """One meter of the interpreter."""

    rates: MeterRates | None = None
    seen: list[tuple[int, int]] = field(default_factory=lambda: list(_NOTHING))
    _last_us: int = 0
    _committed: _Bucket = field(default_factory=_Bucket)
    _peak: _Bucket = field(default_factory=_Bucket)

    def configure(self, rates: MeterRates | None) -> None:
        """Set the rates and fill the buckets; with `rates` None, mark all packets green."""
        self.rates = rates
        if rates is not None:
            self._committed = _Bucket(rates.cir, rates.cburst, rates.cburst)
            self._peak = _Bucket(rates.pir, rates.pburst, rates.pburst)

    def read(self) -> MeterReading:
        """Return the meter's rates and counts."""
        return MeterReading(self.rates, tuple(self.seen))

    def colour(self, now_us: int, cost: int, length: int) -> int:
        """Return the colour of a packet of `length` bytes that takes `cost` tokens; count the packet."""
        colour = GREEN if self.rates is None else self._take(now_us, cost)
        packets, bytes_ = self.seen[colour]
        self.seen[colour] = (packets + 1, bytes_ + length)
        return colour

    def _take(self, now_us: int, cost: int) -> int:
        if now_us > self._last_us:
            self._committed.refill(now_us - self._last_us)
            self._peak.refill(now_us - self._last_us)
            self._last_us = now_us
        if self._peak.tokens < cost:
            return RED
        self._peak.tokens -= cost
        if self._committed.tokens < cost:
            return YELLOW
        self._committed.tokens -= cost
        return GREEN


@dataclass(frozen=True, slots=True)
class Event:
    """One step of a packet. The module's docstring lists the kinds. `pos` is the source position, if any."""

    kind: str
    name: str = ""
    details: Mapping[str, object] = field(default_factory=dict)
    pos: Position | None = None

    def as_json(self) -> dict[str, object]:
        """Return the step as an object for JSON; values of any width are numbers."""
        place = {} if self.pos is None else {"file": self.pos.file, "line": self.pos.line}
        return {"kind": self.kind, "name": self.name, **self.details, **place}

    def __str__(self) -> str:
        place = "" if self.pos is None else f"  ({self.pos.file}:{self.pos.line})"
        return f"{self.kind:8}{self.name}{_text(self.kind, self.details)}{place}"


Trace = Callable[[Event], None]


def _text(kind: str, details: Mapping[str, object]) -> str:
    match kind:
        case "table":
            how = "hit" if details["hit"] else "miss"
            arguments = _pairs(details["arguments"]).strip()
            return f" {how} {_pairs(details['key'])}-> {details['action']}({arguments})"
        case "read":
            return f"[{details['index']}] = {_value(details['value'])}"
        case "write":
            return f"[{details['index']}]: {_value(details['old'])} -> {_value(details['value'])}"
        case "ingress" | "egress":
            return " ".join(f"{name} {value}" for name, value in details.items())
        case _:
            return f" {_pairs(details)}".rstrip()


def _pairs(values: object) -> str:
    assert isinstance(values, Mapping)
    return "".join(f"{name}={_value(value)} " for name, value in values.items())


def _value(value: object) -> str:
    return "beyond the end" if value is None else f"{value:#x}" if type(value) is int else str(value)


DROP_PORT = 511
"""``egress_spec`` after ``mark_to_drop``."""

NORMAL, INGRESS_CLONE, EGRESS_CLONE, RECIRCULATED, REPLICATED, RESUBMITTED = 0, 1, 2, 4, 5, 6
"""``instance_type``, as BMv2 numbers it (``runtime/pipeline.h``)."""

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


class Verdict(ctypes.Structure):
    """The C struct ``p4_verdict``: a block's requests to the traffic manager; -1: no field list."""

    _fields_ = (
        ("egress_spec", ctypes.c_uint16),
        ("mcast_grp", ctypes.c_uint16),
        ("clone_session", ctypes.c_uint16),
        ("clone", ctypes.c_uint8),
        ("dropped", ctypes.c_uint8),
        ("resubmit", ctypes.c_uint8),
        ("recirculate", ctypes.c_uint8),
        ("priority", ctypes.c_uint8),
        ("unicast", ctypes.c_uint8),
        *((name, ctypes.c_uint16) for name in ("mcast_grp_2", "rid", "exclude_1", "exclude_2")),
        ("clone_fields", ctypes.c_int32),
        ("resubmit_fields", ctypes.c_int32),
        ("recirculate_fields", ctypes.c_int32),
    )

    def __init__(self, **requests: int) -> None:
        super().__init__(**{"clone_fields": -1, "resubmit_fields": -1, "recirculate_fields": -1} | requests)


class Copy(ctypes.Structure):
    """The C struct ``p4_copy``: the traffic manager's metadata of a copy for egress."""

    _fields_ = (
        ("egress_port", ctypes.c_uint16),
        ("egress_rid", ctypes.c_uint16),
        ("instance_type", ctypes.c_uint32),
        ("enq_timestamp", ctypes.c_uint32),
        ("enq_qdepth", ctypes.c_uint32),
        ("deq_timedelta", ctypes.c_uint32),
        ("deq_qdepth", ctypes.c_uint32),
        ("now_us", ctypes.c_uint64),
    )


T = TypeVar("T")


def look_up(objects: Mapping[str, T], kind: str, name: str) -> T:
    """Return an object of a program by its name. Raises NoSuchObject."""
    if name not in objects:
        raise NoSuchObject(f"no {kind} {name}; there are {', '.join(objects) or 'none'}")
    return objects[name]


def check_index(name: str, index: int, size: int) -> None:
    """Raise NoSuchObject if the array `name` of `size` cells has no cell `index`."""
    if not 0 <= index < size:
        raise NoSuchObject(f"{name} has {size} cells, so no index {index}")


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

    A subclass has a `softswitch.engine.entries.TableEntries` for each table. Counters are lists of packets
    and bytes; meters have the methods ``read`` and ``configure`` of `TokenMeter`.
    """

    program: ir.Program
    _tables: Mapping[str, Any]

    # control plane -----------------------------------------------------------------

    def insert(self, table: str, entry: ir.ConstEntry) -> None:
        """Add an entry. Raises EntryExists, TableFull or BadEntry, and then changes nothing."""
        self._table(table).insert(entry)

    def modify(self, table: str, entry: ir.ConstEntry) -> None:
        """Replace the action of the entry with the match of `entry`. Raises NoSuchEntry or BadEntry."""
        self._table(table).modify(entry)

    def delete(self, table: str, entry: ir.ConstEntry) -> None:
        """Remove the entry with the match and priority of `entry`. Raises NoSuchEntry or BadEntry."""
        self._table(table).delete(entry)

    def entries(self, table: str) -> list[ir.ConstEntry]:
        """Return all entries of a table: first the constant ones, then the others in order of insertion."""
        found: list[ir.ConstEntry] = self._table(table).entries()
        return found

    def find(self, table: str, entry: ir.ConstEntry) -> ir.ConstEntry:
        """Return the stored entry with the match and priority of `entry`. Raises NoSuchEntry or BadEntry."""
        found: ir.ConstEntry = self._table(table).find(entry)
        return found

    def set_default(self, table: str, invocation: ir.Invocation | None) -> None:
        """Set the default action; None restores the program's default. Raises BadEntry."""
        self._table(table).set_default(invocation)

    def default(self, table: str) -> ir.Invocation:
        """Return the present default action, which runs on a miss."""
        found: ir.Invocation = self._table(table).default
        return found

    def read_counter(self, name: str, index: int) -> tuple[int, int]:
        """Return (packets, bytes) of cell `index` of an indirect counter."""
        cell = self._counter(name, index)
        return cell[0], cell[1]

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
        cell = self._counter(name, index)
        cell[0], cell[1] = packets, bytes_

    def read_direct_counter(self, table: str, entry: ir.ConstEntry | None) -> tuple[int, int]:
        """Return (packets, bytes) of the hits on `entry` or, for None, of the misses. Raises NoSuchEntry."""
        cell = self._table(table).part("direct counter", entry)
        return cell[0], cell[1]

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
        cell = self._table(table).part("direct counter", entry)
        cell[0], cell[1] = packets, bytes_

    def read_meter(self, name: str, index: int) -> MeterReading:
        """Return the rates and counts of one meter of an array."""
        reading: MeterReading = self._meter(name, index).read()
        return reading

    def configure_meter(self, name: str, index: int, rates: MeterRates | None) -> None:
        """Set the rates of meter `index` of an array; with `rates` None, it marks all packets green."""
        self._meter(name, index).configure(rates)

    def read_direct_meter(self, table: str, entry: ir.ConstEntry | None) -> MeterReading:
        """Return the meter reading of `entry` or, for None, of the default action. Raises NoSuchEntry."""
        reading: MeterReading = self._table(table).part("direct meter", entry).read()
        return reading

    def configure_direct_meter(
        self, table: str, entry: ir.ConstEntry | None, rates: MeterRates | None
    ) -> None:
        """Set the rates of the meter of `entry` or, for None, of the default action. Raises NoSuchEntry."""
        self._table(table).part("direct meter", entry).configure(rates)

    def read_last_hit(self, table: str, entry: ir.ConstEntry) -> int:
        """Return the time of the entry's last hit in microseconds. The table must have idle timeouts."""
        return int(self._table(table).part("idle timeout", entry)[0])

    def write_last_hit(self, table: str, entry: ir.ConstEntry, now_us: int) -> None:
        """Record `now_us` as the time of the entry's last hit, from which its idle time counts."""
        self._table(table).part("idle timeout", entry)[0] = now_us

    def take_digests(self) -> list[tuple[str, tuple[int, ...]]]:
        """Remove and return the waiting digests as (name, values), in the order of the program's calls."""

    def read_register(self, name: str, index: int) -> int:
        """Return one cell of a register."""

    def write_register(self, name: str, index: int, value: int) -> None:
        """Set one cell of a register."""

    def _table(self, name: str) -> Any:
        return look_up(self._tables, "table", name)

    def _counter(self, name: str, index: int) -> Any:
        """Return cell `index` of an indirect counter. Raises NoSuchObject."""

    def _meter(self, name: str, index: int) -> Any:
        """Return meter `index` of an array. Raises NoSuchObject."""

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

    def clone_packet(self, packet: Packet, frame: bytes, instance_type: int, field_list: int = -1) -> Packet:
        """Return a clone of `packet`, with only the metadata that is in the field list.

        Args:
            packet: The packet after ingress or egress.
            frame: What ingress got, or what egress wrote.
            instance_type: INGRESS_CLONE: `frame` is parsed anew. EGRESS_CLONE: headers and payload are as
                egress left them (BMv2's simple_switch.md, after-egress); on Tofino, `frame` is mirrored.
            field_list: Number of the field list; -1: none.
        """
