"""Jobs as one switch sees them, the table entries that admit them, and the packets that they send it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal, Protocol

from softswitch.compiler import ir
from tests.bmv2 import packets
from tests.bmv2.packets import Station
from tests.bmv2.reference import Arrival
from tests.bmv2.targets import Delete, Insert, Members, Modify, Write
from tests.p4.bed import ALL_RANKS, LANES, NONE, PARTIAL, REMINDER, RESEND, RESULT, STATUS, Packet

LARGEST, SMALLEST = 2**31 - 1, -(2**31)
ONES = [1] * LANES
SAME_EPOCH = 256
"""So many generations later a job has the same epoch."""


class FromAbove(Protocol):
    """How packets from above are made."""

    def __call__(self, job: Job, psn: int, /, **changes: int) -> Arrival:
        """Return one, `changes` made to its INA header."""


@dataclass(frozen=True, slots=True)
class Above:
    """What is reached through a job's uplink: the parent switch, or at the root the fallback server.

    `node`, `bitmap` and `fan_in` are what this switch writes into the sums that it sends there.
    """

    station: Station
    node: int = 0
    bitmap: int = 0
    fan_in: int = 0


@dataclass(frozen=True, slots=True)
class Job:
    """A job as it is admitted to a switch: its id, counter row, region of slots, children and role.

    `children` is by bit of the bitmap; several may be behind one port. `ranks` has the ranks of workers, or
    those among which the ranks behind a switch are; by default a child is the worker of the rank of its bit.
    """

    id: int
    row: int
    generation: int
    group: int
    children: Mapping[int, Station]
    offset: int = 0
    size: int = 0
    ranks: Mapping[int, int | range] = field(default_factory=dict)
    below: Mapping[int, range] = field(default_factory=dict)
    """Nodes of the tree behind ports."""
    role: Literal["root", "child", "transit"] = "root"
    node: int = 0
    fan_in: int = 0
    above: Above | None = None
    result_bitmap: int = 0
    preempt: bool = False
    ageing: int = 2
    window: int = 1 << 30
    max_age_us: int = (1 << 32) - 1

    @property
    def bits(self) -> list[int]:
        """The children that are here, lowest bit first."""
        return sorted(self.children)

    @property
    def contributors(self) -> int:
        """How many children the aggregating node has; those of a transit switch are more than are here."""
        return self.fan_in or len(self.children)

    @property
    def full(self) -> int:
        """The bitmap of a complete sum."""
        return (1 << self.contributors) - 1

    @property
    def of_result(self) -> int:
        """The bitmap of a result."""
        return self.result_bitmap or self.full


def admission(program: ir.Program, job: Job, make: type[Write] = Insert) -> Iterator[Write]:
    """Yield the table entries of a job."""
    arguments = {
        "counter_row": job.row,
        "offset": job.offset,
        "size": job.size,
        "generation": job.generation,
        "fan_in": job.contributors,
        "full_bitmap": job.full,
        "group": job.group,
        "node": job.node,
        "result_bitmap": job.of_result,
        "root": job.role == "root",
        "transit": job.role == "transit",
        "preempt": job.preempt,
        "ageing": job.ageing,
        "window": job.window,
        "max_age_us": job.max_age_us,
    }
    own = "InaIngress.admission."
    yield make(own + "job", entry(program, [job.id], own + "set_job", **arguments))
    for port in {station.port: None for station in job.children.values()}:
        mask = sum(1 << bit for bit, station in job.children.items() if station.port == port)
        nodes = job.below.get(port, range(0))
        of_port = {"bitmap": mask, "first_node": nodes.start, "node_count": len(nodes)}
        yield make(own + "member", entry(program, [job.id, port], own + "set_member", **of_port))
    for bit, station in job.children.items():
        yield receiver(program, job, bit + 1, station, job.ranks.get(bit, bit), make)
    if job.above is not None:
        station = job.above.station
        yield make(own + "member", entry(program, [job.id, station.port], own + "set_parent"))
        yield receiver(program, job, 0, station, ALL_RANKS, make)
        yield make("InaIngress.uplink.uplink", uplink(program, job, job.above))


def readmission(program: ir.Program, jobs: Sequence[Job]) -> Iterator[Write]:
    """Yield what changes when jobs that have been admitted get another region or generation."""
    for job in jobs:
        yield next(admission(program, job, Modify))


def move(program: ir.Program, job: Job, number: int, offset: int, size: int) -> Insert:
    """Return the entry that has a job move to another region."""
    own = "InaIngress.aggregator.addressing."
    row = entry(program, [job.id], own + "move", number=number, offset=offset, size=size)
    return Insert(own + "change", row)


def withdrawal(program: ir.Program, job: Job) -> Iterator[Write]:
    """Yield the removal of a job."""
    for write in admission(program, job):
        yield Delete(write.table, write.entry)


def readmitted(jobs: Sequence[Job], generations: int) -> list[Job]:
    """Return the jobs as they are so many generations later."""
    return [replace(job, generation=(job.generation + generations) % (1 << 32)) for job in jobs]


def uplink(program: ir.Program, job: Job, above: Above) -> ir.ConstEntry:
    """Return the entry by which a job's packets find their way up."""
    return entry(
        program,
        [job.id],
        "InaIngress.uplink.set_uplink",
        port=above.station.port,
        node=above.node,
        bitmap=above.bitmap,
        fan_in=above.fan_in,
        counter_row=job.row,
        own_node=job.node,
        own_fan_in=job.contributors,
    )


