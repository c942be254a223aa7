"""``ina schedule plan``: the jobs that a policy would run now, and how the groups interleave."""

from __future__ import annotations

import json as json_module
from dataclasses import dataclass
from pathlib import Path
from string import ascii_uppercase
from typing import TYPE_CHECKING, Annotated, Any

import typer

from controller.policies.family import SimulationConfig
from controller.policies.registry import family
from controller.policies.scheduling import RESOURCES
from controller.policies.scheduling.lucid.family import packing_tree, usage_of
from controller.policies.scheduling.policy import JobState
from controller.simulator.estimates import expect, facts_of, learn, predict
from controller.simulator.files import whole
from controller.simulator.once import Plan, Planned, decide_once, numbers, stage_names
from controller.simulator.policy_run import make
from controller.simulator.runs import LARGEST_SEED, known_to
from controller.simulator.traces import read
from controller.vocabulary import Cluster
from ina.cli import job_files, options
from ina.cli.errors import USAGE, Failure
from ina.cli.output import out
from ina.cli.plain import plural
from ina.cli.schedule import common, inputs, timeline

if TYPE_CHECKING:
    from controller.policies.scheduling.lucid.estimates import DurationModel

EPILOG = """Examples:

  ina schedule plan --jobs examples/schedule/jobs.toml --cluster examples/schedule/cluster.toml

  ina schedule plan --jobs jobs.csv --gpus 2 --policy lucid:lucid --set profiler_nodes=0 --explain

  ina schedule plan --jobs jobs.csv --policy qssf --history ended.csv --shapes shapes.svg --plot plan.svg
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class OneServer(inputs.ClusterOptions):
    """The servers; default: one."""

    nodes: inputs.Nodes = 1


def plan(
    *,
    jobs: Annotated[
        Path,
        typer.Option(
            "--jobs",
            metavar="FILE",
            help="Read the jobs from this file: TOML, CSV, or any trace that 'ina schedule simulate' reads.",
        ),
    ],
    policy: inputs.Policy = "muri-s",
    format: inputs.Format = "",
    cluster: OneServer,
    models: inputs.ModelOptions,
    settings: inputs.Settings = None,
    seed: Annotated[
        int,
        typer.Option(
            min=0, max=LARGEST_SEED, help="Seed the random numbers; the same seed gives the same result."
        ),
    ] = 0,
    explain: Annotated[
        bool,
        typer.Option(
            "--explain",
            help="Explain for each job why it runs or waits, with numbers, and what its predictions "
            "are based on.",
        ),
    ] = False,
    history: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Learn durations from this trace of finished jobs; policies that use a job's "
            "estimate use these.",
        ),
    ] = None,
    plot: Annotated[
        Path | None,
        typer.Option(
            writable=True, metavar="FILE", help="Draw the timelines: .svg, .png or .pdf. Needs matplotlib."
        ),
    ] = None,
    shapes: Annotated[
        Path | None,
        typer.Option(
            writable=True,
            metavar="FILE",
            help="Draw the model learned from --history, one panel per feature: .svg, .png or .pdf.",
        ),
    ] = None,
    json: options.Json = False,
) -> None:
    """Show what a policy would run if all jobs had arrived: groups, their interleaving, and waiting jobs.

    Submission times only give the order. The gamma of a group is the mean share of time in which its
    resources are busy, 0 to 1; its speed-up is the work that its GPUs do relative to running one job at a
    time.
    """
    name = inputs.parse_policy(policy)
    if shapes is not None and history is None:
        raise Failure("--shapes needs --history, from which the model is learned", USAGE)
    for option, path in (("--plot", plot), ("--shapes", shapes)):
        if path is not None:
            common.check_plots(option, path)
    servers = cluster.servers()
    around = models.config(servers, [name], settings, seed=seed)
    specs = expect(read(jobs, servers, known_to([name], around), format=format), models.estimates)
    model = None if history is None else learn(read(history), around)
    if model is not None:
        specs = predict(specs, model, around)
    unused_keys = job_files.note("schedule plan", jobs, cluster.cluster)
    decided = decide_once(specs, servers, make(name, around))
    reasons = explanations(name, decided, around, model) if explain else {}
    if model is not None and shapes is not None:
        from controller.policies.scheduling.lucid.additive import draw_shapes

        with whole(shapes) as draft:
            draw_shapes(model.model, draft)
    if plot is not None:
        from controller.simulator.plots import draw_timelines

        drawn = {_title(number, each): each for number, each in enumerate(decided.groups, 1) if each.spans}
        with whole(plot) as draft:
            draw_timelines(drawn, draft)
    if json:
        document = as_json(name, decided, servers)
        document["setup"]["unused_keys"] = unused_keys
        print(json_module.dumps({**document, **({"explain": reasons} if explain else {})}, indent=2))
    else:
        show(name, decided, servers)
        for job, lines in reasons.items():
            out.print(f"\n{job}: {lines[0]}", highlight=False, markup=False)
            for line in lines[1:]:
                out.print(f"  {line}", highlight=False, markup=False)


def explanations(
    policy: str, decided: Plan, around: SimulationConfig, model: DurationModel | None
) -> dict[str, list[str]]:
    """Return sentences about each job, by its name.

    They are the policy's notes, the job's request and what it gets, in numbers, for Lucid the path through
    its tree, and the terms of its expected duration.

    Args:
        policy: Name of the policy.
        decided: The decision.
        around: The configuration.
        model: Predicts durations; None: they are not predicted.
    """
    found: dict[str, list[str]] = {}
    figures = numbers(decided, around.cluster)
    said = {job.spec.name: each.group.reason for each in decided.groups for job in each.group.jobs}
    for job in _jobs(decided):
        lines = [sentence for name, sentence in decided.notes if name == job.spec.name]
        if not lines:
            lines = [said.get(job.spec.name, "waits") or "runs"]
        lines += figures[job.spec.name]
        if family(policy) == "lucid":
            usage = usage_of(job.spec, around)
            lines.append(f"packing tree: {packing_tree(around, usage).predict(usage).name.title()}")
            lines += packing_tree(around, usage).explain(usage)
        if model is not None:
            lines += ["expected duration", *model.explain(facts_of(job.spec, around))]
        found[job.spec.name] = lines
    return found


def show(policy: str, decided: Plan, cluster: Cluster) -> None:
    """Print the groups, their timelines, and the waiting jobs."""
    rows = [
        (
            str(number),
            "\n".join(_members(each)),
            _where(each, cluster),
            "\n".join(stage_names(each.group)) or "-",
            "-" if each.group.efficiency is None else f"{each.group.efficiency:.3f}",
            f"{each.speedup:.2f}",
            each.group.reason or "-",
        )
        for number, each in enumerate(decided.groups, 1)
    ]
    title = f"{policy}: {plural(len(_jobs(decided)), 'job')} on {plural(cluster.gpus, 'GPU')}"
    columns = ["group", "jobs", "GPUs", "starts at", "gamma", "speed-up", "why"]
    common.table(title, columns, rows, folded="why")
    for number, each in enumerate(decided.groups, 1):
        if each.spans:
            out.print(f"\n{_title(number, each)}", highlight=False, markup=False)
            for line in timeline.draw(each.spans, RESOURCES):
                out.print(line, highlight=False, markup=False, soft_wrap=True)
    if decided.waiting:
        names = ", ".join(job.spec.name for job in decided.waiting)
        out.print(f"\n{len(decided.waiting)} wait: {names}", highlight=False, markup=False, soft_wrap=True)


def as_json(policy: str, decided: Plan, cluster: Cluster) -> dict[str, Any]:
    """Return the object that ``--json`` prints."""
    groups = [
        {
            "jobs": [job.spec.name for job in each.group.jobs],
            "gpus": list(each.group.gpus),
            "servers": sorted({cluster.servers[cluster.node_of[gpu]].name for gpu in each.group.gpus}),
            "starts_at": stage_names(each.group),
            "gamma": each.group.efficiency,
            "iteration_s": list(each.iteration_s),
            "speedup": each.speedup,
            "cpus": list(each.group.cpus),
            "memory_gb": list(each.group.memory_gb),
            "reason": each.group.reason,
            "timeline": [
                {
                    "job": each.group.jobs[span.job].spec.name,
                    "resource": RESOURCES[span.resource],
                    "start_s": span.start_s,
                    "end_s": span.end_s,
                }
                for span in each.spans
            ],
        }
        for each in decided.groups
    ]
    waiting = [job.spec.name for job in decided.waiting]
    setting = {"policy": policy, "servers": len(cluster.servers), "gpus": cluster.gpus}
    return {"name": "schedule plan", "setup": setting, "groups": groups, "waiting": waiting}


def _jobs(decided: Plan) -> list[JobState]:
    return [*(job for each in decided.groups for job in each.group.jobs), *decided.waiting]


def _members(each: Planned) -> list[str]:
    names = [job.spec.name for job in each.group.jobs]
    if len(names) == 1:
        return names
    return [f"{letter}: {name}" for letter, name in zip(ascii_uppercase, names, strict=False)]


def _where(each: Planned, cluster: Cluster) -> str:
    """Return the GPUs by server, as in ``a:0-3``; numbers count from each server's first."""
    places: dict[int, list[int]] = {}
    for gpu in sorted(each.group.gpus):
        node = cluster.node_of[gpu]
        places.setdefault(node, []).append(gpu - cluster.first_gpu[node])
    return " ".join(
        f"{cluster.servers[node].name}:{','.join(map(str, numbers))}" for node, numbers in places.items()
    )


def _title(number: int, each: Planned) -> str:
    gamma = "" if each.group.efficiency is None else f", gamma {each.group.efficiency:.3f}"
    return f"group {number}{gamma}: {', '.join(_members(each))}"
