"""Sharing for heterogeneous job sizes: how well interference is predicted, and what each part is worth.

`python -m benchmarks.sharing models [--lucid FILE | --gavel FILE]`: the four forests on jobs that they have
not seen, by number of reference jobs.

`python -m benchmarks.sharing schedule [--trace FILE --lucid FILE]`: the policy, itself without each of its
parts, and baselines, all on one speed model, over several seeds.

Policies are those that `ina schedule` calls `sharing:`. Without files, pairs and traces are made up. Of pair
files those of Lucid's authors (`colocate_info.csv`) and Gavel's (`simulation_throughputs.json`) can be read.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Sequence
from pathlib import Path

from rich.table import Table

from benchmarks.fill import console
from benchmarks.sharing_ablations import ALL, make
from controller.errors import ControllerError
from controller.scheduling import Decision, Policy, Submission, View
from controller.scheduling.sharing import (
    InterferenceModel,
    Model,
    PreemptionCost,
    SharedSpeed,
    accuracy,
    draw,
    read_gavel_pairs,
    read_lucid_pairs,
)
from controller.scheduling.sharing.corun import Pairs
from controller.scheduling.sharing.policies import SIZES, Scenario, SharingConfig, of_kinds
from controller.simulator import measure, simulate
from controller.simulator.generate import generate
from controller.simulator.traces import read
from controller.vocabulary import Cluster

NODES, GPUS = 8, 8
PROFILE_S = 80.0
MODEL_COUNTS = (1, 2, 8)  # of reference jobs, beside the one that is asked for

ResultRow = dict[str, object]


def main() -> None:
    """Measure, print a table, and JSON on request."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    commands = parser.add_subparsers(required=True)
    models = commands.add_parser("models", help="accuracy of the forests")
    models.set_defaults(run=run_models)
    schedule = commands.add_parser(
        "schedule",
        help="the policy against baselines and itself without its parts",
        epilog="policies:\n" + "\n".join(f"  {name:24} {known.about}" for name, known in ALL.items()),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    schedule.set_defaults(run=run_schedule)
    schedule.add_argument("--trace", type=Path, help="jobs; their kinds are drawn from the pairs'")
    schedule.add_argument("--jobs", type=int, default=600, help="or so many of our own")
    schedule.add_argument("--load", type=float, default=1.6, help="that these offer")
    schedule.add_argument(
        "--preemption-s", type=float, default=40.0, help="its cost within a node; beyond: x 1.5"
    )
    schedule.add_argument("--only", default="", help="policies, by comma")
    for command in (models, schedule):
        source = command.add_mutually_exclusive_group()
        source.add_argument("--lucid", type=Path, help="measured pairs")
        source.add_argument("--gavel", type=Path, help="measured pairs")
        command.add_argument("--seeds", type=int, default=3)
        command.add_argument("--first-seed", type=int, default=0)
        command.add_argument("--samples", type=int, default=1500, help="measured groups per forest")
        command.add_argument("--references", type=int, default=4)
        command.add_argument("--json", action="store_true")
    options = parser.parse_args()
    try:
        rows, title = options.run(options)
    except (ControllerError, OSError) as error:
        raise SystemExit(f"benchmarks.sharing: {error}") from None
    if options.json:
        print(json.dumps(rows, indent=2))
    else:
        show(rows, title)


def setting_of(options: argparse.Namespace, seed: int, *, references: int) -> Scenario:
    """Read measured pairs, or have some made up."""
    pairs: Pairs | None = None
    if options.lucid is not None:
        pairs = read_lucid_pairs(options.lucid)
    elif options.gavel is not None:
        pairs = read_gavel_pairs(options.gavel)
    return Scenario(pairs, seed=seed, references=references, samples=options.samples)


def run_models(options: argparse.Namespace) -> tuple[list[ResultRow], str]:
    """Train on two kinds in three, and ask for groups with one of the others."""
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
    """Return the trace with kinds drawn from those that are known."""
    if options.trace is None:
        specs = generate(options.jobs, cluster, load=options.load, seed=seed)
    else:
        specs = read(options.trace, cluster)
    return of_kinds(specs, kinds, seed=seed)


def run_schedule(options: argparse.Namespace) -> tuple[list[ResultRow], str]:
    """Run the policies over the seeds, and return means."""
    cluster = Cluster.uniform(NODES, GPUS)
    cost = PreemptionCost(options.preemption_s, options.preemption_s * 1.5, GPUS)
    found: dict[str, list[ResultRow]] = {}
    for seed in range(options.first_seed, options.first_seed + options.seeds):
        setting = setting_of(options, seed, references=options.references)
        specs = jobs_of(options, cluster, sorted(setting.truth.kinds), seed)
        for name in [name for name in options.only.split(",") if name] or ALL:
            policy = make(name, SharingConfig(setting, cost, profile_s=PROFILE_S))
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


class GpuUsage:
    """Wraps a policy, and measures GPU seconds with any job and with more than one job."""

    def __init__(self, policy: Policy) -> None:
        self.name = policy.name
        self._policy = policy
        self._last_s = 0.0
        self._used = self._shared = 0
        self.used_s = self.shared_s = 0.0

    def decide(self, view: View) -> Decision:
        """Return the policy's decision, and note the GPUs in use."""
        self.until(view.now_s)
        decision = self._policy.decide(view)
        jobs_on: dict[int, int] = {}
        for group in decision.groups:
            for gpu in group.gpus:
                jobs_on[gpu] = jobs_on.get(gpu, 0) + len(group.jobs)
        self._used = len(jobs_on)
        self._shared = sum(jobs > 1 for jobs in jobs_on.values())
        return decision

    def until(self, now_s: float) -> None:
        """Add up the GPU seconds until now."""
        self.used_s += self._used * (now_s - self._last_s)
        self.shared_s += self._shared * (now_s - self._last_s)
        self._last_s = now_s


def run(
    policy: Policy,
    specs: Sequence[Submission],
    cluster: Cluster,
    truth: InterferenceModel,
    cost: PreemptionCost,
) -> ResultRow:
    """Simulate one policy."""
    began = time.perf_counter()
    usage = GpuUsage(policy)
    result = simulate(specs, cluster, usage, SharedSpeed(truth, cost=cost))
    took_s = time.perf_counter() - began
    metrics = measure(result)
    usage.until(result.end_s)
    span_s = (result.end_s - result.begin_s) * cluster.gpus
    return {
        "average_s": metrics.avg_jct_s,
        "median_s": metrics.median_jct_s,
        "p99_s": metrics.p99_jct_s,
        "makespan_s": metrics.makespan_s,
        "work": sum(spec.service_s for spec in specs) / span_s,
        "used": usage.used_s / span_s,
        "shared": usage.shared_s / span_s,
        "preemptions": float(metrics.preemptions),
        "wall_s": took_s,
    }


def show(rows: Sequence[ResultRow], title: str) -> None:
    """Print the table."""
    table = Table(title=title)
    for column in rows[0]:
        table.add_column(column, justify="right")
    for row in rows:
        table.add_row(*(text(row.get(column, "")) for column in rows[0]))
    console().print(table)


def text(cell: object) -> str:
    """Return a cell as text: large numbers as whole ones."""
    if not isinstance(cell, float):
        return str(cell)
    return f"{cell:,.0f}" if cell >= 100 else f"{cell:.3f}"


if __name__ == "__main__":
    main()