def receiver(
    program: ir.Program, job: Job, rid: int, station: Station, rank: int | range, make: type[Write] = Insert
) -> Write:
    """Return the entry that addresses copies of a job's packets: to a worker, or to a switch."""
    args = {"mac": station.mac, "ip": station.ip, "udp_port": station.udp_port}
    if isinstance(rank, int):
        action, args = "InaEgress.delivery.deliver", {**args, "rank": rank}
    else:
        action = "InaEgress.delivery.pass_on"
        args |= {"first_rank": rank.start, "rank_count": len(rank)}
    return make("InaEgress.delivery.receiver", entry(program, [job.id, rid], action, **args))


def entry(program: ir.Program, keys: Sequence[int], action: str, **args: int) -> ir.ConstEntry:
    """Return an entry with exact keys; `args` are exactly the action's parameters, by name."""
    names = [param.name.rpartition(".")[2] for param in program.actions[action].params]
    assert sorted(names) == sorted(args), f"{action} takes {names}"
    invocation = ir.Invocation(action, tuple(int(args[name]) for name in names))
    return ir.ConstEntry(tuple(ir.Pattern("exact", key) for key in keys), invocation, 0)


def groups(*jobs: Job) -> dict[int, Members]:
    """Return the multicast groups of jobs: one copy for each port that has children."""
    found: dict[int, Members] = {}
    for job in jobs:
        lowest: dict[int, int] = {}
        for bit in job.bits:
            lowest.setdefault(job.children[bit].port, bit)
        found[job.group] = [(port, bit + 1) for port, bit in lowest.items()]
    return found


# --------------------------------------------------------------------------- what a job's parties send


def contribution(job: Job, bit: int, psn: int) -> Packet:
    """Return the header with which a child contributes to `psn`; its values are put behind it."""
    return Packet(
        job=job.id,
        psn=psn % (1 << 32),
        bitmap=1 << bit,
        fan_in=job.contributors,
        exponent=0,
        epoch=job.generation & 0xFF,
        tag=0x5EED,
        node=job.node,
        values=NONE,
        lanes=LANES,
    )


def gradient(job: Job, bit: int, psn: int, values: Sequence[int] = ONES, /, **changes: int) -> Arrival:
    """Return the frame of a contribution, `changes` made to its INA header, and the port it comes in at."""
    child = job.children[bit]
    return child.port, packets.frame(child, replace(contribution(job, bit, psn), **changes), values)


def answer(job: Job, bit: int, psn: int, values: Sequence[int] = ONES, /, **changes: int) -> Arrival:
    """Return a result that a child sends up because it was reminded."""
    return gradient(job, bit, psn, values, **{"kind": RESULT, "flags": RESEND} | changes)


def partial(job: Job, bit: int, psn: int, values: Sequence[int] = ONES, /, **changes: int) -> Arrival:
    """Return a partial sum of a node further down."""
    return gradient(
        job, bit, psn, values, **{"kind": PARTIAL, "node": 77, "bitmap": 6, "fan_in": 5} | changes
    )


def _from_parent(job: Job, ina: Packet, values: Sequence[int]) -> Arrival:
    assert job.above is not None
    station = job.above.station
    return station.port, packets.frame(station, ina, values)


def result(job: Job, psn: int, values: Sequence[int] = ONES, /, **changes: int) -> Arrival:
    """Return a result that comes from above."""
    header = replace(
        contribution(job, 0, psn), kind=RESULT, node=0, bitmap=job.of_result, fan_in=job.of_result.bit_count()
    )
    return _from_parent(job, replace(header, **changes), values)


def bare_result(job: Job, psn: int, /, **changes: int) -> Arrival:
    """Return a result from above as those get it who are not its target."""
    return result(job, psn, [], **{"lanes": 0, "valid": 0, "target": 3} | changes)


def status(job: Job, psn: int, /, **changes: int) -> Arrival:
    """Return a status from above."""
    header = replace(contribution(job, 0, psn), kind=STATUS, lanes=0, valid=0, bitmap=5)
    return _from_parent(job, replace(header, **changes), [])


def reminder(job: Job, psn: int, /, **changes: int) -> Arrival:
    """Return what the fallback server asks this node for."""
    return status(job, psn, **{"kind": REMINDER, "bitmap": job.full} | changes)


DOWNWARDS: tuple[FromAbove, ...] = (result, bare_result, status, reminder)
"""All of them."""
