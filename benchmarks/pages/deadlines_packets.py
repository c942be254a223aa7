"""Deadlines packet by packet: a few jobs that fight over slots, and one job whose region changes."""

from __future__ import annotations

import random
import statistics
from collections.abc import Sequence
from typing import Final

from benchmarks.pages.cases import LANES, WINDOW, Case, alone_s, as_flows, as_packets
from bmv2_topos.harness import ResultRow
from bmv2_topos.testbeds.virtual import VirtualSettings, VirtualTestbed, build
from bmv2_topos.testbeds.virtual.allocation import Allocation, View
from controller.vocabulary import Job, Region, float32_bytes

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
