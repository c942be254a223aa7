"""The runs of the page on validation: scenarios by packets and as flows, and one job with so many slots."""

from __future__ import annotations

import math
import random
import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Final

import numpy as np

from benchmarks.pages.cases import LANES, WINDOW, Case, alone_s, as_flows, as_packets
from bmv2_topos.harness import Call, ResultRow, number, selected
from bmv2_topos.testbeds.virtual import VirtualSettings, VirtualTestbed, build
from controller.vocabulary import Job, float32_bytes

SAME: Final = 0.01
"""Times that differ by less are of one rank."""


PHASES, AVERAGE = "phases", "average"


@dataclass(frozen=True, slots=True, kw_only=True)
class JobTimes:
    """One job of a scenario: its completion times, in seconds, and the packets that it sent."""

    case: str
    memory: str
    jobs: int
    slots: int
    job: str
    packets_s: float
    sent: float
    resent: float
    flows_s: Mapping[str, float]
    """By model."""

    @property
    def kind(self) -> str:
        """What the scenario is one of: `SWITCH`, `RACKS`, `SETS`."""
        return self.case.split()[0]

    def error(self, model: str = PHASES) -> float:
        """Return the relative error of the completion time as flows."""
        return self.flows_s[model] / self.packets_s - 1


def jobs_of(rows: Sequence[ResultRow]) -> list[JobTimes]:
    """Return all jobs of all scenarios."""
    return [
        JobTimes(
            case=str(row["case"]),
            memory=str(row["memory"]),
            jobs=int(number(row, "jobs")),
            slots=int(number(row, "slots")),
            job=name,
            packets_s=number(row, f"{name}.packets_s"),
            sent=number(row, f"{name}.sent"),
            resent=number(row, f"{name}.resent"),
            flows_s={model: number(row, f"{name}.{model}_s") for model in MODELS},
        )
        for row in selected(rows, part=JOBS)
        for name in (key.removesuffix(".packets_s") for key in row if key.endswith(".packets_s"))
    ]


def sizes(jobs: Sequence[JobTimes], model: str) -> list[float]:
    """Return the errors without their signs, the smallest first."""
    return sorted(abs(job.error(model)) for job in jobs)


def p95(values: Sequence[float]) -> float:
    """Return the 95th percentile of sorted values."""
    return values[min(len(values) - 1, math.ceil(0.95 * len(values)) - 1)]


def means(jobs: Sequence[JobTimes], case: str) -> dict[str, list[float]]:
    """Return mean completion times of a set's jobs, in seconds, by policy: by packets and by model."""
    result: dict[str, list[float]] = {"packets": [], **{model: [] for model in MODELS}}
    for memory in POLICIES:
        here = [job for job in jobs if (job.case, job.memory) == (case, memory)]
        result["packets"].append(statistics.fmean(job.packets_s for job in here))
        for model in MODELS:
            result[model].append(statistics.fmean(job.flows_s[model] for job in here))
    return result


def correlations(jobs: Sequence[JobTimes], model: str) -> dict[str, float]:
    """Return the rank correlation of policies in packets and as flows, by set of jobs."""
    cases = dict.fromkeys(job.case for job in jobs if job.kind == SETS)
    found = {case: means(jobs, case) for case in cases}
    return {case: _spearman(by["packets"], by[model]) for case, by in found.items()}


def _spearman(one: Sequence[float], other: Sequence[float]) -> float:
    """Return the rank correlation; times that are nearly the same are of one rank."""
    a, b = (_rank(values) for values in (one, other))
    if np.std(a) == 0 or np.std(b) == 0:
        return 1.0 if np.std(a) == np.std(b) else 0.0
    return float(np.corrcoef(a, b)[0, 1])


def _rank(values: Sequence[float]) -> list[float]:
    return [
        sum(other < value * (1 - SAME) for other in values)
        + (sum(abs(other / value - 1) <= SAME for other in values) - 1) / 2
        for value in values
    ]


MODELS: Final = (PHASES, AVERAGE)
SHARED, STATIC, DEADLINE, PREEMPTIVE = "shared", "static", "deadline", "preemptive"
POLICIES: Final = (SHARED, STATIC, DEADLINE, PREEMPTIVE)
SWITCH, RACKS, SETS = "switch", "racks", "policies"
"""First words of the scenarios' names."""
COUNTS: Final = (1, 2, 3, 4, 6, 8, 12, 16)
"""Jobs of random scenarios."""
QUICK: Final = ("racks 32", "policies 2")
JITTERS: Final = (0.0, 0.05, 0.1)
BY_ARTICLE: Final = 35
"""Slots for all of the link's rate, if they are held for a round trip."""
HELD_SLOTS: Final = (16, BY_ARTICLE, WINDOW, 2 * WINDOW)
HELD_JOB: Final = Job(
    name="a", workers=4, window=WINDOW, iterations=6, layers_bytes=float32_bytes((65536,)), compute_s=3e-4
)
JOBS, HELD = "jobs", "held"


