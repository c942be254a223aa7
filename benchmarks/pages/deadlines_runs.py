"""The runs of the page on deadlines: those as flows, and the labels of all.

Deadlines packet by packet: a few jobs that fight over slots, and one job whose region changes.
"""

from __future__ import annotations

import random
import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import Final

from benchmarks.pages.cases import LANES, WINDOW, Case, alone_s, as_flows, as_packets
from bmv2_topos.harness import Call, ResultRow
from bmv2_topos.testbeds.virtual import VirtualSettings, VirtualTestbed, build
from bmv2_topos.testbeds.virtual.allocation import Allocation, View
from controller.policies.memory.demand import Reading
from controller.simulator.network.run import NetworkTask, run_network
from controller.simulator.network.speed import NetworkSettings
from controller.vocabulary import Job, Region, Topology, fabrics, float32_bytes

FLOWS: Final = "flows"
PACKETS: Final = "packets"
CHANGES: Final = "changes"
SMALL_SLOTS: Final = (64, 128)
SMALL_ITERATIONS: Final = 12
SIZES: Final = ((64, 16, 64), (64, 0, 64), (16, 64, 16))
CHANGING: Final = Job(
    name="a",
    workers=4,
    window=WINDOW,
    iterations=24,
    layers_bytes=float32_bytes((32768,)),
    compute_s=1e-4,
    jitter=0.05,
)
"""The job whose region has each of `SIZES` in turn."""


def small(seed: int, slots: int, policy: str, iterations: int = SMALL_ITERATIONS) -> Case:
    """Return six jobs on one switch, three of them with deadlines."""
    rng = random.Random(seed)
    jobs = tuple(
        Job(
            name=f"job{number}",
            workers=4,
            window=WINDOW,
            iterations=iterations,
            layers_bytes=float32_bytes((rng.choice((8192, 16384)),)),
            compute_s=rng.choice((1e-4, 2e-4)),
            jitter=0.1,
            congestion="aimd",
        )
        for number in range(1, 7)
    )
    due = tuple(
        alone_s(job) * job.iterations * rng.uniform(1.15, 1.5) if number % 2 else None
        for number, job in enumerate(jobs)
    )
    return Case(f"small {seed}", jobs, slots, policy, None, due)


def by_packets(case: Case) -> ResultRow:
    """Return misses of a case and mean times, packet by packet and as flows in phases."""
    due = {job.name: due_s for job, due_s in zip(case.jobs, case.deadlines, strict=True) if due_s}
    done = as_flows(case, "phases").result.jobs
    times: dict[str, dict[str, float | None]] = {
        PACKETS: {name: each.jct_s for name, each in as_packets(case).items()},
        FLOWS: {each.spec.name: each.jct_s for each in done if each.completed},
    }
    columns: dict[str, float | int] = {"deadlines": len(due)}
    for way, found in times.items():
        columns[f"{way}_missed"] = sum((found.get(job) or float("inf")) > due_s for job, due_s in due.items())
        columns[f"{way}_s"] = statistics.fmean(time_s for time_s in found.values() if time_s is not None)
    return columns


def through_changes(job: Job, sizes: Sequence[int], seed: int) -> ResultRow:
    """Return mean iterations of a job with each size of a region, the first two after a change apart."""
    topology, placements = build((job,), None, servers=True)
    settings = VirtualSettings(slots=128, lanes=LANES, samples=0, seed=seed)
    plan = _Plan(job, sizes)
    allocation = Allocation(plan, period_s=20e-6)
    report = VirtualTestbed(topology, (job,), placements, settings, allocation=allocation).run()
    (done,) = report.jobs
    return {
        **by_size(done.iteration_s, plan.at),
        "resent": done.resent_packets,
        "sent": done.sent_packets,
    }


def by_size(iteration_s: Sequence[float], at: Sequence[int]) -> ResultRow:
    """Return mean iterations with each size, given after `at` of them: the first two, and from the fourth."""
    row: dict[str, float] = {}
    for place, (begin, end) in enumerate(zip(at, [*at[1:], len(iteration_s)], strict=True)):
        times = iteration_s[begin:end]
        row[f"across_{place}_s"] = statistics.fmean(times[:2])
        row[f"steady_{place}_s"] = statistics.fmean(times[3:])
    return row


class _Plan:
    """Gives a job regions of these sizes in turn, at opposite ends of the memory."""

    def __init__(self, job: Job, sizes: Sequence[int]) -> None:
        self._name = job.name
        self._sizes = sizes
        self._iterations = job.iterations
        self._phase = -1
        self.at: list[int] = []
        """Iterations that were done when each size was given."""

    def __call__(self, view: View) -> dict[str, Region]:
        seen = view.jobs.get(self._name)
        if seen is None or seen.leaving:
            return {}
        phase = min(seen.iterations_done * len(self._sizes) // self._iterations, len(self._sizes) - 1)
        if phase == self._phase:
            return {}
        self._phase = phase
        self.at.append(seen.iterations_done)
        return {self._name: Region(64 * (phase % 2), self._sizes[phase])}


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
