"""What weave's beliefs are worth when profiles and durations are wrong: each part alone, none, undone.

`python -m benchmarks.schedulers.weave_ablations --output docs/results` runs weave-s with what it believes
changed, SRSF and Muri-S on the 40 generated workloads of `benchmarks.schedulers.short_jobs`, with its errors,
and with `--traces DIR` on trace3 and c1000 below DIR. It writes the tables into weave-beliefs.md, the rows
into weave-beliefs.json.
"""

from __future__ import annotations

import multiprocessing
import statistics
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from benchmarks.fill import asked, check, option, publish
from benchmarks.schedulers.short_jobs import CASES, LOADS, NODES, SEEDS
from benchmarks.schedulers.trace_files import traces
from bmv2_topos.harness import markdown
from controller.policies.family import SimulationConfig
from controller.policies.grouping.efficiency import Profile
from controller.policies.scheduling import JobState, Submission, papers
from controller.policies.scheduling.beliefs import Profiler, Profiles, Spread, profile
from controller.policies.scheduling.papers import PaperConfig
from controller.policies.scheduling.speed import Interleaved
from controller.policies.scheduling.weave import TRUST, Weave
from controller.simulator import measure
from controller.simulator.policy_run import PolicyRun
from controller.simulator.runs import Source
from controller.vocabulary import Cluster

NAME = "weave-beliefs"
OTHERS = ("srsf", "muri-s")
TRACES = ("trace3", "c1000")
FIGURES = {"average": "avg_jct_s", "slowdown": "avg_slowdown"}

Row = dict[str, Any]


class Own(Profiles):
    """Every job is alike to itself only: its own measurement is believed."""

    def like(self, job: JobState, measured: Profile) -> Hashable:
        """Return a key that no other job has."""
        return job.order


class Equal(Profiles):
    """All jobs are believed to use all resources for the same time."""

    def of(self, job: Submission, like: Hashable) -> Submission:
        """Return `job` with a quarter of its iteration on each resource."""
        stages = profile(super().of(job, like))
        return replace(job, stages_s=(sum(stages) / len(stages),) * len(stages))


class Inverted(Profiles):
    """Jobs are believed to use least what they use most."""

    def of(self, job: Submission, like: Hashable) -> Submission:
        """Return `job` with the longest stage's time on the resource of the shortest, and so on."""
        stages = profile(super().of(job, like))
        order = sorted(range(len(stages)), key=stages.__getitem__)
        mirrored = {at: stages[other] for at, other in zip(order, reversed(order), strict=True)}
        return replace(job, stages_s=tuple(mirrored[at] for at in range(len(stages))))


class Contrary(Spread):
    """Durations are taken for right once they were wrong, and for wrong before."""

    @property
    def value(self) -> float:
        """Nothing where the errors were large, infinity elsewhere."""
        return 0.0 if super().value >= TRUST else float("inf")


@dataclass(frozen=True, slots=True)
class Variant:
    """What is believed of profiles and durations."""

    profiles: Callable[[Profiler], Profiles] = Profiles
    spread: Callable[[], Spread] = Spread
    trust: float = TRUST

    def run(self, plain: PaperConfig) -> PolicyRun:
        """Return weave-s with it."""
        policy = Weave(
            Interleaved(contention=(1.0,) * 4),
            profiles=self.profiles(Profiler(plain.noise, plain.seed)),
            spread=self.spread(),
            trust=self.trust,
            told=plain.told,
        )
        return PolicyRun(policy, Interleaved())


OURS = "**both: `weave-s`**"
VARIANTS: Mapping[str, Variant] = {
    OURS: Variant(),
    "neither": Variant(Own, trust=100),
    "profiles averaged, ends always foreseen (`trust=100`)": Variant(trust=100),
    "own profiles, ends foreseen while durations hold": Variant(Own),
    "profiles averaged, ends never foreseen (`trust=0`)": Variant(trust=0),
    "own profiles, ends never foreseen": Variant(Own, trust=0),
    "all jobs' stages equally long": Variant(Equal),
    "stages inverted": Variant(Inverted),
    "ends foreseen only once durations were wrong": Variant(spread=Contrary),
}


@dataclass(frozen=True, slots=True)
class Workload:
    """A trace, or jobs that are generated."""

    load: float = 1.0
    seed: int = 0
    count: int = 0
    trace: Path | None = None

    @property
    def name(self) -> str:
        """The trace's name, or load and seed."""
        if self.trace is None:
            return f"{self.load:g}/{self.seed}"
        return next(name for name in TRACES if name in self.trace.parts or name == self.trace.stem)

    @property
    def nodes(self) -> int:
        """Servers of eight GPUs."""
        return NODES if self.trace is None else 8

    @property
    def source(self) -> Source:
        """Where the jobs come from."""
        return Source(self.trace, "", self.count, self.load, self.seed)


