"""Beds and schedules drawn from integers; the same integer gives the same schedule on any machine."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace

from bmv2_topos.faults import (
    ChangeRegion,
    Congest,
    LinkFault,
    RestartFallback,
    RestartJob,
    Strangers,
    TimedFault,
)
from bmv2_topos.soak import tofino
from bmv2_topos.soak.network import KINDS
from bmv2_topos.soak.programs import LANES, SHARED_SLOTS
from bmv2_topos.soak.schedule import (
    TESTBED_SEEDS,
    CollectivePlan,
    Defector,
    Dtype,
    JobPlan,
    SoakSchedule,
    SoakTestbed,
    end_us,
)
from bmv2_topos.testbeds.virtual.placement import Placement
from controller.switches.model import Feature, SwitchInfo
from controller.vocabulary import Link, Mode, Region, Server, Switch, Topology
from hostlib import wire
from hostlib.core.congestion import CONGESTION_NAMES, window_for
from hostlib.core.state import Pattern
from hostlib.wire.encodings import BLOCKS, Encoding
from softswitch import Impairments

_MAX_DEPTH = 2
_MOVING = 2
"""Seeds with this remainder modulo 4 get schedules with reduce-scatter, all-gather and broadcast, too."""
_WINDOWS = (
    1,
    3,
    window_for(1),
    window_for(1) + 5,
    window_for(2),
    window_for(3),
    window_for(4),
    window_for(8),
)
"""Windows, in packets, from which the window of a job that shares slots is drawn: some permit only one packet
in flight, others several."""


def draw_testbed(number: int, own: SwitchInfo | None = None) -> SoakTestbed:
    """Return a testbed: one to five switches in a tree of up to three levels, one to three jobs on them.

    `own` describes the user's program to run; None: a program of p4src is drawn.
    """
    draw = random.Random(f"bed {number}")  # the word is part of every seed
    program: Mode = draw.choices(("shared", "exclusive"), (3, 1))[0]
    if own is not None:
        program = own.mode
    on_tofino = own is not None and own.aligned
    switches = [Switch("s1")]
    depth = {"s1": 0}
    links = []
    for below in range(2, 2 + draw.choices((0, 1, 2, 3, 4), (6, 4, 3, 2, 1))[0]):
        parent = draw.choice([name for name, level in depth.items() if level < _MAX_DEPTH])
        aggregates = draw.random() < 0.75 or on_tofino
        child = Switch(f"s{below}") if aggregates else Switch(f"s{below}", slots=0)
        depth[child.name] = depth[parent] + 1
        switches.append(child)
        links.append(Link(parent, child.name))
    hosts: list[Server] = []

    def attach(name: str, switch: str) -> str:
        hosts.append(Server(name))
        links.append(Link(name, switch))
        return name

    sizes = draw.choices((1, 2, 3, 4, 6), (1, 10, 6, 3, 1), k=draw.choices((1, 2, 3), (4, 4, 2))[0])
    if on_tofino and program == "shared":
        above = {link.b: link.a for link in links}
        parents = {switch.name: above.get(switch.name) for switch in switches}
        racks = [tofino.draw_racks(draw, parents, max(size, 2)) for size in sizes]
    else:
        racks = [[draw.choice(switches).name for _ in range(size)] for size in sizes]
    places = [
        tuple(attach(f"h{job}.{rank}", rack) for rank, rack in enumerate(of_job))
        for job, of_job in enumerate(racks, start=1)
    ]
    servers: list[str | None] = [None] * len(sizes)
    if program == "shared":
        count = draw.choice((1, len(sizes)))
        names = [attach(f"p{server}", "s1") for server in range(1, count + 1)]
        servers = [names[job % count] for job in range(len(sizes))]
    strangers = {switch.name: attach(f"x{switch.name}", switch.name) for switch in switches}
    return SoakTestbed(
        number,
        program,
        Topology(tuple(switches), tuple(hosts), tuple(links)),
        tuple(map(Placement, places, servers)),
        strangers,
        tuple(0 if program == "shared" else draw.choice((2, 4, 8)) for _ in sizes),
        frozenset(own.lacks) if own else frozenset(),
        on_tofino,
    )


def draw_schedule(seed: int, testbed: SoakTestbed | None = None) -> SoakSchedule:
    """Return the schedule of a seed; `testbed`, if given, must be that of `seed` // `TESTBED_SEEDS`."""
    testbed = testbed or draw_testbed(seed // TESTBED_SEEDS)
    draw = random.Random(f"schedule {seed}")
    generations = draw.sample(range(1, 2**32 - 1000), len(testbed.placements))
    numbered = enumerate(generations, start=1)
    drawn = [_draw_job(draw, testbed, number, generation) for number, generation in numbered]
    jobs = tuple(
        replace(
            job,
            defector=_draw_defector(seed, testbed, job.number),
            bare=random.Random(f"bare {job.number} of {seed}").random() < 0.75,
            numbers=_draw_numbers(seed, job),
        )
        for job in drawn
    )
    jobs = tuple(replace(job, collectives=_draw_named(seed, job)) for job in jobs)
    workers, switches = [len(each.workers) for each in testbed.placements], len(testbed.topology.switches)
    least = len(workers) * max(*workers, switches)
    links, coalesce_us = _draw_links(draw, testbed.topology), draw.choice((0, 0, 3, 20))
    draw.random(), draw.random()  # unused draws, kept so that every seed still gives the same schedule
    schedule = SoakSchedule(
        seed,
        testbed,
        jobs,
        links,
        coalesce_us,
        least + draw.choice((0, 2, 8, 200)),
        draw.choice((draw.randrange(2**32), 2**32 - draw.randint(1, 3000))),
        _draw_events(draw, testbed, jobs),
        0,
    )
    if seed % 4 == _MOVING:
        schedule = _with_patterns(schedule)
    later_us = round(10 ** random.Random(f"calm {seed}").uniform(1.5, 5))
    # after all events, and before the end of most schedules
    return replace(_offered(schedule), calm_us=later_us + max(map(end_us, schedule.events), default=0))


def _with_patterns(schedule: SoakSchedule) -> SoakSchedule:
    """Return the schedule with most collectives replaced by reduce-scatter, all-gather or broadcast."""
    draw = random.Random(f"patterns {schedule.seed}")

    def changed(each: CollectivePlan, ranks: int) -> CollectivePlan:
        kind = draw.choice(("allreduce", "reduce-scatter", "reduce-scatter", "all-gather", "broadcast"))
        if kind == "allreduce":
            return each
        if kind == "broadcast":
            return replace(each, pattern=Pattern.GATHER, target=draw.randrange(ranks), average=False)
        pattern = Pattern.GATHER if kind == "all-gather" else Pattern.SCATTER
        average = each.average and pattern is Pattern.SCATTER
        return replace(each, pattern=pattern, target=wire.TARGET_ALL, average=average)

    def changed_job(job: JobPlan) -> JobPlan:
        ranks = len(schedule.testbed.placements[job.number - 1].workers)
        return replace(job, collectives=tuple(changed(each, ranks) for each in job.collectives))

    return replace(schedule, jobs=tuple(map(changed_job, schedule.jobs)))


def _offered(schedule: SoakSchedule) -> SoakSchedule:
    """Return the schedule without the features that the testbed's program lacks."""
    jobs, events = schedule.jobs, schedule.events
    if Feature.SHARDS in schedule.testbed.lacks:
        jobs = tuple(
            replace(job, collectives=tuple(map(_summed, job.collectives)), bare=False) for job in jobs
        )
    if Feature.PREEMPTION in schedule.testbed.lacks:
        jobs = tuple(replace(job, preempt=False) for job in jobs)
    if Feature.MOVES in schedule.testbed.lacks:
        events = tuple(event for event in events if not isinstance(event, ChangeRegion))
    found = replace(schedule, jobs=jobs, events=events)
    return tofino.offered(found) if schedule.testbed.tofino else found


def _summed(collective: CollectivePlan) -> CollectivePlan:
    if collective.pattern is Pattern.SUM:
        return collective
    return replace(collective, pattern=Pattern.SUM, target=wire.TARGET_ALL)


def _draw_job(draw: random.Random, testbed: SoakTestbed, number: int, generation: int) -> JobPlan:
    shared = testbed.program == "shared"
    slots = testbed.slots[number - 1]
    window = draw.choice(_WINDOWS) if shared else draw.choice((slots // 2, max(1, slots // 4)))
    limit = 2**32 - 2**32 % (2 * window if shared else slots)
    numbers: Encoding = draw.choice(("exponent", "exponent", "fixed"))
    ranks = len(testbed.placements[number - 1].workers)
    return JobPlan(
        number,
        generation,
        window,
        _draw_region(draw) if shared and draw.random() < 0.7 else None,
        shared and draw.random() < 0.5,
        draw.choice((200, 2000, 100_000)),
        draw.choice(CONGESTION_NAMES),
        numbers,
        0 if draw.random() < 0.6 else limit - draw.randint(1, 12),
        tuple(
            _draw_collective(draw, ranks, shared=shared) for _ in range(draw.choices((1, 2, 3), (3, 2, 1))[0])
        ),
    )


def _draw_defector(seed: int, testbed: SoakTestbed, number: int) -> Defector | None:
    draw = random.Random(f"defector {number} of {seed}")
    ranks = len(testbed.placements[number - 1].workers)
    if ranks == 1 or draw.random() > 0.015:
        return None
    return Defector(draw.randrange(ranks), dies=draw.random() < 0.5)


def _draw_numbers(seed: int, job: JobPlan) -> Encoding:
    """Draw the encoding of a job's float32 values: some jobs with "exponent" get a block encoding instead."""
    draw = random.Random(f"blocks {job.number} of {seed}")
    return draw.choice(BLOCKS) if job.numbers == "exponent" and draw.random() < 0.3 else job.numbers


def _draw_named(seed: int, job: JobPlan) -> tuple[CollectivePlan, ...]:
    """Return the collectives of a job; in some jobs, replace them by repetitions of one float32 collective.

    The repetitions have the same name, so that workers predict their exponents. One more collective of `job`
    runs after some or all of the repetitions.
    """
    draw = random.Random(f"names {job.number} of {seed}")
    floats = [each for each in job.collectives if each.dtype == "float32"]
    if not floats or job.numbers != "exponent" or draw.random() < 0.5:
        return job.collectives
    one = replace(draw.choice(floats), named=True, large=False)
    repeated = [replace(one, nonfinite=draw.random() < 0.1) for _ in range(draw.randint(2, 4))]
    at = draw.randint(1, len(repeated))
    return (*repeated[:at], draw.choice(job.collectives), *repeated[at:])


def _draw_region(draw: random.Random) -> Region:
    size = draw.choice((0, 1, 1, 2, 2, 3, 4, 8))
    return Region(draw.randint(0, SHARED_SLOTS - size), size)


def _draw_collective(draw: random.Random, ranks: int, *, shared: bool) -> CollectivePlan:
    dtype: Dtype = draw.choice(("int32", "float32"))
    rare = draw.random()
    longest = draw.choice((1, LANES, 4 * LANES, 4 * LANES, 10 * LANES, 30 * LANES))
    slow = draw.choice((0, 0, 50, 2000))
    reduces = draw.random() < 0.25
    return CollectivePlan(
        dtype,
        0 if draw.random() < 0.03 else draw.randint(1, longest),
        draw.randrange(ranks) if reduces else wire.TARGET_ALL,
        average=dtype == "float32" and draw.random() < 0.2,
        in_place=draw.random() < 0.3,
        large=rare < 0.2,
        nonfinite=dtype == "float32" and rare > 0.93,
        priority=draw.choice((0, 0, 1, 5, 100, 255)),
        waits_us=tuple(draw.randint(0, slow) for _ in range(ranks)),
    )


def _draw_links(draw: random.Random, topology: Topology) -> tuple[Impairments, ...]:
    """Draw the impairments of each link: all links alike, or one bad link, or each link by itself."""
    profile = draw.choice(("none", "all", "all", "one", "each"))
    common = _draw_link(draw)
    bad = draw.randrange(len(topology.links))
    links = []
    for number in range(len(topology.links)):
        delay_us = draw.choice((1, 2, 2, 5, 20))
        if profile == "all" or (profile == "one" and number == bad):
            chosen = common
        elif profile == "each" and draw.random() < 0.5:
            chosen = _draw_link(draw)
        else:
            chosen = (0.0, 0.0, 0.0, 0.0, 100)
        loss, duplicate, reorder, corrupt, reorder_us = chosen
        links.append(
            Impairments(
                *(loss, duplicate, reorder, corrupt), delay_s=delay_us / 1e6, reorder_s=reorder_us / 1e6
            )
        )
    return tuple(links)


def _draw_link(draw: random.Random) -> tuple[float, float, float, float, int]:
    def chance(most: float) -> float:
        return draw.choice((0.0, 0.01, draw.uniform(0, most), draw.uniform(0, most)))

    return chance(0.2), chance(0.2), chance(0.4), chance(0.1), draw.choice((10, 100, 1000))


def _draw_events(
    draw: random.Random, testbed: SoakTestbed, jobs: Sequence[JobPlan]
) -> tuple[TimedFault, ...]:
    events: list[TimedFault] = []
    for _ in range(draw.choices((0, 1, 2, 4), (3, 3, 2, 1))[0]):
        at_s = round(10 ** draw.uniform(0.5, 3.5)) / 1e6
        short_s = draw.choice((0, draw.randint(1, 100), draw.randint(1, 3000))) / 1e6
        switch = draw.choice(testbed.topology.switches).name
        job = draw.choice(jobs)
        name, shares = str(job.number), testbed.placements[job.number - 1].server is not None
        kind = draw.choice(("job", "server", "server", "resize", "resize", "congest", "cut", "strangers"))
        if kind == "job":
            events.append(RestartJob(at_s, name, short_s, draw.random() < 0.5))
        elif kind == "server" and shares:
            events.append(RestartFallback(at_s, name, short_s))
        elif kind == "resize" and shares:
            region = _draw_region(draw)
            events.append(ChangeRegion(at_s, name, region.offset, region.size, switch))
        elif kind == "congest":
            events.append(Congest(at_s, switch, 50e-6 + short_s))
        elif kind == "cut":
            link = draw.choice(testbed.topology.links)
            events.append(LinkFault(at_s, (link.a, link.b), "loss", 1.0, 10e-6 + short_s))
        else:
            kinds = tuple(draw.choice(KINDS) for _ in range(draw.randint(1, 6)))
            events.append(Strangers(at_s, switch, kinds))
    return tuple(sorted(events, key=lambda event: event.at_s))
