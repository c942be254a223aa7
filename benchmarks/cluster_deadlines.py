"""The tables of docs/results/deadlines.md: who meets deadlines when jobs fight over switch memory alone.

`python -m benchmarks.cluster_deadlines --output docs/results` simulates jobs that all have servers of their
own on one switch, over memory, slack and load, under each policy for memory, five seeds each; with GPUs that
they have to wait for; with the article's formula; packet by packet, for the smallest setting; and one job
whose region grows and shrinks while it runs.
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from benchmarks.cluster_validation import WINDOW, Case, alone_s, as_flows, as_packets
from benchmarks.pages import check, fill
from bmv2_topos.experiments.harness import markdown
from bmv2_topos.jobfile import JobEntry
from bmv2_topos.testbeds.virtual import VirtualSettings, VirtualTestbed, build
from bmv2_topos.testbeds.virtual.allocation import Allocation, View
from controller.memory.demand import Reading
from controller.model import Region
from controller.simulator.network.run import NetworkTask, run_network
from controller.simulator.network.settings import NetworkSettings
from controller.simulator.pool import run_each
from controller.workload import Cluster, TrainingJob, fabrics

NAME = "deadlines"
SEEDS = range(5)
POLICIES = ("static", "shared", "preemptive", "deadline", "deadline-lazy")
JOBS, RATE_BPS, HOLD_S = 24, 100e9 * 256 / 326, 40e-6
FULL = round(RATE_BPS * HOLD_S / 8 / 256)
"""Slots with which one job is summed at all of its link's rate."""
LOAD = 6
"""Jobs at a time, on average."""

Row = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """Memory in parts of `FULL`; `gpus` of each of 12 common servers, 0: jobs have servers of their own."""

    memory: float = 1.0
    slack: float = 1.5
    load: float = LOAD
    reading: Reading = "measured"
    period_s: float = 5.0
    gpus: int = 0


OVER_MEMORY = tuple(Setting(memory=m, slack=s) for m in (0.5, 1.0, 2.0, 4.0) for s in (1.2, 1.5, 2.0))
OVER_LOAD = tuple(Setting(memory=2.0, slack=1.2, load=load) for load in (3, 6, 12))
READINGS = tuple(Setting(slack=slack, reading="article") for slack in (1.2, 1.5))
PERIODS = tuple(Setting(memory=2.0, slack=1.2, period_s=period_s) for period_s in (0.0, 1.0))
WAITING = (Setting(memory=2.0, slack=2.0, gpus=2),)


def jobs_of(seed: int, setting: Setting) -> tuple[list[TrainingJob], Cluster]:
    """Return jobs of four workers, half of them with deadlines of `slack` times what they take alone."""
    rng = random.Random(seed)
    jobs: list[TrainingJob] = []
    now_s = 0.0
    for number in range(JOBS):
        size = rng.choice((50, 100, 200)) * 10**6
        sends_s = size * 8 / RATE_BPS
        compute_s, iterations = sends_s * rng.choice((0.5, 1, 2)), rng.randrange(100, 400)
        time_s = iterations * (compute_s + sends_s)
        own = tuple(f"h{5 * number + place}" for place in range(1, 5))
        job = TrainingJob(
            name=f"j{number}",
            workers=4,
            layers_bytes=(size,),
            iterations=iterations,
            compute_s=compute_s,
            arrival_s=now_s,
            hold_s=HOLD_S,
            deadline_s=now_s + setting.slack * time_s if rng.random() < 0.5 else None,
        )
        jobs.append(job if setting.gpus else replace(job, servers=own, fallback=f"h{5 * number + 5}"))
        now_s += rng.expovariate(1.0) * time_s / setting.load
    servers, gpus = (12, setting.gpus) if setting.gpus else (5 * JOBS, 1)
    return jobs, fabrics.star(servers, fabrics.Parts(gpus=gpus, slots=round(setting.memory * FULL)))


