"""``ina place``: which servers each job runs on, and the resulting rates."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import typer

from controller.core import reasons
from controller.core.allocator import Allocator
from controller.policies.by_kind import AllocationSettings
from controller.policies.placement.explain import explain as explain_placement
from controller.policies.placement.flows import State
from controller.policies.registry import PLACEMENTS
from controller.simulator.files import whole
from controller.vocabulary import Job
from controller.vocabulary.files import write_jobs
from ina.cli import job_files, options
from ina.cli.allocation import common
from ina.cli.output import table
from ina.cli.plain import Result, plural, rate, seconds

EPILOG = """Examples:

  ina place --jobs examples/allocation/batch.yaml --cluster examples/allocation/fabric.toml

  ina place --policy locality,netpack --jobs batch.yaml --cluster fabric.toml

  ina place --jobs batch.yaml --cluster fabric.toml --write placed.json

  ina place --explain vision-2 --jobs batch.yaml --cluster fabric.toml
"""

MOST_NAMED = 10
"""Jobs that wait and are named."""

Policies = Annotated[
    str,
    typer.Option(
        metavar="NAME,…",
        help=f"Place jobs by this policy: {', '.join(PLACEMENTS)}; or one of your own: path.py:NAME, or "
        "a name that an installed package offers. Compares several, separated by commas.",
    ),
]


def place(
    jobs: common.Jobs,
    cluster: common.ClusterFile,
    policy: Policies = "netpack",
    seed: common.Seed = 0,
    write: common.Write = None,
    explain: common.Explain = None,
    plot: common.Plot = None,
    json: options.Json = False,
) -> None:
    """Place jobs on servers in one batch, and compute the resulting rates.

    Places jobs as the controller does when it starts all of them at once. Jobs that have servers in the file
    keep them and count as running. Rates result from water-filling: jobs share links, at their rate less the
    packets' headers, and switch memory, and gradients without a slot go to a fallback server.
    """
    common.check_files(plot, write)
    names = common.policies(policy)
    inputs = common.load(jobs, cluster, "place")
    placed = {name: decide(inputs, name, seed) for name in names}
    states = {name: allocator.state for name, allocator in placed.items()}
    waiting = {
        name: [job.name for job in inputs.jobs if job.name not in placed[name].placed] for name in names
    }
    last = states[names[-1]]
    if write is not None:
        with whole(write) as draft:
            write_jobs(draft, last.jobs)
    if plot is not None:
        from ina.cli.allocation.plots import draw_placement

        draw_placement(last, plot)
    if explain is not None:
        job = common.one_job(explain, inputs.jobs)
        if job.name in waiting[names[-1]]:
            lines = [f"{explain} waits: too few GPUs are free for it and the other jobs of the batch."]
        else:
            lines = explain_placement(last, common.one_job(explain, last.jobs))
        common.print_lines(lines, "place", names[-1], explain, json=json)
        return
    if json:
        _result(states, waiting, seed).print_json(unused_keys=job_files.unused_keys("place", jobs, cluster))
        return
    if len(placed) == 1:
        _show(last, waiting[names[-1]])
    rows = [
        (name, f"{state.value:.2f}", str(len(state.jobs)), str(len(waiting[name])))
        for name, state in states.items()
    ]
    table("placement", ["policy", "GPUs computing", "placed", "waiting"], rows)


def decide(inputs: common.Inputs, name: str, seed: int) -> Allocator:
    """Return the allocator that has placed the jobs by the policy of that name. Raises Failure or BadSpec."""
    return common.decided(inputs, AllocationSettings(placement=name, seed=seed), placed=False)


def _show(state: State, waiting: Sequence[str]) -> None:
    rows = [_row(state, job, float(bps)) for job, bps in zip(state.jobs, state.steady.rate_bps, strict=True)]
    table(
        "jobs",
        ["job", "servers", "racks", "fallback", "summed", "rate", "iteration", "bound by"],
        rows,
    )
    if waiting:
        more = len(waiting) - MOST_NAMED
        names = ", ".join(waiting[:MOST_NAMED]) + (f" and {more:,} more" if more > 0 else "")
        print(f"too few GPUs are free for {plural(len(waiting), 'job')}: {names}")


def _row(state: State, job: Job, bps: float) -> tuple[str, ...]:
    racks = {state.topology.rack_of[host] for host in job.hosts}
    bound = int(state.steady.bound_by[state.jobs.index(job)])
    return (
        job.name,
        str(len(job.hosts)),
        str(len(racks)),
        job.fallback or "-",
        "yes" if job.aggregate and job.tree and job.tree.aggregators else "no",
        "-" if len(job.hosts) < 2 else rate(bps),
        seconds(job.iteration_at_s(bps)),
        state.resource(bound),
    )


def _result(states: dict[str, State], waiting: dict[str, list[str]], seed: int) -> Result:
    metrics = {f"{name}_gpus_computing": each.value for name, each in states.items()}
    metrics |= {f"{name}_waiting": len(names) for name, names in waiting.items()}
    state = states[list(states)[-1]]
    jobs = {
        job.name: {
            "servers": list(job.servers),
            "fallback": job.fallback,
            "aggregate": job.aggregate,
            "rate_bps": float(bps),
            "iteration_s": job.iteration_at_s(float(bps)),
            "bound_by": state.resource(int(bound)),
            "reason": reasons.of_place(job),
        }
        for job, bps, bound in zip(state.jobs, state.steady.rate_bps, state.steady.bound_by, strict=True)
    }
    return Result("place", {"policies": list(states), "seed": seed}, metrics, jobs)
