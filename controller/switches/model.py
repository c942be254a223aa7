"""Data model of the controller: the parts of jobs, their members, regions of a switch's memory.

The part of a job on one switch is one node of the job's tree: it sums its children (workers or switches)
and has an uplink to its parent, or, at the root of a shared job, to the job's fallback server. A job
on a single switch is a tree of one node, which `Part(members, slots)` describes; `controller.switches.layout`
describes larger trees.
"""

from __future__ import annotations

import functools
import ipaddress
import re
from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass, field
from enum import StrEnum
from typing import Annotated

import msgspec

from controller.errors import BadJob, ProgramMismatch
from controller.vocabulary import Mode, Region

# ---------------------------------------------------------------------------
# Outcomes of packets, as `outcome_t` in p4src/include/outcomes.p4 numbers them.


COLUMNS = 32
"""Number of cells of a job's row in the counter of outcomes."""

OUTCOMES = {
    "aggregated": 0,
    "completed": 1,
    "replayed": 2,
    "duplicate": 3,
    "status": 4,
    "stale": 5,
    "truncated": 6,
    "bad_checksum": 7,
    "bad_version": 8,
    "bad_kind": 9,
    "bad_lanes": 10,
    "bad_length": 11,
    "unknown_job": 12,
    "wrong_port": 13,
    "wrong_rank": 14,
    "wrong_fan_in": 15,
    "overflow": 16,
    "disagree": 17,
    "collided": 18,
    "bypassed": 19,
    "preempted": 20,
    "reclaimed": 21,
    "evicted": 22,
    "flushed": 23,
    "pulled": 24,
    "relayed": 25,
    "stored": 26,
    "passed_up": 27,
    "passed_down": 28,
    "wrong_epoch": 29,
    "wrong_direction": 30,
    "no_uplink": 31,
}
"""By outcome of an INA packet, the column of its counter in a job's row."""


INA_UDP_PORT = 42592
"""The UDP destination port by which switches recognise packets to aggregate."""

BESIDE_UDP_PORT = INA_UDP_PORT - 1
"""The UDP port of a fallback server on a machine with workers, whose ports are `INA_UDP_PORT` and above."""

SWITCH_IP = "10.0.255.1"
"""IPv4 address to which workers with ordinary UDP sockets send; switches intercept it, no machine has it."""

SWITCH_MAC = "02:00:00:00:ff:01"
"""MAC address of every switch, as destination and as source of packets: the same as in
`hostlib.TransportConfig`, because a worker's UDP socket accepts no other sender."""

ALL_RANKS = range(1 << 15)
"""All ranks that a job may have: a packet has 15 bits for one (docs/reference/protocol.md)."""

AGEING = 1
"""Default of `Part.ageing`: how much of its priority a slot loses with each packet that finds it taken."""

_MAC = re.compile(r"[0-9a-fA-F]{2}(:[0-9a-fA-F]{2}){5}")


def mac_to_int(mac: str) -> int:
    """Parse ``02:00:00:00:00:01``. Raises BadJob."""
    if not _MAC.fullmatch(mac):
        raise BadJob(f"'{mac}' is not a MAC address; write it as 02:00:00:00:00:01")
    return int(mac.replace(":", ""), 16)


def mac_from_int(value: int) -> str:
    """Write a 48-bit number as ``02:00:00:00:00:01``."""
    return value.to_bytes(6, "big").hex(":")


@functools.lru_cache(maxsize=1 << 14)  # the same few are parsed for each comparison with a switch
def ipv4_to_int(address: str) -> int:
    """Parse a dotted IPv4 address. Raises BadJob."""
    try:
        return int(ipaddress.IPv4Address(address))
    except ipaddress.AddressValueError as error:
        raise BadJob(f"'{address}' is not an IPv4 address: {error}") from error


def ipv4_from_int(value: int) -> str:
    """Write a 32-bit number as a dotted IPv4 address."""
    return str(ipaddress.IPv4Address(value))


