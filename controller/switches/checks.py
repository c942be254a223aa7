"""Checks for parts of jobs that are impossible on any switch, with the reason in words."""

from __future__ import annotations

from controller.errors import BadJob
from controller.switches.model import (
    ALL_RANKS,
    INA_UDP_PORT,
    Member,
    Part,
    Uplink,
    ipv4_to_int,
    mac_to_int,
)
from controller.vocabulary.words import plural


def check_part(part: Part, *, max_members: int) -> None:
    """Raise BadJob unless a switch with bitmaps of `max_members` bits can serve this part."""
    _check_bits(part, max_members)
    _check_ports(part)
    _check_memory(part)
    for member in part.members:
        _check_address(str(member), member)
        if member.rank is None and member.udp_port != INA_UDP_PORT:
            raise BadJob(f"{member} has UDP port {member.udp_port}; switches take packets at {INA_UDP_PORT}")
    if part.uplink is not None:
        _check_address("the parent" if part.place.parent else "the fallback server", part.uplink)


def check_ranks(ranks: list[int]) -> None:
    """Raise BadJob unless the ranks are 0 to n-1, each once."""
    ranks = sorted(ranks)
    if ranks != list(range(len(ranks))):
        raise BadJob(f"the members' ranks are {ranks}; they must be 0 to {len(ranks) - 1}, each once")


def check_fan_in(fan_in: int, max_members: int) -> None:
    """Raise BadJob if a switch cannot have so many members."""
    if fan_in > max_members:
        raise BadJob(
            f"the job has {fan_in} members; one switch sums up to {max_members}, because its contribution"
            f" bitmap has {max_members} bits"
        )


def _check_bits(part: Part, max_members: int) -> None:
    if not part.members:
        raise BadJob("the job has no members; it needs at least one")
    check_fan_in(max(len(part.members), part.fan_in), max_members)
    ranks = [m.rank for m in part.members if m.rank is not None]
    if any(rank >= len(ALL_RANKS) for rank in ranks):
        raise BadJob(f"rank {max(ranks)} is too high; want at most {len(ALL_RANKS) - 1}")
    if part.place.parent is None and len(ranks) == len(part.members):
        check_ranks(ranks)
    all_bits = (1 << part.fan_in) - 1
    taken = 0
    for member in part.members:
        if member.bitmap <= 0 or member.bitmap & ~all_bits:
            raise BadJob(
                f"{member} has the contribution bits {member.bitmap:#b}; it needs at least one,"
                f" and all within {all_bits:#b}"
            )
        if member.bitmap & taken:
            raise BadJob(f"{member} has a contribution bit of another member in {member.bitmap:#b}")
        if member.rank is not None and member.bitmap.bit_count() > 1:
            raise BadJob(f"{member} has {member.bitmap.bit_count()} contribution bits; a worker has one")
        taken |= member.bitmap
    if taken != all_bits and not part.place.transit:
        raise BadJob(f"no member has the contribution bits {all_bits & ~taken:#b}")


def _check_ports(part: Part) -> None:
    ports = [m.port for m in part.members if m.port is not None]
    twice = sorted({p for p in ports if ports.count(p) > 1})
    if twice and not part.shared_ports:
        raise BadJob(f"port {twice[0]} has two members; the switch distinguishes a job's members by port")
    if part.uplink is not None and part.uplink.port in ports:
        raise BadJob(f"port {part.uplink.port} has a member and is the uplink; it can only be one of the two")


def _check_memory(part: Part) -> None:
    if part.mode == "exclusive":
        if part.slots < 2:
            raise BadJob(f"the job asks for {plural(part.slots, 'slot')}; want at least 2, twice the window")
        if part.fallback is not None:
            raise BadJob("an exclusive job has its own slots and must not have a fallback server")
        if part.region is not None or part.window is not None or part.preempt:
            raise BadJob("region, window and preemption are for shared jobs only")
    else:
        if part.uplink is None:
            raise BadJob("a shared job needs a fallback server for packets that find no slot")
        if not 0 < part.packets_under_way() < 1 << 31:
            raise BadJob(f"the job's window is {part.packets_under_way()} packets; want 1 to 2^31 - 1")
        if not 0 < part.max_age_us < 1 << 32:
            raise BadJob(f"a slot's highest age is {part.max_age_us} us; want 1 to 2^32 - 1")
    if part.place.transit and part.place.parent is None:
        raise BadJob("the root of a job must aggregate; a region of size 0 is enough")


def _check_address(who: str, at: Member | Uplink) -> None:
    mac_to_int(at.mac)
    ipv4_to_int(at.ip)
    if not 0 < at.udp_port < 1 << 16:
        raise BadJob(f"{who} has UDP port {at.udp_port}; ports are 1 to 65535")