def main() -> None:
    """Run, print the tables, and write page and rows on request."""
    given = asked(
        __doc__,
        option("--output", type=Path, metavar="DIR", help=f"write {NAME}.json, and into {NAME}.md"),
        option("--traces", type=Path, metavar="DIR", help="folder with the public traces"),
        option("--jobs", type=int, default=80, help="of each generated workload; 0: none"),
        option("--first-seed", type=int, default=SEEDS.start),
        option("--processes", type=int, default=1),
    )
    if given.output is not None:
        check(given.output / f"{NAME}.md")
    seeds = range(given.first_seed, given.first_seed + len(SEEDS))
    wanted = [Workload(load, seed, count=given.jobs) for load in LOADS for seed in seeds if given.jobs]
    wanted += (
        [Workload(trace=t.path) for t in traces(given.traces) if t.name in TRACES] if given.traces else []
    )
    with multiprocessing.get_context("forkserver").Pool(given.processes) as pool:
        rows = [row for found in pool.imap(measured, wanted, chunksize=1) for row in found]
    shown = text(rows)
    print(shown)
    if given.output is not None:
        publish(given.output, NAME, shown, rows)


def measured(workload: Workload) -> list[Row]:
    """Return a row for each policy and variant on one workload."""
    cluster = Cluster.uniform(workload.nodes, 8)
    specs = workload.source.jobs(SimulationConfig(cluster, seed=workload.seed))
    plain = PaperConfig(**dict(CASES["errors"]), seed=workload.seed)
    runs = {name: PolicyRun.of(papers.setup(name, plain)) for name in OTHERS}
    runs |= {name: variant.run(plain) for name, variant in VARIANTS.items()}
    rows = []
    for name, run in runs.items():
        metrics = measure(run.run(specs, cluster))
        figures = {key: getattr(metrics, key) for key in FIGURES.values()}
        rows.append({"workload": workload.name, "seed": workload.seed, "policy": name, **figures})
    return rows


def text(rows: Sequence[Row]) -> str:
    """Return a table beside each of the others."""
    columns = ["with errors", "better in both", "average", "seeds", "worst", "slowdown", "seeds", "worst"]
    parts = []
    generated = [row for row in rows if row["workload"] not in TRACES]
    for other in OTHERS if generated else ():
        cells = [[name, *_cells(generated, name, other)] for name in VARIANTS]
        parts += [f"Generated workloads, beside `{other}`:", markdown(columns, cells)]
    found = {(row["workload"], row["policy"]): row for row in rows}
    named = [name for name in TRACES if (name, OURS) in found]
    if named:
        columns = ["with errors", *(f"{trace}: {figure}" for trace in named for figure in FIGURES)]
        cells = [
            [name, *(cell for trace in named for cell in _figures(found[trace, name]))]
            for name in (*OTHERS, *VARIANTS)
        ]
        parts += ["Public traces, seconds:", markdown(columns, cells)]
    return "\n\n".join(parts)


def _figures(row: Row) -> list[str]:
    return [f"{row['avg_jct_s']:,.0f}", f"{row['avg_slowdown']:.2f}"]


def _cells(rows: Sequence[Row], name: str, other: str) -> list[str]:
    """Return on how many workloads both figures are better, and how much each changes."""
    found = {(row["workload"], row["seed"], row["policy"]): row for row in rows}
    workloads = list(dict.fromkeys((row["workload"], row["seed"]) for row in rows))
    changes = {
        key: {at: found[*at, name][figure] / found[*at, other][figure] - 1 for at in workloads}
        for key, figure in FIGURES.items()
    }
    both = sum(all(change[at] < 0 for change in changes.values()) for at in workloads)
    cells = [f"{both} of {len(workloads)}"]
    for change in changes.values():
        by_seed = [
            statistics.fmean(change[at] for at in workloads if at[1] == seed)
            for seed in dict.fromkeys(seed for _, seed in workloads)
        ]
        spread = f"{100 * min(by_seed):.1f} to {100 * max(by_seed):.1f}"
        cells += [
            f"{100 * statistics.fmean(change.values()):+.1f} %",
            spread,
            f"{100 * max(change.values()):+.1f} %",
        ]
    return cells


if __name__ == "__main__":
    main()
