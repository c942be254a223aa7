"""Slot addressing: a job's packets take slots one after the other from a hashed start, or by one hash each.

Jobs share one region whose size is swept, sizes that are no powers of two included. The experiment measures
the cost of each way, and whether more memory is ever slower: policies that hand out slots rely on that.
"""

from __future__ import annotations

import itertools
import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from benchmarks.pages.preemption_mixes import FAVOURABLE, IN_FLIGHT, MIXES, communicating
from bmv2_topos.harness import (
    Experiment,
    ResultRow,
    Scenario,
    column,
    markdown,
    number,
    selected,
    spread,
)
from bmv2_topos.plots import draw_lines, ticks
from bmv2_topos.testbeds.virtual import Report, VirtualSettings
from controller.vocabulary import Job, Link

SEEDS: Final = (1, 2, 3, 4, 5)
SLOTS: Final = (64, 100, 128, 256, 400, 512)
FEWER: Final = (16, 32, 48)
"""More sizes for one job: less than a window."""
ITERATIONS: Final = 5
FCFS, PREEMPT = "first come", "preemption"
CONSECUTIVE, HASHED, EXCLUSIVE = "consecutive", "hashed", "own slots"
FAR_S: Final = 6e-6
"""Delay of longer links: 16 µs more for a round trip, which then takes about twice as long."""
RISE: Final = 1.03
"""Greatest ratio by which more memory may be slower."""

JOB: Final = communicating("job", ITERATIONS)


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """Jobs that share a region, and the network that they are in."""

    jobs: tuple[Job, ...]
    slots: Sequence[int] = SLOTS
    policies: Sequence[str] = (FCFS, PREEMPT)
    delay_s: float = 2e-6
    loss: float = 0.0

    @property
    def in_flight(self) -> int:
        """Packets in flight of one worker of each job, all jobs together."""
        return sum(job.window or 0 for job in self.jobs)


def _equal(count: int) -> tuple[Job, ...]:
    return tuple(replace(JOB, name=f"job {number}") for number in range(1, count + 1))


ONE, FAR, LOSSY = "1 job", "1 job, longer links", "1 job, 0.1 % of packets lost"
WORKLOADS: Final[Mapping[str, Workload]] = {
    ONE: Workload(jobs=(JOB,), slots=(*FEWER, *SLOTS), policies=(FCFS,)),
    FAR: Workload(jobs=(replace(JOB, window=2 * IN_FLIGHT),), policies=(FCFS,), delay_s=FAR_S),
    LOSSY: Workload(jobs=(JOB,), slots=(*SLOTS, 1024), policies=(FCFS,), loss=1e-3),
    "2 jobs": Workload(jobs=_equal(2)),
    "4 jobs": Workload(jobs=_equal(4)),
    FAVOURABLE: Workload(jobs=MIXES[FAVOURABLE]),
}


def scenarios(quick: bool) -> list[Scenario]:
    """Return the sweep."""
    return list(_scenarios(quick))


def _scenarios(quick: bool) -> Iterator[Scenario]:
    for name, workload in WORKLOADS.items():
        if quick and name in (FAR, FAVOURABLE):
            continue
        sizes = workload.slots[-7::5] if quick else workload.slots
        for policy, slots in itertools.product(workload.policies, sizes):
            for seed in SEEDS[:1] if quick else SEEDS:
                for addressing in (CONSECUTIVE, HASHED, EXCLUSIVE):
                    if addressing == EXCLUSIVE and (name != ONE or slots & (slots - 1)):
                        continue
                    labels: ResultRow = {
                        "setup": name,
                        "policy": policy,
                        "slots": slots,
                        "addressing": addressing,
                    }
                    jobs = tuple(replace(job, preempt=policy == PREEMPT) for job in workload.jobs)
                    yield Scenario(
                        labels={**labels, "seed": seed},
                        jobs=tuple(replace(job, iterations=2) for job in jobs) if quick else jobs,
                        settings=_settings(addressing, slots, seed),
                        link=Link("a", "b", delay_s=workload.delay_s, loss=workload.loss),
                    )


def _settings(addressing: str, slots: int, seed: int) -> VirtualSettings:
    settings = VirtualSettings(slots=slots, seed=seed, samples=0)
    match addressing:
        case "hashed":
            return replace(settings, defines=(("ADDRESSING", "HASHED"),))
        case "own slots":
            return replace(settings, program="exclusive")
        case _:
            return settings