@dataclass(frozen=True, slots=True)
class Member:
    """One child of a job's node: the port at which its packets enter, and the address for its results.

    `rank` is a worker's rank; None: the child is a switch. If `port` is None, the controller chooses a port.
    `bitmap` has the contribution bits that the child may send. It has several bits if the child is a switch
    that forwards its members' packets unchanged. For a worker, a `bitmap` of 0 stands for the bit of the
    worker's rank. If the child is a switch, `below` has the nodes of the job's tree behind it, which may send
    partial sums, and `ranks` includes the rank of every worker behind it. A result that none of these ranks
    uses is sent to the child without lanes.
    """

    rank: int | None
    port: int | None
    mac: str
    ip: str
    udp_port: int
    bitmap: int = 0
    below: range = range(0)
    ranks: range = ALL_RANKS

    def __post_init__(self) -> None:
        if self.bitmap == 0 and self.rank is not None and self.rank >= 0:
            object.__setattr__(self, "bitmap", 1 << self.rank)

    @property
    def bit(self) -> int:
        """Number of the child's lowest bit, which determines its results' replication id; -1: no bits."""
        return (self.bitmap & -self.bitmap).bit_length() - 1

    def __str__(self) -> str:
        return f"the switch at port {self.port}" if self.rank is None else f"rank {self.rank}"


@dataclass(frozen=True, slots=True)
class Uplink:
    """Uplink of a node, to its parent switch or, from a root, to the fallback server.

    `port` is the switch's own port for the uplink; None: the controller chooses a port. The parent is node
    `node` of the tree, and sums `fan_in` contributions. `bitmap` has the contribution bit of this switch's
    sums; 0 if this switch only forwards its members' packets. For a fallback server, `node`, `fan_in` and
    `bitmap` are 0.
    """

    port: int | None
    mac: str
    ip: str
    udp_port: int = INA_UDP_PORT
    node: int = 0
    bitmap: int = 0
    fan_in: int = 0


@dataclass(frozen=True, slots=True)
class TreePosition:
    """Position of a switch in a job's tree; by default it is the root.

    A node below the root has a `parent`. `result_bitmap` has a bit for each child of the root: packets with
    this bitmap are results. A `transit` switch has no memory for the job: its members are members of the node
    above, and it has that node's id.
    """

    node: int = 0
    parent: Uplink | None = None
    result_bitmap: int = 0
    transit: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class SharedTerms:
    """What all switches of a job have in common; see `Part`."""

    mode: Mode = "exclusive"
    preempt: bool = False
    ageing: int = AGEING
    window: int | None = None
    max_age_us: int = 100_000
    fallback: Uplink | None = None
    shared_ports: bool = False


@dataclass(frozen=True, slots=True)
class Part(SharedTerms):
    """The part of a job that one switch serves: its members there, and its memory.

    `slots` is twice the number of packets that a worker may have in flight; a shared job can give that number
    as `window` instead. An exclusive job gets a power of two of slots, at least `slots`
    (docs/reference/protocol/switch.md). A shared job uses the slots of `region`, by default all slots. With a
    region of size 0 the job uses no slots, and its fallback server does all the work. With `preempt`, the
    job's packets take slots from packets of lower priority, and a packet that gets no slot lowers the slot's
    priority by `ageing`. A shared job's packets also take a slot that has received no contribution for
    `max_age_us`, in microseconds.

    With `shared_ports` several workers may be at one port: the switch then cannot tell which of them sent a
    packet.
    """

    members: tuple[Member, ...]
    slots: int = 0
    _: KW_ONLY
    region: Region | None = None
    place: TreePosition = TreePosition()

    @property
    def uplink(self) -> Uplink | None:
        """Destination of partial and finished sums: the parent, or the fallback server."""
        return self.place.parent or self.fallback

    @property
    def fan_in(self) -> int:
        """Number of contributions that complete the sum; for a transit switch, the sum of the node above."""
        if self.place.transit and self.place.parent is not None:
            return self.place.parent.fan_in
        return sum(m.bitmap.bit_count() for m in self.members)

    def packets_under_way(self) -> int:
        """Return the maximum number of packets of a worker in flight, unless the region allows fewer."""
        return self.slots // 2 if self.window is None else self.window


@dataclass(frozen=True, slots=True)
class RegionChange:
    """A shared job's move to another `region` of slots.

    The job begins to use the new region some packets after the switch has got the table entry for the move.
    `number` distinguishes this move from earlier moves of the same counter row: its high bits are the job's
    generation, its low 32 bits the switch's settled count (p4src/include/addressing.p4) when the move began.
    """

    number: int
    region: Region


