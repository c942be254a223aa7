"""The runs of the page on deadlines: those as flows, and the labels of all."""

from __future__ import annotations

import random
import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import Final

from benchmarks.pages.deadlines_packets import (
    CHANGES,
    CHANGING,
    PACKETS,
    SIZES,
    SMALL_ITERATIONS,
    SMALL_SLOTS,
    by_packets,
    small,
    through_changes,
)
from bmv2_topos.harness import Call, ResultRow
from controller.memory.demand import Reading
from controller.simulator.network.run import NetworkTask, run_network
from controller.simulator.network.settings import NetworkSettings
from controller.vocabulary import Job, Topology, fabrics

SEEDS: Final = (0, 1, 2, 3, 4, 1001, 1002, 1003, 1004, 1005)
"""Of which the latter half was drawn after the policies were as they are."""
STATIC, SHARED, PREEMPTIVE, DEADLINE, LAZY = "static", "shared", "preemptive", "deadline", "deadline-lazy"
ENDING, EARLIEST = "preemptive-ending", "earliest"
POLICIES: Final = (STATIC, SHARED, PREEMPTIVE, ENDING, EARLIEST, DEADLINE, LAZY)
BY_PACKETS: Final = tuple(name for name in POLICIES if name != ENDING)
"""Packet by packet no job is ended."""
EDF: Final = "edf"
"""A scheduler that is told the deadlines."""
JOBS: Final = 24
RATE_BPS: Final = 100e9 * 256 / 326
"""Gradients on a link of 100 Gb/s."""
HOLD_S: Final = 40e-6
FULL: Final = round(RATE_BPS * HOLD_S / 8 / 256)
"""Slots with which one job is summed at all of its link's rate."""
LOAD: Final = 6
"""Jobs at a time, on average."""
SERVERS: Final = 12
"""Servers that jobs have in common where they wait for GPUs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """Memory in parts of `FULL`; `gpus` of each of `SERVERS`, 0: jobs have servers of their own."""

    memory: float = 1.0
    slack: float = 1.5
    load: float = LOAD
    reading: Reading = "measured"
    period_s: float = 5.0
    gpus: int = 0
    scheduler: str = "fifo-backfill"


PARTS: Final[Mapping[str, Sequence[Setting]]] = {
    "memory": [Setting(memory=m, slack=s) for m in (0.5, 1.0, 2.0, 4.0) for s in (1.2, 1.5, 2.0)],
    "load": [Setting(memory=2.0, slack=1.2, load=load) for load in (3, 6, 12)],
    "reading": [Setting(slack=slack, reading="article") for slack in (1.2, 1.5)],
    "period": [Setting(memory=2.0, slack=1.2, period_s=period_s) for period_s in (0.0, 1.0)],
    "waiting": [
        Setting(memory=2.0, slack=2.0, gpus=2, scheduler=name) for name in ("fifo-backfill", "srsf", EDF)
    ],
}
QUICK: Final = (Setting(memory=1.0), Setting(memory=2.0))
BY_DEADLINE: Final = ("reading", "period")
"""Parts of what only policies that know deadlines take note of."""


def scenarios(quick: bool) -> list[Call]:
    """Return all runs; as flows they take a fifth of a second each, packet by packet three."""
    return [*_flows(quick), *_packets(quick), *_changes(quick)]


def _flows(quick: bool) -> Iterator[Call]:
    for part, settings in PARTS.items():
        for setting in settings:
            if quick and setting not in QUICK:
                continue
            for policy in (DEADLINE, LAZY) if part in BY_DEADLINE else POLICIES:
                for seed in SEEDS[:1] if quick else SEEDS:
                    labels = {"part": part, **asdict(setting), "policy": policy, "seed": seed}
                    yield Call(labels=labels, call=partial(simulated, setting, policy, seed))


def _packets(quick: bool) -> Iterator[Call]:
    iterations = 2 if quick else SMALL_ITERATIONS
    for slots in SMALL_SLOTS[:1] if quick else SMALL_SLOTS:
        for policy in (SHARED, DEADLINE) if quick else BY_PACKETS:
            for seed in SEEDS[:1] if quick else SEEDS:
                case = small(seed, slots, policy, iterations)
                yield Call(
                    labels={"part": PACKETS, "policy": policy, "slots": slots, "seed": seed},
                    call=partial(by_packets, case),
                    elements=case.elements,
                )


def _changes(quick: bool) -> Iterator[Call]:
    job = replace(CHANGING, iterations=12) if quick else CHANGING
    for sizes in SIZES[:1] if quick else SIZES:
        for seed in SEEDS[:1] if quick else SEEDS:
            yield Call(
                labels={"part": CHANGES, "sizes": " → ".join(map(str, sizes)), "seed": seed},
                call=partial(through_changes, job, sizes, seed),
                elements=job.workers * job.iterations * sum(job.tensors),
            )


def jobs_of(seed: int, setting: Setting) -> tuple[list[Job], Topology]:
    """Return jobs of four workers, half of them with deadlines of `slack` times what they take alone."""
    rng = random.Random(seed)
    jobs: list[Job] = []
    now_s = 0.0
    for number in range(JOBS):
        size = rng.choice((50, 100, 200)) * 10**6
        sends_s = size * 8 / RATE_BPS
        compute_s, iterations = sends_s * rng.choice((0.5, 1, 2)), rng.randrange(100, 400)
        time_s = iterations * (compute_s + sends_s)
        own = tuple(f"h{5 * number + place}" for place in range(1, 5))
        job = Job(
            name=f"j{number}",
            workers=4,
            layers_bytes=(size,),
            iterations=iterations,
            compute_s=compute_s,
            arrival_s=now_s,
            hold_s=HOLD_S,
            deadline_s=setting.slack * time_s if rng.random() < 0.5 else None,
        )
        jobs.append(job if setting.gpus else replace(job, servers=own, fallback=f"h{5 * number + 5}"))
        now_s += rng.expovariate(1.0) * time_s / setting.load
    servers, gpus = (SERVERS, setting.gpus) if setting.gpus else (5 * JOBS, 1)
    return jobs, fabrics.star(servers, fabrics.Parts(gpus=gpus, slots=round(setting.memory * FULL)))


def simulated(setting: Setting, policy: str, seed: int) -> ResultRow:
    """Return misses and mean times of the jobs, as flows."""
    jobs, topology = jobs_of(seed, setting)
    chosen = NetworkSettings(
        placement="gpu-balance",
        memory=policy,
        reading=setting.reading,
        period_s=setting.period_s,
        window=0,
        seed=seed,
    )
    outcome = run_network(
        NetworkTask(jobs=jobs, topology=topology, scheduler=setting.scheduler, settings=chosen)
    )
    found, metrics = outcome.simulated, outcome.metrics
    times: dict[bool, list[float]] = {True: [], False: []}
    for each in found.result.jobs:
        if each.completed:
            times[found.jobs[each.spec.name].deadline_s is not None].append(each.jct_s)
    return {
        "deadlines": metrics.deadlines,
        "missed": metrics.missed,
        "broken": metrics.broken,
        "ended": metrics.ended,
        "jct_s": metrics.avg_jct_s,
        "wait_s": metrics.avg_wait_s,
        "due_s": statistics.fmean(times[True]) if times[True] else None,
        "others_s": statistics.fmean(times[False]) if times[False] else None,
    }
