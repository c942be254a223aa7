"""GPU types, failures and deadlines: one policy for each, beside itself without its parts and baselines.

`python -m benchmarks.schedulers.beyond types|faults|deadlines [--seeds 5] [--gavel FILE] [--json]`: generated
jobs on 64 GPUs, means over the seeds, each relative to ours, seed by seed.
"""

from __future__ import annotations

import json
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from benchmarks.fill import asked, option, print_rows
from controller.policies.family import SimulationConfig
from controller.policies.registry import dress
from controller.policies.scheduling import Submission
from controller.policies.scheduling.deadlines import Slack
from controller.policies.scheduling.speed import Exclusive
from controller.simulator.by_name import make
from controller.simulator.generate import generate
from controller.simulator.policy_run import PolicyRun
from controller.simulator.record import Result
from controller.vocabulary import Cluster

CLUSTER = Cluster.uniform(9, 8)
"""Nine servers: three of each kind of GPUs."""

SHORT_S = 600.0
"""Jobs of up to ten minutes are short."""

Settings = tuple[tuple[str, float], ...]

FAULTS: Settings = (("mtbf_h", 24.0),)
"""A server fails once a day."""


@dataclass(frozen=True, slots=True)
class Row:
    """A policy of a page: its name there, what makes it, and what differs."""

    name: str
    policy: str
    settings: Settings = ()
    make: Callable[[SimulationConfig], PolicyRun] | None = None


def _unforgiving(config: SimulationConfig) -> PolicyRun:
    return PolicyRun(Slack(forgive=False), Exclusive())


PAGES: Mapping[str, tuple[str, Sequence[Row]]] = {
    "types": (
        "types",
        (
            Row("matched", "types:matched"),
            Row("fast-first", "types:fast-first"),
            Row("srsf", "types:srsf"),
            Row("matched, moves at once", "types:matched", (("patience", 0.0),)),
            Row("matched, hardly moves", "types:matched", (("patience", 1000.0),)),
        ),
    ),
    "faults": (
        "",
        (
            Row("healthy", "faults:healthy", FAULTS),
            Row("evacuate", "faults:evacuate", FAULTS),
            Row("srsf", "faults:srsf", FAULTS),
            Row("tiresias", "faults:tiresias", FAULTS),
            Row("healthy, no failures", "faults:healthy", (("mtbf_h", 0.0),)),
        ),
    ),
    "deadlines": (
        "",
        (
            Row("slack", "slack"),
            Row("edf", "edf"),
            Row("srsf", "srsf"),
            Row("tiresias", "tiresias"),
            Row("slack, margin 0", "slack", (("margin", 0.0),)),
            Row("slack, margin 1", "slack", (("margin", 1.0),)),
            Row("slack, does not give up", "slack", (), _unforgiving),
        ),
    ),
}


def figures(result: Result) -> dict[str, float]:
    """Return the figures of a run that the page shows."""
    done = [job for job in result.jobs if job.completed]
    jcts = [job.jct_s for job in done]
    due = [job for job in result.jobs if job.spec.deadline_s is not None]
    free = [job.jct_s for job in done if job.spec.deadline_s is None]
    short = [job.slowdown for job in done if job.alone_s <= SHORT_S]
    return {
        "average_s": statistics.fmean(jcts),
        "median_s": statistics.median(jcts),
        "p99_s": float(np.percentile(jcts, 99)),
        "slowdown": statistics.fmean(job.slowdown for job in done),
        "short_slowdown": statistics.fmean(short),
        "in_time": sum(job.in_time for job in due) / max(1, len(due)),
        "no_deadline_s": statistics.fmean(free),
        "starts": statistics.fmean(job.starts for job in done),
    }


def jobs_of(kind: str, config: SimulationConfig, number: int, load: float) -> list[Submission]:
    """Return generated jobs."""
    return dress(generate(number, CLUSTER, load=load, seed=config.seed), kind, config)


def run(
    page: str, seeds: Sequence[int], number: int, load: float, gavel: Path | None
) -> list[dict[str, object]]:
    """Return the page's rows."""
    kind, rows = PAGES[page]
    found: dict[str, list[dict[str, float]]] = {}
    for seed in seeds:
        for row in rows:
            config = SimulationConfig(
                CLUSTER, pairs=gavel if kind == "types" else None, seed=seed, settings=row.settings
            )
            specs = jobs_of(kind, config, number, load)
            chosen = row.make(config) if row.make else make(row.policy, config)
            found.setdefault(row.name, []).append(figures(chosen.run(specs, CLUSTER)))
    ours = found[rows[0].name]
    table: list[dict[str, object]] = []
    for name, each in found.items():
        ratios = [one["average_s"] / own["average_s"] for one, own in zip(each, ours, strict=True)]
        means = {key: statistics.fmean(one[key] for one in each) for key in each[0]}
        spread = {"times_ours": statistics.fmean(ratios), "least": min(ratios), "most": max(ratios)}
        table.append({"policy": name, **means, **spread})
    return table


def main() -> None:
    """Run the command."""
    given = asked(
        __doc__,
        *(option("page", choices=PAGES), option("--seeds", type=int, default=5)),
        option("--first-seed", type=int, default=0),
        option("--jobs", type=int, default=400),
        option("--load", type=float, default=2.0),
        option("--gavel", type=Path, help="simulation_throughputs.json: measured speeds, for types"),
        option("--json", action="store_true"),
    )
    seeds = range(given.first_seed, given.first_seed + given.seeds)
    rows = run(given.page, seeds, given.jobs, given.load, given.gavel)
    if given.json:
        print(json.dumps(rows, indent=2))
    else:
        print_rows(f"{given.page}: {given.jobs} jobs, {given.seeds} seeds", rows)


if __name__ == "__main__":
    main()
