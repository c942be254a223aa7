"""One switch program on the bench: packets as records, jobs by a line each, slots as dictionaries."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields, replace
from functools import cache
from typing import Any, Literal

import pytest

from softswitch.compiler import ir
from softswitch.engine.build import load
from softswitch.engine.pipeline import Pipeline
from tests.programs import p4src_program
from tests.softswitch.differential.script import parse_entry
from tests.softswitch.differential.stimuli import internet_checksum
from tests.softswitch.differential.traffic import Bench

LANES = 32
SLOTS = 64
UDP_PORT = 42592
SWITCH = bytes.fromhex("02000000aa00"), bytes((10, 0, 0, 254))
ALL, BUT = 0xFFFF, 0x8000
"""Targets: every rank; with a rank, all but this one."""
ALL_RANKS = range(0x8000)

GRADIENT, RESULT, STATUS, PARTIAL, REMINDER = range(1, 6)
RESEND, QUERY, OVERFLOW, DISAGREE, COLLISION, ECN, BYPASS, RAW = (1 << bit for bit in range(8))
FINAL, FULL, BARE = 0x01, 0x02, 0x40
"""Flags that only slots have. Bare: the lanes hold nothing of the sum."""

OUTCOMES = (
    *("aggregated", "completed", "replayed", "duplicate", "status", "stale"),
    *("truncated", "bad_checksum", "bad_version", "bad_kind", "bad_lanes", "bad_length"),
    *("unknown_job", "wrong_port", "wrong_rank", "wrong_fan_in", "overflow", "disagree"),
    *("collided", "bypassed", "preempted", "reclaimed", "evicted", "flushed", "pulled"),
    *("relayed", "stored", "passed_up", "passed_down", "wrong_epoch", "wrong_direction", "no_uplink"),
)

Backend = Literal["compiled", "interpreter"]

PACKET = tuple(range(1, LANES + 1))
"""Lanes of a packet unless it has others."""
SLOT = tuple(1000 * lane for lane in range(LANES))
"""Lanes of a slot unless it has others."""
SUM = tuple(a + b for a, b in zip(PACKET, SLOT, strict=True))
NONE: tuple[int, ...] = ()


@dataclass(frozen=True)
class Packet:
    """An INA packet; `values` is empty where it has no lanes."""

    kind: int = GRADIENT
    flags: int = 0
    job: int = 1
    psn: int = 100
    bitmap: int = 1
    fan_in: int = 4
    priority: int = 0
    exponent: int = 120
    epoch: int = 1
    valid: int = LANES
    tag: int = 7
    node: int = 0
    target: int = ALL
    values: tuple[int, ...] = PACKET
    version: int = 2
    lanes: int | None = None
    """Their number as the header says it, if that is not right."""

    @property
    def header(self) -> bytes:
        lanes = len(self.values) if self.lanes is None else self.lanes
        return struct.pack(
            ">BBHIIBBBBHHIHH",
            self.version << 4 | self.kind,
            *(self.flags, self.job, self.psn, self.bitmap, self.fan_in, self.priority),
            *(self.exponent, self.epoch, self.valid, lanes, self.tag, self.node, self.target),
        )

    def frame(self, sender: int = 1, ecn: int = 0) -> bytes:
        """Return the frame that worker `sender` sends to the switch."""
        body = self.header + struct.pack(f">{len(self.values)}i", *self.values)
        return frame_of(body, source=worker(sender), destination=(*SWITCH, UDP_PORT), ttl=9, ecn=ecn)


@dataclass(frozen=True)
class Left:
    """A packet that left the switch."""

    port: int
    packet: Packet
    source: tuple[bytes, bytes, int]
    destination: tuple[bytes, bytes, int]
    ecn: int


def worker(number: int) -> tuple[bytes, bytes, int]:
    """Return MAC, IP and UDP port of a worker, switch or server."""
    return bytes((2, 0, 0, 0, 1, number)), bytes((10, 0, 0, number)), 5000 + number


def frame_of(
    body: bytes,
    *,
    source: tuple[bytes, bytes, int],
    destination: tuple[bytes, bytes, int],
    ttl: int,
    ecn: int = 0,
) -> bytes:
    """Return a UDP frame with the right lengths and checksum."""
    head = struct.pack(">BBHHHBBH", 0x45, ecn, 28 + len(body), 0, 0, ttl, 17, 0)
    head += source[1] + destination[1]
    head = head[:10] + internet_checksum(head).to_bytes(2, "big") + head[12:]
    udp = struct.pack(">HHHH", source[2], destination[2], 8 + len(body), 0xBEEF)
    return destination[0] + source[0] + b"\x08\x00" + head + udp + body


def parse(port: int, frame: bytes) -> Left:
    """Take a frame apart; raises AssertionError where its lengths, checksum or TTL are wrong."""
    ethernet, ip, udp = frame[:14], frame[14:34], frame[34:42]
    length, ttl = struct.unpack(">xxH4xB", ip[:9])
    udp_length, udp_checksum = struct.unpack(">4xHH", udp)
    assert (ethernet[12:], ip[0], length, ttl, ip[9]) == (b"\x08\x00", 0x45, len(frame) - 14, 64, 17)
    assert internet_checksum(ip) == 0
    assert (udp_length, udp_checksum) == (len(frame) - 34, 0)
    return parse_loosely(port, frame)


def parse_loosely(port: int, frame: bytes) -> Left:
    """Take a frame apart without a look at what only the network checks."""
    ethernet, ip, udp, ina, rest = frame[:14], frame[14:34], frame[34:42], frame[42:70], frame[70:]
    source_port, destination_port = struct.unpack(">HH", udp[:4])
    first, *middle, epoch, valid, lanes, tag, node, target = struct.unpack(">BBHIIBBBBHHIHH", ina)
    assert len(rest) == 4 * lanes
    names = ("flags", "job", "psn", "bitmap", "fan_in", "priority", "exponent")
    packet = changed(
        Packet(first & 15, epoch=epoch, valid=valid, tag=tag, node=node, target=target, version=first >> 4),
        values=struct.unpack(f">{lanes}i", rest),
        **dict(zip(names, middle, strict=True)),
    )
    return Left(
        port,
        packet,
        (ethernet[6:12], ip[12:16], source_port),
        (ethernet[:6], ip[16:20], destination_port),
        ip[1] & 3,
    )


@dataclass(frozen=True)
class Job:
    """A job on the switch: child b at port b+1 unless `members` says else, the uplink at port 9."""

    job: int = 1
    size: int = 4
    offset: int = 4
    slots: int = 1
    node: int = 0
    above: tuple[int, int, int] = (0, 0, 0)
    """The node above, the own bit there, how many children it has."""
    result_bitmap: int | None = None
    transit: bool = False
    preempt: bool = False
    ageing: int = 2
    window: int = 8
    max_age_us: int = 100
    generation: int | None = None
    members: Mapping[int, int] | None = None
    below: Mapping[int, range] = field(default_factory=dict)
    """Nodes of the tree behind a port."""
    ranks_below: Mapping[int, range] = field(default_factory=dict)
    """Ports of switches, with the ranks among which those behind them are; workers are at all others."""
    first_rank: int = 0
    """Of the worker at port 1; those at the next ports have the next ones."""
    uplink: int | None = 9

    @property
    def full(self) -> int:
        return (1 << self.size) - 1

    @property
    def epochs(self) -> int:
        return self.generation if self.generation is not None else 0x4200 + self.job

    @property
    def result(self) -> int:
        return self.full if self.result_bitmap is None else self.result_bitmap

    @property
    def ports(self) -> Mapping[int, int]:
        return {b + 1: 1 << b for b in range(self.size)} if self.members is None else self.members

    def entries(self) -> Iterable[str]:
        """Yield the table entries of the job."""
        key = f"{self.job}"
        yield (
            f"job {key} => set_job({self.job}, {self.offset}, {self.slots}, {self.epochs}, {self.size}, "
            f"{self.full}, {self.job}, {self.node}, {self.result}, {int(self.node == 0)}, "
            f"{int(self.transit)}, {int(self.preempt)}, {self.ageing}, {self.window}, {self.max_age_us})"
        )
        for port, bitmap in self.ports.items():
            nodes = self.below.get(port, range(0))
            yield f"member {key} {port} => set_member({bitmap}, {nodes.start}, {len(nodes)})"
            ranks = self.ranks_below.get(port)
            rank = self.first_rank + port - 1
            to = f"deliver({_address(port)}, {rank})" if ranks is None else _pass_on(port, ranks)
            yield f"receiver {key} {port} => {to}"
        if self.uplink is not None:
            node, bitmap, fan_in = self.above
            yield f"member {key} {self.uplink} => set_parent()"
            yield f"receiver {key} 0 => {_pass_on(self.uplink, ALL_RANKS)}"
            yield (
                f"uplink {key} => set_uplink({self.uplink}, {node}, {bitmap}, {fan_in}, {self.job}, "
                f"{self.node}, {self.size})"
            )


def _pass_on(number: int, ranks: range) -> str:
    return f"pass_on({_address(number)}, {ranks.start}, {len(ranks)})"


def _address(number: int) -> str:
    mac, ip, port = worker(number)
    return f"0x{mac.hex()}, 0x{ip.hex()}, {port}"


@cache
def program(name: str) -> ir.Program:
    """Compile a program of p4src, small."""
    return p4src_program(name, LANES=LANES, SLOTS=SLOTS)


@dataclass
class Bed:
    """A pipeline with jobs."""

    name: str
    jobs: tuple[Job, ...]
    backend: Backend = "compiled"
    pipeline: Pipeline = field(init=False)
    bench: Bench = field(init=False)
    now_us: int = 10_000

    def __post_init__(self) -> None:
        self.pipeline = load(program(self.name), backend=self.backend)
        groups = {job.job: [(port, port) for port in job.ports] for job in self.jobs}
        self.bench = Bench(self.pipeline, groups)
        for job in self.jobs:
            for text in job.entries():
                self.pipeline.insert(*parse_entry(self.pipeline.program, text))

    def send(self, packet: Packet, port: int, *, after_us: int = 1) -> list[Left]:
        """Put a packet in at a port and return what leaves."""
        self.now_us += after_us
        return self.raw(packet.frame(port), port)

    def raw(self, frame: bytes, port: int) -> list[Left]:
        """Put any frame in."""
        return [parse(sent.port, sent.frame) for sent in self.bench.send(frame, port, self.now_us)]

    @property
    def registers(self) -> list[str]:
        """Names of the slot's registers but for lanes, without the prefix."""
        prefix = "InaIngress.aggregator.slot_"
        return [
            name.removeprefix(prefix) for name in self.pipeline.program.registers if name.startswith(prefix)
        ]

    def slot(self, index: int = 4) -> dict[str, int]:
        """Return the state of a slot, lanes apart."""
        read = self.pipeline.read_register
        return {name: read(f"InaIngress.aggregator.slot_{name}", index) for name in self.registers}

    def lanes(self, index: int = 4) -> tuple[int, ...]:
        """Return the lanes of a slot."""
        raw = (
            self.pipeline.read_register(f"InaIngress.aggregator.lanes.lane_{i}", index) for i in range(LANES)
        )
        return tuple(value - (value >> 31 << 32) for value in raw)

    def fill(self, index: int, state: Mapping[str, int], lanes: tuple[int, ...] = SLOT) -> None:
        """Write the state of a slot."""
        for name, value in state.items():
            self.pipeline.write_register(f"InaIngress.aggregator.slot_{name}", index, value)
        for i, value in enumerate(lanes):
            self.pipeline.write_register(f"InaIngress.aggregator.lanes.lane_{i}", index, value & 0xFFFFFFFF)

    def counts(self, row: int = 1) -> dict[str, int]:
        """Return the outcomes counted in a row that are not zero."""
        cells = (self.pipeline.read_counter("InaIngress.outcomes", 32 * row + i)[0] for i in range(32))
        return {name: count for name, count in zip(OUTCOMES, cells, strict=True) if count}

    def set_ecn_threshold(self, depth: int) -> None:
        """Mark from this depth on."""
        table, entry = parse_entry(self.pipeline.program, f"threshold => set_threshold({depth})")
        self.pipeline.set_default(table, entry.invocation)


