"""Sharing for heterogeneous job sizes: accuracy of predicted interference, and the gain of each part.

`python -m benchmarks.schedulers.sharing models [--lucid FILE | --gavel FILE]`: the four forests on unseen
jobs, by number of reference jobs.

`python -m benchmarks.schedulers.sharing schedule [--trace FILE --lucid FILE]`: the policy, itself without
each of its parts, and baselines, all on one speed model, over several seeds.

Policies are `ina schedule`'s policies `sharing:`. Without files, pairs and traces are made up. Pair files of
Lucid's authors (`colocate_info.csv`) and Gavel's (`simulation_throughputs.json`) can be read.
"""

from __future__ import annotations

import argparse
import math
import random
import statistics
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

from benchmarks.fill import Command, option, serve, timed
from controller.policies.scheduling import Policy, Submission
from controller.policies.scheduling.errors import BadSpec
from controller.policies.scheduling.sharing.family import (
    POLICIES,
    SIZES,
    NamedPolicy,
    PairScenario,
    SharingConfig,
    draw_kinds,
)
from controller.policies.scheduling.sharing.forests import Model, Sample, draw, model_for
from controller.policies.scheduling.sharing.packing import Packer
from controller.policies.scheduling.sharing.pairs import (
    InterferenceModel,
    InterferenceSpeed,
    Load,
    Pairs,
    read_gavel_pairs,
    read_lucid_pairs,
)
from controller.policies.scheduling.sharing.policy import Charges, SharingOptions, SharingPolicy
from controller.policies.scheduling.speed import PreemptionCost
from controller.simulator import measure, simulate
from controller.simulator.generate import generate
from controller.simulator.traces import read
from controller.vocabulary import Cluster


class Blind:
    """An interference model without features: its answer is the mean of its samples of that model."""

    def __init__(self, kinds: Collection[str], means: Mapping[Model, float]) -> None:
        self.kinds = kinds
        self._means = dict(means)

    @classmethod
    def from_samples(cls, kinds: Collection[str], samples: Mapping[Model, Sequence[Sample]]) -> Blind:
        """Return the means of `samples`."""
        return cls(
            kinds, {m: math.fsum(s.speeds[0] for s in drawn) / len(drawn) for m, drawn in samples.items()}
        )

    def speed(self, load: Load, beside: Sequence[Load]) -> float:
        """Return the mean for any job."""
        return self._means[model_for(load, beside)] if beside else 1.0


@dataclass(frozen=True, slots=True)
class Accuracy:
    """Accuracy of a forest on samples that it was not trained on.

    Attributes:
        samples: Number of samples.
        mae: Mean absolute error, in speeds.
        r2: Explained part of the variance; 1: all.
        mean_mae: The error of always predicting the mean of these samples.
    """

    samples: int
    mae: float
    r2: float
    mean_mae: float


def accuracy(believed: InterferenceModel, samples: Sequence[Sample]) -> Accuracy:
    """Compare the predictions of `believed` with measured samples."""
    real = [sample.speeds[0] for sample in samples]
    guessed = [believed.speed(sample.load, sample.beside) for sample in samples]
    mean = math.fsum(real) / len(real)
    variance = math.fsum((value - mean) ** 2 for value in real)
    squares = math.fsum((value - guess) ** 2 for value, guess in zip(real, guessed, strict=True))
    return Accuracy(
        samples=len(samples),
        mae=math.fsum(abs(value - guess) for value, guess in zip(real, guessed, strict=True)) / len(samples),
        r2=1.0 - squares / variance if variance else float(squares == 0),
        mean_mae=math.fsum(abs(value - mean) for value in real) / len(samples),
    )