def scenarios(quick: bool) -> list[Call]:
    """Return all runs."""
    return [*_both_ways(quick), *_held(quick)]


def _both_ways(quick: bool) -> Iterator[Call]:
    for case in cases():
        if not quick or case.name in QUICK:
            yield Call(
                labels={
                    "part": JOBS,
                    "case": case.name,
                    "memory": case.memory,
                    "jobs": len(case.jobs),
                    "slots": case.slots,
                },
                call=partial(both_ways, case),
                elements=case.elements,
            )


def _held(quick: bool) -> Iterator[Call]:
    for jitter in JITTERS[:2] if quick else JITTERS:
        for slots in HELD_SLOTS[1:3] if quick else HELD_SLOTS:
            job = replace(HELD_JOB, jitter=jitter, iterations=1 if quick else HELD_JOB.iterations)
            yield Call(
                labels={"part": HELD, "jitter": jitter, "slots": slots},
                call=partial(held, job, slots),
                elements=job.workers * job.iterations * sum(job.tensors),
            )


def cases() -> list[Case]:
    """Return all scenarios."""
    return [*_random(), *_by_policy()]


def _random() -> Iterator[Case]:
    """Yield 1 to 16 jobs of random sizes on one switch or two racks, with ample or scarce memory."""
    for seed in range(40):
        rng = random.Random(seed)
        count = COUNTS[seed % 8]
        shape = (2, 2) if seed % 3 == 2 else None
        jobs = tuple(
            Job(
                name=f"job{number}",
                workers=rng.choice((2, 3, 4)) if shape is None else 4,
                window=WINDOW,
                iterations=rng.randrange(4, 10),
                layers_bytes=float32_bytes(
                    tuple(rng.choice((4096, 8192, 16384, 32768)) for _ in range(rng.choice((1, 2, 3))))
                ),
                compute_s=rng.choice((1e-4, 2e-4, 4e-4)),
                jitter=rng.choice((0.0, 0.05, 0.1)),
                congestion="aimd",
                arrival_s=rng.choice((0.0, 1e-3, 2e-3)),
            )
            for number in range(1, count + 1)
        )
        slots = rng.choice((32 * count, 64 * count, 8192, 8192))
        yield Case(f"{RACKS if shape else SWITCH} {seed}", jobs, slots, SHARED, shape)


def _by_policy() -> Iterator[Case]:
    """Yield the same jobs under each policy, so that policies can be ranked."""
    for seed in range(6):
        rng = random.Random(1000 + seed)
        count = (4, 8)[seed % 2]
        jobs = tuple(
            Job(
                name=f"job{number}",
                workers=4,
                window=WINDOW,
                iterations=6,
                layers_bytes=float32_bytes((rng.choice((8192, 16384)),)),
                compute_s=rng.choice((1e-4, 3e-4)),
                jitter=0.1,
                congestion="aimd",
            )
            for number in range(1, count + 1)
        )
        slots = rng.choice((16, 24, 32)) * count
        times_s = [alone_s(job) * job.iterations for job in jobs]
        deadlines = tuple(
            time_s * rng.uniform(1.15, 1.6) if number < count // 2 else None
            for number, time_s in enumerate(times_s)
        )
        for memory in POLICIES:
            yield Case(f"{SETS} {seed}", jobs, slots, memory, None, deadlines)


def both_ways(case: Case) -> ResultRow:
    """Return each job's completion times, packet by packet and as flows, and the packets that it sent.

    With deadlines also how many are missed, packet by packet and as flows, and how many of those that are
    missed in phases are of jobs that had been granted slots on arrival, and lost them.
    """
    packets = as_packets(case)
    flows = {model: as_flows(case, model) for model in MODELS}
    times = {model: {each.spec.name: each.jct_s for each in flows[model].result.jobs} for model in MODELS}
    row: dict[str, float | int | None] = {}
    due = {job.name: due_s for job, due_s in zip(case.jobs, case.deadlines, strict=False) if due_s}
    if due:
        row["due"] = len(due)
        row["packets_missed"] = sum((packets[name].jct_s or math.inf) > due_s for name, due_s in due.items())
        row |= {f"{model}_missed": len(flows[model].missed) for model in MODELS}
        row["broken"] = sum(each.spec.name in flows[PHASES].lost for each in flows[PHASES].missed)
    for name, packet in packets.items():
        row[f"{name}.packets_s"] = packet.jct_s
        row[f"{name}.sent"] = packet.sent_packets
        row[f"{name}.resent"] = packet.resent_packets
        for model in MODELS:
            row[f"{name}.{model}_s"] = times[model][name]
    return row


def held(job: Job, slots: int) -> ResultRow:
    """Return the seconds per iteration of a job with this number of slots."""
    topology, placements = build((job,), None, servers=True)
    settings = VirtualSettings(slots=slots, lanes=LANES, samples=0)
    report = VirtualTestbed(topology, (job,), placements, settings).run()
    return {"iteration_s": report.jobs[0].mean_iteration_s}
