"""Choice of the values that a part leaves open: id, generation, counter row, region and ports. No I/O."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

from controller.errors import BadJob, IdentityTaken, OutOfMemory, OutOfRows, ProgramMismatch
from controller.policies.memory import regions
from controller.switches.model import (
    ALL_RANKS,
    INA_UDP_PORT,
    Admission,
    Feature,
    Member,
    Part,
    SwitchInfo,
    Uplink,
    ipv4_to_int,
    mac_to_int,
)
from controller.vocabulary import Region
from controller.vocabulary.errors import plural

# ---------------------------------------------------------------------------
# Checks for parts of jobs that are impossible on any switch, with the reason in words.


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
    """Raise BadJob if a switch cannot have this number of members."""
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
            raise BadJob(
                f"{member} shares a contribution bit with another member; want each bit at one member only:"
                f" the bits here are {member.bitmap:#b}"
            )
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


def _check_address(role: str, at: Member | Uplink) -> None:
    mac_to_int(at.mac)
    ipv4_to_int(at.ip)
    if not 0 < at.udp_port < 1 << 16:
        raise BadJob(f"{role} has UDP port {at.udp_port}; ports are 1 to 65535")


_JOB_IDS = range(1, 1 << 16)


@dataclass(frozen=True, slots=True)
class Identity:
    """Identity of a job in packets and slots: the same on every switch of its tree."""

    job: int
    generation: int


def choose_identity(
    present: Iterable[Admission], *, clock: Callable[[], float], rng: random.Random, last: int | None = None
) -> Identity:
    """Choose a job id and a generation that no present job has.

    The id is random: late packets of an ended job then rarely match a new one. The generation is the time in
    milliseconds modulo 2**32 (49 days): slots may still hold sums of earlier generations.

    Args:
        present: The jobs that are there.
        clock: Returns wall-clock seconds.
        rng: Draws the id.
        last: The generation chosen last; None: there is none. The new one is higher, also within the same
            millisecond and if the clock was set back: slots may still hold sums of the last one.

    Raises OutOfRows.
    """
    present = list(present)
    used_ids = {a.job for a in present}
    used = {a.generation for a in present}
    generation = int(clock() * 1000) % (1 << 32)
    if last is not None and (last - generation) % (1 << 32) < 1 << 31:
        generation = (last + 1) % (1 << 32)
    while generation == 0 or generation in used:
        generation = (generation + 1) % (1 << 32)
    free = len(_JOB_IDS) - len(used_ids)
    if not free:
        raise OutOfRows("all job ids are in use")
    job = _JOB_IDS[rng.randrange(free)]  # counted without the used ids
    for taken in sorted(used_ids):
        job += taken <= job
    return Identity(job, generation)


def plan(
    part: Part, identity: Identity, *, info: SwitchInfo, present: Iterable[Admission], ports: Sequence[int]
) -> Admission:
    """Make the admission of a part beside the admissions that are present on a switch.

    Args:
        part: The job's part on the switch.
        identity: Job id and generation.
        info: The capacity of the switch's program.
        present: The admissions on the switch.
        ports: Ports for members and uplinks without a port: each gets the lowest of these ports that no job
            uses.

    Raises ProgramMismatch if the switch's program does not serve such jobs, IdentityTaken, BadJob,
    OutOfMemory or OutOfRows.
    """
    present = list(present)
    check_mode(part, info)
    for other in present:
        if other.job == identity.job or other.generation == identity.generation:
            raise IdentityTaken(f"the switch has job {other.job} of generation {other.generation} already")
    used_rows = {a.counter_row for a in present}
    row = next((r for r in range(1, info.jobs + 1) if r not in used_rows), None)
    if row is None:
        raise OutOfRows(f"the switch serves {len(present)} jobs, the maximum that its program can count")
    region = _region(part, info, present)
    used = {end.port for a in present for end in (*a.members, a.uplink) if end is not None}
    members, uplink = _with_ports(part, [p for p in ports if p not in used])
    shares = part.mode == "shared"
    return Admission(
        job=identity.job,
        counter_row=row,
        region=region,
        generation=identity.generation,
        group=row,  # jobs' groups are numbered like their rows; others start above
        members=tuple(sorted(members, key=lambda m: m.bit)),
        fan_in=part.fan_in,
        window=part.packets_under_way() if shares else regions.region_size(part.slots) // 2,
        uplink=uplink,
        node=part.place.node,
        result_bitmap=part.place.result_bitmap or (1 << part.fan_in) - 1,
        transit=part.place.transit,
        preempt=part.preempt,
        ageing=part.ageing if part.preempt else 0,
        max_age_us=part.max_age_us if shares else 0,
    )


def check_mode(part: Part, info: SwitchInfo) -> None:
    """Raise ProgramMismatch unless the switch's program serves jobs of the part's mode.

    A program serves either shared or exclusive jobs. Also raises ProgramMismatch if the part needs
    preemption, and the program lacks preemption.
    """
    if part.mode != info.mode:
        raise ProgramMismatch(
            f"the job is {part.mode}, and {info.title} is for {info.mode} jobs: on one switch either all jobs"
            " have private regions or all jobs share slots"
        )
    if part.preempt:
        info.require(Feature.PREEMPTION)


def _region(part: Part, info: SwitchInfo, present: Iterable[Admission]) -> Region:
    if part.place.transit:
        return Region(0, 0)
    if part.mode == "shared":
        return regions.place(info.slots, part.region)
    try:
        used = (a.region for a in present)
        return regions.allocate(info.slots, used, regions.region_size(part.slots), aligned=info.aligned)
    except OutOfMemory as error:
        raise OutOfMemory(error.asked, error.free, error.largest, wanted=part.slots) from None


def _who(part: Part) -> str:
    """Return a text that names the members and the uplink without a port, for an error message."""
    members = sum(member.port is None for member in part.members)
    named = [f"{members} {'worker' if members == 1 else 'workers'}"] if members else []
    if part.uplink is not None and part.uplink.port is None:
        named.append("the switch above" if part.place.parent else "the fallback server")
    return " and ".join(named)


def _ports(free: Sequence[int]) -> str:
    if not free:
        return "none of the allowed ports is free"
    listed = ", ".join(map(str, free))
    return f"only {len(free)} {'is' if len(free) == 1 else 'are'} free among the allowed ports: {listed}"


def _with_ports(part: Part, free: Sequence[int]) -> tuple[list[Member], Uplink | None]:
    ends: list[Member | Uplink] = [*part.members, *([part.uplink] if part.uplink else [])]
    taken = {end.port for end in ends}
    choices = sorted(p for p in free if p not in taken)
    wanted = sum(end.port is None for end in ends)
    if wanted > len(choices):
        raise OutOfRows(
            f"{_who(part)} need {wanted} {'port' if wanted == 1 else 'ports'} of the switch,"
            f" and {_ports(choices)}"
        )
    choice = iter(choices)
    placed = [replace(end, port=next(choice)) if end.port is None else end for end in ends]
    members = [end for end in placed if isinstance(end, Member)]
    return members, next((end for end in placed if isinstance(end, Uplink)), None)
