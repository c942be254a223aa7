"""What the controller talks about: jobs, their members, regions of a switch's memory."""

from __future__ import annotations

import ipaddress
import re
from dataclasses import dataclass

from controller.errors import BadJob

_MAC = re.compile(r"[0-9a-fA-F]{2}(:[0-9a-fA-F]{2}){5}")


def mac_to_int(mac: str) -> int:
    """Parse ``02:00:00:00:00:01``. Raises BadJob."""
    if not _MAC.fullmatch(mac):
        raise BadJob(f"'{mac}' is not a MAC address; write it as 02:00:00:00:00:01")
    return int(mac.replace(":", ""), 16)


def mac_from_int(value: int) -> str:
    """Write a 48-bit number as ``02:00:00:00:00:01``."""
    return value.to_bytes(6, "big").hex(":")


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
class Region:
    """Slots `offset` to `offset + size - 1` of a switch."""

    offset: int
    size: int

    @property
    def end(self) -> int:
        """The first slot after the region."""
        return self.offset + self.size


@dataclass(frozen=True, slots=True)
class Member:
    """One worker of a job: where its packets enter the switch and how results are addressed to it.

    `port` None lets the controller choose one of the ports that it may use.
    """

    rank: int
    port: int | None
    mac: str
    ip: str
    udp_port: int


@dataclass(frozen=True, slots=True)
class Job:
    """A job to be admitted: its members with ranks 0 to n-1, and the slots that it wants at least.

    It gets a power of two (docs/protocol.md), half of which is its window.
    """

    members: tuple[Member, ...]
    slots: int

    def check(self, *, max_members: int) -> None:
        """Raise BadJob unless a switch with bitmaps of `max_members` bits could serve this job."""
        if not self.members:
            raise BadJob("the job has no members; it needs at least one")
        if len(self.members) > max_members:
            raise BadJob(
                f"the job has {len(self.members)} members; one switch sums up to {max_members}, because"
                f" its contribution bitmap has {max_members} bits"
            )
        ranks = sorted(m.rank for m in self.members)
        if ranks != list(range(len(ranks))):
            raise BadJob(f"the members' ranks are {ranks}; they must be 0 to {len(ranks) - 1}, each once")
        ports = [m.port for m in self.members if m.port is not None]
        twice = sorted({p for p in ports if ports.count(p) > 1})
        if twice:
            raise BadJob(f"port {twice[0]} has two members; the switch tells members of a job by their ports")
        if self.slots < 2:
            raise BadJob(f"the job asks for {self.slots} slots; it takes 2 at least, twice the window")
        for member in self.members:
            mac_to_int(member.mac)
            ipv4_to_int(member.ip)
            if not 0 < member.udp_port < 1 << 16:
                raise BadJob(f"rank {member.rank} has UDP port {member.udp_port}; ports are 1 to 65535")


@dataclass(frozen=True, slots=True)
class Admission:
    """A job as a switch serves it: all that its table entries say.

    `generation` tells this job's packets in slots from those of earlier users of the same slots.
    """

    job: int
    counter_row: int
    region: Region
    generation: int
    group: int
    members: tuple[Member, ...]

    @property
    def window(self) -> int:
        """How many packets a worker may have under way."""
        return self.region.size // 2


@dataclass(frozen=True, slots=True)
class SwitchInfo:
    """What a loaded program offers: values per packet, slots, jobs at a time, members of one job."""

    lanes: int
    slots: int
    jobs: int
    max_members: int