def measure(report: Report) -> ResultRow:
    """Return the columns that a run adds to its labels."""
    outcomes = [job.outcomes for job in report.jobs]
    return {
        "mean_jct_s": report.mean_jct_s,
        "collided": sum(of.get("collided", 0) for of in outcomes),
        "evicted": sum(of.get("evicted", 0) for of in outcomes),
        "sent": sum(job.sent_packets for job in report.jobs),
        "fallback_bytes": sum(job.fallback_bytes for job in report.jobs),
        **{f"jct_{place}_s": job.jct_s for place, job in enumerate(report.jobs, start=1)},
    }


def times(rows: Sequence[ResultRow], setup: str, policy: str, addressing: str) -> dict[int, float]:
    """Return the mean completion time over the seeds, by slots."""
    of = selected(rows, setup=setup, policy=policy, addressing=addressing)
    return {
        slots: statistics.fmean(column(of, "mean_jct_s", slots=slots))
        for slots in dict.fromkeys(int(number(row, "slots")) for row in of)
    }


def greatest_rise(by_slots: Mapping[int, float]) -> tuple[float, int, int]:
    """Return the greatest ratio of the time with more slots to that with fewer, and both numbers of slots."""
    pairs = itertools.combinations(sorted(by_slots), 2)
    return max((by_slots[more] / by_slots[fewer], more, fewer) for fewer, more in pairs)


def cases(rows: Sequence[ResultRow]) -> list[tuple[str, str]]:
    """Return the names of workloads and the policies that were run."""
    return list(dict.fromkeys((str(row["setup"]), str(row["policy"])) for row in rows))


def _best(rows: Sequence[ResultRow], setup: str, policy: str) -> float:
    found = [times(rows, setup, policy, addressing) for addressing in (CONSECUTIVE, HASHED)]
    return min(time for by_slots in found for time in by_slots.values())


def tables(rows: Sequence[ResultRow]) -> str:
    """Return a table per workload and policy."""
    parts = []
    for setup, policy in cases(rows):
        best = _best(rows, setup, policy)
        here = selected(rows, setup=setup, policy=policy)
        ways = list(dict.fromkeys(str(row["addressing"]) for row in here))
        lines = []
        for slots in dict.fromkeys(int(number(row, "slots")) for row in here):
            of = {way: selected(here, slots=slots, addressing=way) for way in ways}
            took = [
                spread([time / best for time in column(found, "mean_jct_s")]) if found else ""
                for found in of.values()
            ]
            collided = [
                f"{statistics.fmean(number(row, 'collided') / number(row, 'sent') for row in of[way]):.1%}"
                for way in (CONSECUTIVE, HASHED)
            ]
            lines.append([f"{slots}", *took, *collided])
        title = f"### {setup[0].upper()}{setup[1:]}, {policy}"
        heads = ["slots", *(f"time, {way}" for way in ways)]
        heads += [f"collided, {way}" for way in (CONSECUTIVE, HASHED)]
        parts.append(f"{title} (1.00: {1e3 * best:.2f} ms)\n\n{markdown(heads, lines)}")
    return "\n\n".join(parts)


def plots(rows: Sequence[ResultRow], directory: Path) -> list[Path]:
    """Draw the time over the slots, first come first served, for jobs that are alike."""
    lines = {}
    used = sorted({int(number(row, "slots")) for row in rows})
    for setup in (ONE, "2 jobs", "4 jobs"):
        for way in (CONSECUTIVE, HASHED):
            points = times(rows, setup, FCFS, way).items()
            lines[f"{setup}, {way}"] = [(float(used.index(slots)), 1e3 * time) for slots, time in points]
    path = directory / "addressing.svg"
    draw_lines(
        lines,
        path,
        x="slots of the region that the jobs share",
        y="mean JCT (ms)",
        x_ticks=ticks(used),
        dashed=[name for name in lines if name.endswith(HASHED)],
    )
    return [path]


EXPERIMENT = Experiment(
    name="addressing",
    title="Where packets find their slots: consecutive or hashed",
    scenarios=scenarios,
    measure=measure,
    tables=tables,
    plots=plots,
)