def simulated(processes: int) -> list[Row]:
    """Return a row for each setting, policy and seed."""
    keys = [
        (part, setting, policy, seed)
        for part, settings in (
            ("memory", OVER_MEMORY),
            ("load", OVER_LOAD),
            ("reading", READINGS),
            ("period", PERIODS),
            ("waiting", WAITING),
        )
        for setting in settings
        for policy in (POLICIES if part not in ("reading", "period") else POLICIES[3:])
        for seed in SEEDS
    ]
    tasks = []
    for _, setting, policy, seed in keys:
        jobs, cluster = jobs_of(seed, setting)
        chosen = NetworkSettings(
            placement="gpu-balance",
            memory=policy,
            reading=setting.reading,
            period_s=setting.period_s,
            window=0,
            seed=seed,
        )
        task = NetworkTask(jobs=jobs, cluster=cluster, scheduler="fifo-backfill", settings=chosen)
        tasks.append(task)
    rows = []
    for (part, setting, policy, seed), outcome in zip(
        keys, run_each(run_network, tasks, processes=processes), strict=True
    ):
        found = outcome.simulated
        times: dict[bool, list[float]] = {True: [], False: []}
        for each in found.result.jobs:
            if each.completed:
                times[found.jobs[each.spec.id].deadline_s is not None].append(each.jct_s)
        rows.append(
            {
                "part": part,
                **{name: getattr(setting, name) for name in setting.__dataclass_fields__},
                "policy": policy,
                "seed": seed,
                "deadlines": outcome.metrics.deadlines,
                "missed": outcome.metrics.missed,
                "ended": outcome.metrics.ended,
                "jct_s": outcome.metrics.avg_jct_s,
                "wait_s": outcome.metrics.avg_wait_s,
                "due_s": statistics.fmean(times[True]) if times[True] else None,
                "others_s": statistics.fmean(times[False]) if times[False] else None,
            }
        )
    return rows


# ---------------------------------------------------------------------- packet by packet


