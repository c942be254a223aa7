"""Deadlines met when jobs compete for switch memory, and their cost to others, by policy for memory.

As flows, over memory and slack, over load, and where jobs also wait for GPUs.
"""

from __future__ import annotations

import random
import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import Final

from bmv2_topos.harness import Call, Experiment, ResultRow, column, columns, grouped, markdown, selected
from controller.simulator.network.run import NetworkSettings, NetworkTask, run_network
from controller.vocabulary import Job, Topology, fabrics
from controller.vocabulary.lists import by_key

SEEDS: Final = (0, 1, 2, 3, 4, 1001, 1002, 1003, 1004, 1005)
"""Seeds; the latter half was drawn after the policies were finished."""
SHARED: Final = "shared"
POLICIES: Final = (
    "static",
    SHARED,
    "preemptive",
    "earliest",
    "deadline",
    "deadline-lazy",
)
JOBS: Final = 24
RATE_BPS: Final = 100e9 * 256 / 326
"""Gradients on a link of 100 Gb/s."""
HOLD_S: Final = 40e-6
FULL: Final = round(RATE_BPS * HOLD_S / 8 / 256)
"""Slots with which one job is summed at all of its link's rate."""
SERVERS: Final = 12
"""Servers that jobs share in the part in which they wait for GPUs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """Memory in parts of `FULL`, jobs at a time, and GPUs of each of `SERVERS`, 0: jobs have their own."""

    memory: float = 1.0
    slack: float = 1.5
    load: float = 6
    gpus: int = 0
    scheduler: str = "fifo-backfill"

    @property
    def shown(self) -> str:
        """The difference from other settings of the part."""
        if self.gpus:
            return self.scheduler
        return f"{self.memory:g} x, slack {self.slack:g}, {self.load:g} jobs at a time"


MEMORY, LOAD, WAITING = "memory", "load", "waiting"
PARTS: Final[Mapping[str, Sequence[Setting]]] = {
    MEMORY: [Setting(memory=m, slack=s) for m in (0.5, 1.0, 2.0, 4.0) for s in (1.2, 1.5, 2.0)],
    LOAD: [Setting(memory=2.0, slack=1.2, load=load) for load in (3, 6, 12)],
    WAITING: [
        Setting(memory=2.0, slack=2.0, gpus=2, scheduler=name) for name in ("fifo-backfill", "srsf", "edf")
    ],
}
QUICK: Final = (Setting(), Setting(memory=2.0))
TITLES: Final[Mapping[str, str]] = {
    MEMORY: "Over memory and slack",
    LOAD: "Over load",
    WAITING: f"By scheduler, with GPUs that jobs wait for: memory 2 x, slack 2, {2 * SERVERS} GPUs",
}


def scenarios(quick: bool) -> Iterator[Call]:
    """Return all runs, of a fifth of a second each."""
    for part, settings in PARTS.items():
        for setting in settings:
            for policy in POLICIES if not quick or setting in QUICK else ():
                for seed in SEEDS[:1] if quick else SEEDS:
                    labels = {"part": part, **asdict(setting), "policy": policy, "seed": seed}
                    yield Call(labels=labels, call=partial(simulated, setting, policy, seed))


def jobs_of(seed: int, setting: Setting) -> tuple[list[Job], Topology]:
    """Return jobs of four workers, half of them with deadlines of `slack` times their times alone."""
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
    chosen = NetworkSettings(placement="gpu-balance", memory=policy, period_s=5.0, window=0, seed=seed)
    task = NetworkTask(jobs=jobs, topology=topology, scheduler=setting.scheduler, settings=chosen)
    outcome = run_network(task)
    found, metrics = outcome.simulated, outcome.metrics
    completed = [each for each in found.result.jobs if each.completed]
    times = by_key((found.jobs[each.spec.name].deadline_s is not None, each.jct_s) for each in completed)
    return {
        "deadlines": metrics.deadlines,
        "missed": metrics.missed,
        "broken": metrics.broken,
        "ended": metrics.ended,
        "due_s": statistics.fmean(times[True]) if True in times else None,
        "others_s": statistics.fmean(times[False]) if False in times else None,
    }


def tables(rows: Sequence[ResultRow]) -> str:
    """Return misses and times of all settings, part by part."""
    parts = []
    for (part,), here in grouped(rows, "part").items():
        missed, times = [], []
        for setting in PARTS[part]:
            by_policy = {
                name: each for (name,), each in grouped(selected(here, **asdict(setting)), "policy").items()
            }
            if by_policy:
                deadlines = f"{sum(column(by_policy[SHARED], 'deadlines')):.0f}"
                missed.append([setting.shown, *(_missed(each) for each in by_policy.values()), deadlines])
                times.append(
                    [setting.shown, *(_times(each, by_policy[SHARED]) for each in by_policy.values())]
                )
        parts += [f"### {TITLES[part]}", markdown(["missed", *POLICIES, "deadlines"], missed)]
        parts.append(markdown([f"times ÷ {SHARED}", *POLICIES], times))
    return "\n\n".join(parts)


def _missed(rows: Sequence[ResultRow]) -> str:
    counts = column(rows, "missed")
    more = [(sum(column(rows, name)), name) for name in ("ended", "broken")]
    shown = [f"{count:.0f} {name}" for count, name in more if count]
    return ", ".join([f"{sum(counts):.0f} ({min(counts):.0f}..{max(counts):.0f})", *shown])


def _times(rows: Sequence[ResultRow], base: Sequence[ResultRow]) -> str:
    """Return the mean ratios of the times of jobs with and without deadlines, of the seeds that have both."""
    cells = []
    for name in ("due_s", "others_s"):
        pairs = [(a[name], b[name]) for a, b in zip(rows, base, strict=True)]
        found = [a / b for a, b in pairs if isinstance(a, float) and isinstance(b, float)]
        cells.append(f"{statistics.fmean(found):.2f}" if found else "-")
    return " / ".join(cells)


EXPERIMENT = Experiment(
    name="deadlines",
    title="Deadlines and switch memory",
    scenarios=scenarios,
    measure=columns,
    tables=tables,
)
