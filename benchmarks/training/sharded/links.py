"""Bytes of lanes on the link of each rank: the least that its calls need, and those of a capture.

Values travel in packets of `LANES` lanes of 4 bytes; the last packet of an array is filled up. *Data* are the
values alone, *least* those packets. Headers are not counted; each packet has one in each direction.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from benchmarks.training.sharded.script import Call
from bmv2_topos.trace.captures import read_file
from bmv2_topos.trace.events import Event, events_of
from hostlib import wire

LANES = 256
PACKET_BYTES = 4 * LANES

Group = tuple[int, ...]
"""Ranks of a group, in the default group."""


@dataclass(frozen=True, slots=True)
class Link:
    """Bytes in both directions of one rank's link, for the calls of one group."""

    up: int = 0
    down: int = 0

    def __add__(self, other: Link) -> Link:
        """Return both together."""
        return Link(self.up + other.up, self.down + other.down)


def needed(call: Call, rank: int, packet_bytes: int = PACKET_BYTES) -> Link:
    """Return the least that a call needs on the link of a rank.

    Args:
        call: The call.
        rank: The rank, in the group.
        packet_bytes: Bytes of a packet, of which there are whole ones only; 1: the data alone.

    >>> needed(Call("all_gather", (0, 1, 2, 3), elements=4000, bytes_each=4), rank=1, packet_bytes=1)
    Link(up=4000, down=12000)
    """
    size = len(call.ranks)

    def packed(elements: int) -> int:
        return -(-elements * call.bytes_each // packet_bytes) * packet_bytes

    shard, whole = packed(call.elements // size), packed(call.elements)
    others = (size - 1) * shard
    match call.what:
        case "all_reduce":
            return Link(whole, whole)
        case "all_gather":
            return Link(shard, others)
        case "reduce_scatter":
            return Link(others, shard)
        case "broadcast":
            return Link(whole, 0) if rank == call.root else Link(0, whole)


def least(calls: Iterable[Call], rank: int, packet_bytes: int = PACKET_BYTES) -> dict[Group, Link]:
    """Return the bytes that a rank's calls need on its link, by group; for the arguments see `needed`."""
    links: dict[Group, Link] = defaultdict(Link)
    for call in calls:
        links[call.ranks] += needed(call, call.ranks.index(rank), packet_bytes)
    return dict(links)


@dataclass(frozen=True, slots=True)
class Captured:
    """What a capture shows of one rank's link, for one group."""

    lanes: Link
    """Bytes of lanes, each packet counted once."""
    again: Link
    """Bytes of lanes of packets that passed before in this direction, or of results that the rank does not
    take: it may get those with a repeated one."""
    packets: Link
    """Numbers of packets, with those that have no lanes."""


def captured(folder: Path, jobs: Mapping[int, Group]) -> dict[tuple[int, Group], Captured]:
    """Return the bytes and packets that captures of a switch show, by rank (in the default group) and group.

    Args:
        folder: A file for each port, which one rank of one job has.
        jobs: The groups by the number of their job in the switch.
    """
    found = {}
    for file in sorted(folder.glob("*.pcapng")):
        events = [event for event in events_of(read_file(file)) if event.inbound is not None]
        if events:
            group = jobs[events[0].job]
            bit = next(event.bitmap for event in events if event.inbound and event.kind == wire.KIND_GRADIENT)
            rank = bit.bit_length() - 1
            found[group[rank], group] = _of_port(events, rank)
    return found


def _of_port(events: Iterable[Event], rank: int) -> Captured:
    seen: set[tuple[bool | None, int]] = set()
    lanes: Counter[bool | None] = Counter()
    again: Counter[bool | None] = Counter()
    packets: Counter[bool | None] = Counter()
    for event in events:
        packets[event.inbound] += 1
        if event.lanes:
            first = (event.inbound, event.psn) not in seen and (event.inbound or _takes(event.target, rank))
            (lanes if first else again)[event.inbound] += 4 * event.lanes
            seen.add((event.inbound, event.psn))
    return Captured(*(Link(each[True], each[False]) for each in (lanes, again, packets)))


def _takes(target: int, rank: int) -> bool:
    """Return whether a rank takes the lanes of a result with this target."""
    return (rank == target & ~wire.TARGET_BUT) == (target & wire.TARGET_BUT == 0)