def small(seed: int, slots: int, policy: str) -> Case:
    """Return six jobs on one switch, three of them with deadlines."""
    rng = random.Random(seed)
    jobs = tuple(
        JobEntry(
            name=f"job{number}",
            workers=4,
            window=WINDOW,
            iterations=12,
            tensors=(rng.choice((8192, 16384)),),
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


def by_packets(task: tuple[int, int, str], progress: object = None) -> Row:
    """Return misses of one small case, packet by packet and as flows."""
    seed, slots, policy = task
    case = small(seed, slots, policy)
    packets = {name: each.jct_s for name, each in as_packets(case).items()}
    flows = {each.spec.id: each.jct_s for each in as_flows(case, "phases").result.jobs if each.completed}
    row: Row = {"part": "packets", "policy": policy, "slots": slots, "seed": seed}
    for name, found in (("packets", packets), ("flows", flows)):
        due = [(job.name, due_s) for job, due_s in zip(case.jobs, case.deadlines, strict=True) if due_s]
        row[f"{name}_missed"] = sum((found.get(job) or float("inf")) > due_s for job, due_s in due)
        row["deadlines"] = len(due)
        row[f"{name}_s"] = statistics.fmean(time_s for time_s in found.values() if time_s is not None)
    return row


def through_changes() -> list[Row]:
    """Return the iterations of one job whose region changes after a third and two thirds of them."""
    job = JobEntry(
        name="a", workers=4, window=WINDOW, iterations=24, tensors=(32768,), compute_s=1e-4, jitter=0.05
    )
    rows = []
    for sizes in ((64, 16, 64), (64, 0, 64), (16, 64, 16)):
        for seed in SEEDS:
            topology, placements = build((job,), None, servers=True)
            settings = VirtualSettings(slots=128, lanes=64, samples=0, seed=seed)
            plan = _Plan(sizes, job.iterations)
            report = VirtualTestbed(
                topology, (job,), placements, settings, allocation=Allocation(plan, period_s=20e-6)
            ).run()
            done = report.jobs[0]
            rows.append(
                {
                    "part": "changes",
                    "sizes": sizes,
                    "seed": seed,
                    "at": plan.at,
                    "iteration_s": done.iteration_s,
                    "resent": done.resent_packets,
                    "sent": done.sent_packets,
                }
            )
    return rows


class _Plan:
    """Gives a job regions of these sizes in turn, at opposite ends of the memory."""

    def __init__(self, sizes: Sequence[int], iterations: int) -> None:
        self._sizes = sizes
        self._iterations = iterations
        self._phase = -1
        self.at: list[int] = []
        """Iterations that were done when each size was given."""

    def __call__(self, view: View) -> dict[str, Region]:
        seen = view.jobs.get("a")
        if seen is None or seen.leaving:
            return {}
        phase = min(seen.iterations_done * len(self._sizes) // self._iterations, len(self._sizes) - 1)
        if phase == self._phase:
            return {}
        self._phase = phase
        self.at.append(seen.iterations_done)
        return {"a": Region(64 * (phase % 2), self._sizes[phase])}


# ---------------------------------------------------------------------- the page


def text(rows: Sequence[Row]) -> str:
    """Return all tables."""
    parts = ["Missed deadlines of all five seeds (least..most of a seed), over memory and slack:"]
    parts += [_misses(rows, "memory", OVER_MEMORY, lambda s: f"{s.memory:g} x, slack {s.slack:g}")]
    parts += [
        "Mean completion times of the jobs with deadlines that were done / of the others, against `shared`:"
    ]
    parts += [_times(rows, "memory", OVER_MEMORY, lambda s: f"{s.memory:g} x, slack {s.slack:g}")]
    parts += ["Misses and times over load, twice the memory of one job, slack 1.2:"]
    parts += [_misses(rows, "load", OVER_LOAD, lambda s: f"{s.load:g} jobs at a time")]
    parts += [_times(rows, "load", OVER_LOAD, lambda s: f"{s.load:g} jobs at a time")]
    parts += ["The same with 24 GPUs that jobs wait for, slack 2:"]
    parts += [_misses(rows, "waiting", WAITING, lambda s: f"{s.memory:g} x, {12 * s.gpus} GPUs")]
    waits = [row for row in rows if row["part"] == "waiting"]
    parts += [f"Jobs wait {statistics.fmean(row['wait_s'] for row in waits):.1f} s on average there."]
    parts += ["The article's formula (a round trip of 20 µs, where slots are held for 40 µs):"]
    parts += [_misses(rows, "reading", READINGS, lambda s: f"1 x, slack {s.slack:g}", POLICIES[3:])]
    parts += ["Memory divided when jobs start and end only, and each second (above: every 5 s):"]
    label = {0.0: "starts and ends only"}
    parts += [
        _misses(rows, "period", PERIODS, lambda s: label.get(s.period_s, f"{s.period_s:g} s"), POLICIES[3:])
    ]
    return "\n\n".join([*parts, *_small(rows), *_changes(rows)])


def _misses(
    rows: Sequence[Row], part: str, settings: Sequence[Setting], label: Any, names: Sequence[str] = POLICIES
) -> str:
    cells = []
    for setting in settings:
        line = [label(setting)]
        for name in names:
            here = _of(rows, part, setting, name)
            counts = [row["missed"] for row in here]
            ended = sum(row["ended"] for row in here)
            line.append(_counts(counts) + (f", {ended} ended" if ended else ""))
        cells.append([*line, str(sum(row["deadlines"] for row in here))])
    return markdown(["setting", *names, "deadlines"], cells)


def _counts(counts: Sequence[int]) -> str:
    return f"{sum(counts)} ({min(counts)}..{max(counts)})"


def _times(rows: Sequence[Row], part: str, settings: Sequence[Setting], label: Any) -> str:
    cells = []
    for setting in settings:
        shared = _of(rows, part, setting, "shared")
        line = [label(setting)]
        for name in POLICIES:
            here = _of(rows, part, setting, name)
            line.append(f"{_ratio(here, shared, 'due_s')} / {_ratio(here, shared, 'others_s')}")
        cells.append(line)
    return markdown(["setting", *POLICIES], cells)


def _ratio(here: Sequence[Row], base: Sequence[Row], column: str) -> str:
    found = [a[column] / b[column] for a, b in zip(here, base, strict=True) if a[column] and b[column]]
    return f"{statistics.fmean(found):.2f}" if found else "-"


def _of(rows: Iterable[Row], part: str, setting: Setting, policy: str) -> list[Row]:
    wanted = {name: getattr(setting, name) for name in setting.__dataclass_fields__}
    return [
        row
        for row in rows
        if row["part"] == part
        and row["policy"] == policy
        and all(row[name] == value for name, value in wanted.items())
    ]


def _small(rows: Sequence[Row]) -> list[str]:
    here = [row for row in rows if row["part"] == "packets"]
    cells = []
    for slots in dict.fromkeys(row["slots"] for row in here):
        for policy in POLICIES:
            of = [row for row in here if (row["slots"], row["policy"]) == (slots, policy)]
            cells.append(
                [
                    f"{slots} slots, {policy}",
                    *(_counts([row[f"{name}_missed"] for row in of]) for name in ("packets", "flows")),
                    str(sum(row["deadlines"] for row in of)),
                    *(
                        f"{statistics.fmean(row[f'{name}_s'] for row in of) * 1e3:.2f}"
                        for name in ("packets", "flows")
                    ),
                ]
            )
    columns = ["memory, policy", "missed, packets", "missed, flows", "deadlines", "packets, ms", "flows, ms"]
    return [
        f"Six jobs on one switch, packet by packet and as flows in phases, {len(SEEDS)} seeds; a job alone"
        f" needs {WINDOW} slots:",
        markdown(columns, cells),
    ]


def _changes(rows: Sequence[Row]) -> list[str]:
    here = [row for row in rows if row["part"] == "changes"]
    cells = []
    for sizes in dict.fromkeys(tuple(row["sizes"]) for row in here):
        of = [row for row in here if tuple(row["sizes"]) == sizes]
        line = [" → ".join(map(str, sizes))]
        for number in range(len(sizes)):
            steady, across = [], []
            for row in of:
                ends = [*row["at"][1:], len(row["iteration_s"])]
                times = row["iteration_s"][row["at"][number] : ends[number]]
                steady += times[3:]
                across += times[:2]
            line.append(f"{statistics.fmean(steady) * 1e6:.0f}")
            if number:
                line[-1] += f" (first two {statistics.fmean(across) * 1e6:.0f})"
        line.append(f"{sum(row['resent'] for row in of) / sum(row['sent'] for row in of):.1%}")
        cells.append(line)
    columns = ["slots", "before, µs", "after the first change", "after the second", "sent again"]
    return [
        "Iterations of one job whose region changes twice, packet by packet:",
        markdown(columns, cells),
    ]


def main() -> None:
    """Run, print the tables, and write page and rows on request."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--output", type=Path, metavar="DIR", help=f"write {NAME}.json, and into {NAME}.md")
    parser.add_argument("--processes", type=int, default=0)
    given = parser.parse_args()
    if given.output is not None:
        check(given.output / f"{NAME}.md")
    small_ones = [(seed, slots, policy) for slots in (64, 128) for policy in POLICIES for seed in SEEDS]
    rows = [
        *simulated(given.processes),
        *run_each(by_packets, small_ones, processes=given.processes),
        *through_changes(),
    ]
    shown = text(rows)
    print(shown)
    if given.output is not None:
        fill(given.output / f"{NAME}.md", shown)
        document = json.dumps({"name": NAME, "rows": rows}, indent=1)
        (given.output / f"{NAME}.json").write_text(document + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
