"""``ina route``: which switches sum each job, and by which links its gradients get there."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated

import typer

from controller.core import reasons
from controller.core.allocator import Allocator
from controller.policies.by_kind import AllocationSettings
from controller.policies.placement.flows import State
from controller.policies.registry import ROUTINGS
from controller.policies.routing.explain import explain as explain_route
from controller.policies.routing.policy import Question
from controller.simulator.files import whole
from controller.vocabulary.files import write_jobs
from ina.cli import job_files, options
from ina.cli.allocation import common
from ina.cli.output import table
from ina.cli.plain import Result, rate

EPILOG = """Examples:

  ina place --jobs batch.yaml --cluster examples/allocation/fabric.toml --write placed.json

  ina route --jobs placed.json --cluster examples/allocation/fabric.toml

  ina route --policy tor-only,shortest-path,grid --jobs placed.json --cluster fabric.toml --plot tree.svg

  ina route --explain text-2 --jobs placed.json --cluster examples/allocation/fabric.toml
"""

Policies = Annotated[
    str,
    typer.Option(
        metavar="NAME,…",
        help=f"Choose trees by this policy: {', '.join(ROUTINGS)}; or one of your own: path.py:NAME, "
        "or a name that an installed package offers. Compares several, separated by commas.",
    ),
]
Draws = Annotated[
    int,
    typer.Option(
        min=1, max=10_000, help="Round this many times at random with policy grid, and keep the best trees."
    ),
]


def route(
    jobs: common.Jobs,
    cluster: common.ClusterFile,
    policy: Policies = "grid",
    draws: Draws = 8,
    seed: common.Seed = 0,
    write: common.Write = None,
    explain: common.Explain = None,
    plot: common.Plot = None,
    json: options.Json = False,
) -> None:
    """Choose aggregation trees for placed jobs, and compute the resulting rates.

    Chooses trees as the controller does when it starts these jobs, and replaces those of the file. The root
    of a job's tree is the aggregating switch nearest to the job's fallback server.
    """
    common.check_files(plot, write)
    names = common.policies(policy)
    inputs = common.load(jobs, cluster, "route")
    states = {name: decide(inputs, name, draws, seed).state for name in names}
    last = states[names[-1]]
    if write is not None:
        with whole(write) as draft:
            write_jobs(draft, last.jobs)
    if plot is not None:
        from ina.cli.allocation.plots import draw_trees

        draw_trees(last, plot)
    if explain is not None:
        trees = {job.name: job.tree for job in last.jobs if job.tree is not None}
        job = common.one_job(explain, last.jobs)
        lines = explain_route(Question(last.topology, last.jobs), trees, job)
        common.print_lines(lines, "route", names[-1], explain, json=json)
        return
    if json:
        _result(states, draws, seed).print_json(unused_keys=job_files.unused_keys("route", jobs, cluster))
        return
    if len(states) == 1:
        _show(last)
    rows = [(name, *map(rate, _rates(state))) for name, state in states.items()]
    table("routing", ["policy", "smallest rate", "sum of rates"], rows)


def decide(inputs: common.Inputs, name: str, draws: int, seed: int) -> Allocator:
    """Return the allocator that has routed the jobs.

    Args:
        inputs: Placed jobs and their cluster.
        name: Name of the policy.
        draws: Number of random draws.
        seed: Of the draws.

    Raises Failure or BadSpec.
    """
    free = tuple(replace(job, tree=None) for job in inputs.jobs)
    settings = AllocationSettings(routing=name, draws=draws, seed=seed)
    return common.decided(replace(inputs, jobs=free), settings, placed=True)


def _rates(state: State) -> tuple[float, float]:
    rates = [state.rate_bps(job) for job in state.jobs if job.tree is not None]
    return min(rates, default=0.0), sum(rates)


def _show(state: State) -> None:
    rows = []
    for job, bps, bound in zip(state.jobs, state.steady.rate_bps, state.steady.bound_by, strict=True):
        if job.tree is None:
            rows.append((job.name, "-", "-", "-", "-", "one server"))
            continue
        sums = ", ".join(sorted(job.tree.aggregators)) or "none"
        row = (job.name, job.tree.root, sums, str(len(job.tree.switches)), rate(float(bps)))
        rows.append((*row, state.resource(int(bound))))
    table("jobs", ["job", "root", "summed at", "switches", "rate", "bound by"], rows)


def _result(states: dict[str, State], draws: int, seed: int) -> Result:
    metrics = {}
    for name, state in states.items():
        metrics[f"{name}_smallest_rate_bps"], metrics[f"{name}_total_rate_bps"] = _rates(state)
    state = list(states.values())[-1]
    jobs = {
        job.name: {
            "root": job.tree.root,
            "parents": dict(job.tree.parents),
            "aggregators": sorted(job.tree.aggregators),
            "rate_bps": float(bps),
            "bound_by": state.resource(int(bound)),
            "reason": reasons.of_place(job),
        }
        for job, bps, bound in zip(state.jobs, state.steady.rate_bps, state.steady.bound_by, strict=True)
        if job.tree is not None
    }
    return Result("route", {"policies": list(states), "draws": draws, "seed": seed}, metrics, jobs)