@lru_cache(maxsize=1)
def blind(scenario: PairScenario) -> Blind:
    """Return the predictions without features."""
    few = max(1, scenario.samples // 3)
    samples = {
        model: draw(scenario.measured, model, few, kinds=scenario.seen, sizes=SIZES, seed=scenario.seed)
        for model in Model
    }
    return Blind.from_samples(scenario.measured.kinds, samples)


def _without(
    needs: SharingConfig, believed: InterferenceModel, ledger: Charges | None = None, **changed: Any
) -> SharingPolicy:
    """Return the scheduler with these believed speeds, and another ledger or packer than usual."""
    return SharingPolicy(Packer(believed, load_of=needs.load_of, **changed), needs.options, ledger)


def _with(needs: SharingConfig, **options: Any) -> SharingConfig:
    return replace(needs, options=replace(needs.options, **options))


def _every(length_s: int, make: Callable[[SharingConfig], Policy]) -> NamedPolicy:
    return NamedPolicy(f"preempts every {length_s} s", lambda n: make(_with(n, interval_s=float(length_s))))


FIXED_S = (120, 3600)
ABLATIONS: Mapping[str, NamedPolicy] = {
    "equal-sizes": NamedPolicy(
        "only jobs of one size share", lambda n: _without(n, n.scenario.forests.fresh(), mixed=False)
    ),
    "random-packing": NamedPolicy(
        "without features, partners at random",
        lambda n: _without(n, blind(n.scenario), choose=random.Random(n.scenario.seed).choice),
    ),
    "without-features": NamedPolicy(
        "every job is believed to be the mean", lambda n: _without(n, blind(n.scenario))
    ),
    "first-fit": NamedPolicy(
        "the first partner that is allowed, by priority",
        lambda n: _without(n, n.scenario.forests.fresh(), choose=lambda allowed: allowed[0]),
    ),
    **{f"interval-{s}": _every(s, SharingConfig.sharing) for s in FIXED_S},
    "preemptions-not-counted": NamedPolicy(
        "preempted jobs are not spared",
        lambda n: _without(n, n.scenario.forests.fresh(), ledger=Charges(aging=False)),
    ),
    "no-profiling-time": NamedPolicy("profiling takes no time", lambda n: _with(n, profile_s=0.0).sharing()),
    "speeds-known": NamedPolicy(
        "speeds are known instead of predicted", lambda n: _with(n, speeds_known=True).sharing()
    ),
}
ALL: Mapping[str, NamedPolicy] = {**POLICIES, **ABLATIONS}


def make(name: str, needs: SharingConfig) -> Policy:
    """Return a fresh policy. Raises BadSpec for an unknown name, and its scenario's errors."""
    if name not in ALL:
        raise BadSpec(f"policy {name!r} is unknown; known are {', '.join(ALL)}")
    return ALL[name].make(needs)


NODES, GPUS = 8, 8
MODEL_COUNTS = (1, 2, 8)  # of reference jobs, beside the requested number

ResultRow = dict[str, object]


def setting_of(options: argparse.Namespace, seed: int, *, references: int) -> PairScenario:
    """Read measured pairs, or make some up."""
    pairs: Pairs | None = None
    if options.lucid is not None and options.gavel is not None:
        raise ValueError("--lucid and --gavel are mutually exclusive")
    if options.lucid is not None:
        pairs = read_lucid_pairs(options.lucid)
    elif options.gavel is not None:
        pairs = read_gavel_pairs(options.gavel)
    return PairScenario(pairs, seed=seed, references=references, samples=options.samples)


def run_models(options: argparse.Namespace) -> tuple[list[ResultRow], str]:
    """Train on two thirds of the kinds, and predict groups with one of the others."""
    rows: list[ResultRow] = []
    for count in sorted({*MODEL_COUNTS, options.references}):
        found: dict[Model, list[tuple[float, float, float, float]]] = {model: [] for model in Model}
        for seed in range(options.first_seed, options.first_seed + options.seeds):
            setting = setting_of(options, seed, references=count)
            measured, forests = setting.measured, setting.forests
            seen, unseen = setting.seen, setting.unseen
            for model in Model:
                old = draw(measured, model, 500, kinds=seen, sizes=SIZES, seed=seed + 1000)
                new = draw(
                    measured, model, 500, kinds=seen + unseen, sizes=SIZES, fresh=unseen, seed=seed + 2000
                )
                a, b = accuracy(forests, old), accuracy(forests, new)
                found[model].append((a.mae, b.mae, b.r2, b.mean_mae))
        for model, figures in found.items():
            columns = ("error, seen kinds", "error, unseen kinds", "R2, unseen kinds", "error of the mean")
            means = (statistics.fmean(column) for column in zip(*figures, strict=True))
            rows.append({"references": count, "model": model.name, **dict(zip(columns, means, strict=True))})
    return rows, f"mean absolute error of speeds, {options.seeds} seeds, {options.samples} samples per model"


def jobs_of(
    options: argparse.Namespace, cluster: Cluster, kinds: Sequence[str], seed: int
) -> list[Submission]:
    """Return the trace with kinds drawn from the known ones."""
    if options.trace is None:
        specs = generate(options.jobs, cluster, load=options.load, seed=seed)
    else:
        specs = read(options.trace, cluster)
    return draw_kinds(specs, kinds, seed=seed)


def run_schedule(options: argparse.Namespace) -> tuple[list[ResultRow], str]:
    """Run the policies over the seeds, and return means."""
    cluster = Cluster.uniform(NODES, GPUS)
    cost = PreemptionCost(options.preemption_s, options.preemption_s * 1.5, GPUS)
    found: dict[str, list[ResultRow]] = {}
    for seed in range(options.first_seed, options.first_seed + options.seeds):
        setting = setting_of(options, seed, references=options.references)
        specs = jobs_of(options, cluster, sorted(setting.truth.kinds), seed)
        for name in [name for name in options.only.split(",") if name] or ALL:
            policy = make(name, SharingConfig(setting, SharingOptions(cost=cost)))
            row = run(policy, specs, cluster, setting.truth, cost)
            found.setdefault(name, []).append(row)
    rows: list[ResultRow] = []
    for name, runs in found.items():
        row = {"policy": name, **{k: statistics.fmean(float(str(r[k])) for r in runs) for k in runs[0]}}
        if "sharing" in found:
            ratios = [
                float(str(r["average_s"])) / float(str(own["average_s"]))
                for r, own in zip(runs, found["sharing"], strict=True)
            ]
            row |= {"times ours": statistics.fmean(ratios), "least": min(ratios), "most": max(ratios)}
        rows.append(row)
    title = f"{len(specs)} jobs on {cluster.gpus} GPUs, {options.seeds} seeds; a preemption costs"
    return rows, f"{title} {cost.within_s:g} s"


def run(
    policy: Policy,
    specs: Sequence[Submission],
    cluster: Cluster,
    truth: InterferenceModel,
    cost: PreemptionCost,
) -> ResultRow:
    """Simulate one policy."""
    result, took_s = timed(simulate, specs, cluster, policy, InterferenceSpeed(truth, cost=cost))
    metrics = measure(result)
    span_s = (result.end_s - result.begin_s) * cluster.gpus
    return {
        "average_s": metrics.avg_jct_s,
        "median_s": metrics.median_jct_s,
        "p99_s": metrics.p99_jct_s,
        "makespan_s": metrics.makespan_s,
        "work": sum(spec.service_s for spec in specs) / span_s,
        "preemptions": float(metrics.preemptions),
        "wall_s": took_s,
    }


def main() -> None:
    """Measure, print a table, and JSON on request."""
    common = (
        option("--lucid", type=Path, help="read these measured pairs; excludes --gavel"),
        option("--gavel", type=Path, help="read these measured pairs; excludes --lucid"),
        option("--seeds", type=int, default=3),
        option("--first-seed", type=int, default=0),
        option("--samples", type=int, default=1500, help="train each forest on this many groups"),
        option("--references", type=int, default=4),
    )
    serve(
        "benchmarks.schedulers.sharing",
        __doc__,
        Command(name="models", about="accuracy of the forests", run=run_models, options=common),
        Command(
            name="schedule",
            about="the policy against baselines and itself without its parts",
            run=run_schedule,
            options=(
                option("--trace", type=Path, help="read the jobs; their kinds are drawn from the pairs'"),
                option("--jobs", type=int, default=600, help="without --trace: generate N jobs"),
                option("--load", type=float, default=1.6, help="load of generated jobs"),
                option("--preemption-s", type=float, default=40.0, help="cost within a node; beyond: x 1.5"),
                option("--only", default="", help="run these policies, by comma"),
                *common,
            ),
            epilog="policies:\n" + "\n".join(f"  {name:24} {known.about}" for name, known in ALL.items()),
        ),
    )


if __name__ == "__main__":
    main()