_Count = Annotated[int, msgspec.Meta(ge=0, le=(1 << 63) - 1)]
_Measure = Annotated[float, msgspec.Meta(ge=0, lt=1e300)]


@dataclass(frozen=True, slots=True)
class Registration:
    """A job's description by its holder, in the metadata of the job's row.

    The switch stores the registration without reading it, and returns it to all readers of the row. With
    `lease_s` the holder promises to remove the job in the end. Until then the holder promises to write the
    registration again before `lease_s` seconds have passed, each time with `renewals` one higher
    (`controller.switches.leases`). An infinite `lease_s` was written by an earlier version; other processes
    do not know when such a lease ends. `age_s` and `goodput_bps` are from the last renewal.
    """

    holder: str
    """The holder's name, for people."""
    _: KW_ONLY
    process: str = ""
    """The holder's process (`controller.switches.leases.this_process`); "": not known."""
    lease_s: Annotated[float, msgspec.Meta(gt=0, le=1e9)] | None = None
    """Length of the lease, seconds; None: the job stays until it is removed."""
    renewals: _Count = 0
    age_s: _Measure | None = None
    """Time since the job's admission, seconds."""
    name: str = ""
    user: str = ""
    command: str = ""
    priority: _Count | None = None
    goodput_bps: _Measure | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Admission:
    """A job as a switch serves it: the content of its table entries.

    `generation` distinguishes this job's packets in slots from packets of earlier users of the same slots.
    A worker may have `window` packets in flight. Members are in the order of their bits. A job that is moving
    to another region has a `change`; until the move is over, both regions are in use. A job whose
    `registration` has a lease is removed once the lease has expired; other jobs stay.
    """

    job: int
    counter_row: int
    region: Region
    generation: int
    group: int
    members: tuple[Member, ...]
    fan_in: int
    window: int
    uplink: Uplink | None = None
    node: int = 0
    result_bitmap: int
    transit: bool = False
    preempt: bool = False
    ageing: int = 0
    max_age_us: int = 0
    change: RegionChange | None = None
    registration: Registration | None = None

    @property
    def leased(self) -> bool:
        """True if a holder has promised to remove the job (`Registration.lease_s`)."""
        return self.registration is not None and self.registration.lease_s is not None

    @property
    def epoch(self) -> int:
        """The low 8 bits of the generation, which packets carry."""
        return self.generation & 0xFF

    @property
    def full_bitmap(self) -> int:
        """Bitmap with the bits of all contributions that make up a sum."""
        return (1 << self.fan_in) - 1

    @property
    def root(self) -> bool:
        """True if this switch is the root of the job's tree, where sums become complete."""
        return self.node == 0 and not self.transit


class Feature(StrEnum):
    """A feature that some jobs need and not every program offers."""

    PREEMPTION = "jobs with preemption"
    MOVES = "jobs that move to other slots"
    SHARDS = "reduce-scatter, all-gather and broadcast"


@dataclass(frozen=True, slots=True)
class SwitchInfo:
    """What a program offers (`controller.switches.programs`).

    The program's packets have `lanes` values; it serves up to `jobs` jobs at a time, each with up to
    `max_members` members. `mode` says whether jobs share slots. In a `salted` program (ATP), packets have a
    salt instead of a priority. `lacks` maps each feature that the program does not offer to the name of the
    missing part. `title` is the program's name in errors. With `aligned`, regions must start at multiples of
    their size.
    """

    lanes: int
    slots: int
    jobs: int
    max_members: int
    mode: Mode = "exclusive"
    salted: bool = False
    lacks: Mapping[Feature, str] = field(default_factory=dict, compare=False)
    title: str = field(default="the program", compare=False)
    aligned: bool = False

    @property
    def shared(self) -> bool:
        """True if jobs share slots, and need a fallback server."""
        return self.mode == "shared"

    def covers(self, other: SwitchInfo) -> bool:
        """Return True if jobs that are made for the program `other` can run on this program unchanged."""
        alike = (self.mode, self.salted, self.lanes) == (other.mode, other.salted, other.lanes)
        return alike and self.lacks.keys() <= other.lacks.keys()

    def require(self, feature: Feature) -> None:
        """Raise ProgramMismatch, which names the missing part, if the program lacks this feature."""
        if feature in self.lacks:
            raise ProgramMismatch(f"{self.title} lacks {self.lacks[feature]}, which {feature} need")