def changed(packet: Packet, **changes: object) -> Packet:
    """Return `packet` with other fields; names are checked."""
    assert {item.name for item in fields(packet)} >= set(changes)
    return replace(packet, **changes)  # type: ignore[arg-type]


# ---------------------------------------------------------------------------
# Rows of decision tables.


@dataclass(frozen=True)
class Row:
    """What a packet finds and what becomes of it: `sent` as changes to the packet, `after` to the slot."""

    name: str
    slot: dict[str, int]
    packet: Packet
    outcome: str
    ports: tuple[int, ...] = ()
    sent: dict[str, Any] = field(default_factory=dict)
    after: dict[str, int] = field(default_factory=dict)
    lanes: tuple[int, ...] = SLOT
    jobs: tuple[Job, ...] = ()
    """If they are others than those of the table; the slot is the first one's."""
    port: int = 1
    row: int = 1
    """Of the counters."""
    beside: dict[tuple[int, str], int] = field(default_factory=dict)
    """What is counted beside the outcome, by row."""
    before: tuple[int, ...] = SLOT


def named(rows: list[Row]) -> pytest.MarkDecorator:
    """Run a test with each of these rows."""
    return pytest.mark.parametrize("row", rows, ids=[row.name for row in rows])


def check(
    program: str, jobs: tuple[Job, ...], row: Row, port: int | None = None, backend: Backend = "compiled"
) -> None:
    """Send the row's packet, to its port or another one."""
    bed = Bed(program, row.jobs or jobs, backend)
    index = bed.jobs[0].offset + row.packet.psn % max(bed.jobs[0].slots, 1)
    bed.fill(index, row.slot, row.before)
    before = bed.slot(index)
    left = bed.send(row.packet, row.port if port is None else port)
    assert [packet.port for packet in left] == list(row.ports)
    for packet in left:
        expected = changed(row.packet, **row.sent)
        is_copy = expected.kind == RESULT and row.ports in COPIES
        if is_copy and expected.target not in (ALL, packet.port - 1):
            expected = changed(expected, values=NONE, valid=0)  # only the receiver gets the lanes
        assert packet.packet == expected, packet.port
    assert bed.slot(index) == before | row.after
    assert bed.lanes(index) == (row.before if row.lanes == SLOT else row.lanes)
    counted = {(number, name): count for number in range(5) for name, count in bed.counts(number).items()}
    assert counted == {(row.row, row.outcome): 1} | row.beside


BACK, DOWN, UP, ALONE_DOWN = (1,), (1, 2, 3, 4), (9,), (7,)
COPIES = (DOWN, ALONE_DOWN)
"""Ports to which a multicast group leads."""
