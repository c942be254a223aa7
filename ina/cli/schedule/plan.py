"""``ina schedule plan`` and ``policies``: show what a policy would run; list all policies."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from string import ascii_uppercase
from typing import Annotated

from controller import plugins
from controller.policies.family import Family, SimulationConfig
from controller.policies.grouping.rounds import Span
from controller.policies.registry import FAMILIES, GROUP, family, find_family, full_name, known
from controller.policies.scheduling import RESOURCES, Cluster, JobState
from controller.policies.scheduling.lucid.estimates import DurationModel
from controller.policies.scheduling.lucid.family import packing_tree, usage_of
from controller.simulator.files import whole
from controller.simulator.once import Plan, PlannedGroup, decide_once, numbers, stage_names
from controller.simulator.runs import expect, facts_of, known_to, learn, make, predict
from controller.simulator.traces import read
from controller.vocabulary.lists import by_key
from ina.cli import job_files
from ina.cli import schedule_inputs as inputs
from ina.cli.command import Declared, Listing, Reply, plural, refuse
from ina.cli.output import check_plots


@dataclass(frozen=True, slots=True, kw_only=True)
class OneServer(inputs.ClusterOptions):
    """Options for the servers of 'ina schedule plan', by default one server."""

    nodes: inputs.Nodes = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanSettings:
    """Options of 'ina schedule plan': jobs, servers and the policy that decides once."""

    jobs: Annotated[
        Path,
        Declared(
            "--jobs",
            metavar="FILE",
            help="Read the jobs from this file: TOML, CSV, or any trace that 'ina schedule simulate' reads.",
        ),
    ]
    policy: inputs.Policy = "muri-s"
    format: inputs.Format = ""
    cluster: OneServer
    models: inputs.ModelOptions
    settings: inputs.Settings = None
    seed: inputs.Seed = 0
    explain: Annotated[
        bool,
        Declared(
            "--explain",
            help="Explain for each job why it runs or waits, with numbers, and how its duration is "
            "predicted.",
        ),
    ] = False
    history: Annotated[
        Path | None,
        Declared(
            metavar="FILE",
            help="Learn durations from this trace of finished jobs; policies that use estimated durations "
            "get the learned ones.",
        ),
    ] = None
    plot: Annotated[
        Path | None,
        Declared(
            writable=True, metavar="FILE", help="Draw the timelines: .svg, .png or .pdf. Needs matplotlib."
        ),
    ] = None
    shapes: Annotated[
        Path | None,
        Declared(
            writable=True,
            metavar="FILE",
            help="Draw the model learned from --history, one panel per feature: .svg, .png or .pdf.",
        ),
    ] = None


def plan(asked: PlanSettings) -> Reply:
    """Show what a policy would run if all jobs had arrived: groups, their interleaving, and waiting jobs.

    Submission times only give the order. The gamma of a group is the mean share of time in which its
    resources are busy, 0 to 1; its speed-up is the work that its GPUs do relative to running one job at a
    time.

    Examples:
        ina schedule plan --jobs examples/schedule/jobs.toml --cluster examples/schedule/cluster.toml

        ina schedule plan --jobs jobs.csv --gpus 2 --policy lucid:lucid --set profiler_nodes=0 --explain

        ina schedule plan --jobs jobs.csv --policy qssf --history ended.csv --shapes shapes.svg --plot
        plan.svg
    """
    name = inputs.parse_policy(asked.policy)
    refuse(
        asked.shapes is not None and asked.history is None,
        "--shapes needs --history, from which the model is learned",
    )
    for option, path in (("--plot", asked.plot), ("--shapes", asked.shapes)):
        check_plots(option, path)
    servers = asked.cluster.servers()
    around = asked.models.config(servers, [name], asked.settings, seed=asked.seed)
    found = read(asked.jobs, servers, known_to([name], around), format=asked.format)
    specs = expect(found, asked.models.estimates)
    model = None if asked.history is None else learn(read(asked.history), around)
    if model is not None:
        specs = predict(specs, model, around)
    unused_keys = job_files.note("schedule plan", asked.jobs, asked.cluster.cluster)
    decided = decide_once(specs, servers, make(name, around))
    if model is not None and asked.shapes is not None:
        from controller.policies.scheduling.lucid.usage import draw_shapes

        with whole(asked.shapes) as draft:
            draw_shapes(model.model, draft)
    if asked.plot is not None:
        from controller.simulator.plots import draw_timelines

        drawn = {_title(number, each): each for number, each in enumerate(decided.groups, 1) if each.spans}
        with whole(asked.plot) as draft:
            draw_timelines(drawn, draft)
    setup = {"policy": name, "servers": len(servers.servers), "gpus": servers.gpus}
    document = {
        "name": "schedule plan",
        "setup": {**setup, "unused_keys": unused_keys},
        "groups": [_group(each, servers) for each in decided.groups],
        "waiting": [job.spec.name for job in decided.waiting],
    }
    parts = [*_decided(name, decided, servers)]
    if asked.explain:
        reasons = document["explain"] = explanations(name, decided, around, model)
        for job, (first, *lines) in reasons.items():
            parts += [f"\n{job}: {first}", *(f"  {line}" for line in lines)]
    return Reply(document, parts)


def explanations(
    policy: str, decided: Plan, around: SimulationConfig, model: DurationModel | None
) -> dict[str, list[str]]:
    """Return, by job, the sentences that explain the decision about the job.

    First come the policy's notes on the job or, if there are none, the reason for the job's group. Then come
    the resources that the job requests and gets. For policies of the family lucid, the path through the
    packing tree follows. With a model, the last sentences are the terms of the expected duration.

    Args:
        policy: Name of the policy.
        decided: The decision.
        around: The configuration of the simulation.
        model: The model that predicts durations; None: they are not predicted.
    """
    found: dict[str, list[str]] = {}
    figures = numbers(decided, around.cluster)
    reasons = {job.spec.name: each.group.reason for each in decided.groups for job in each.group.jobs}
    for job in _jobs(decided):
        lines = [sentence for name, sentence in decided.notes if name == job.spec.name]
        if not lines:
            lines = [reasons.get(job.spec.name, "waits") or "runs"]
        lines += figures[job.spec.name]
        if family(policy) == "lucid":
            usage = usage_of(job.spec, around)
            lines.append(f"packing tree: {packing_tree(around, usage).predict(usage).name.title()}")
            lines += packing_tree(around, usage).explain(usage)
        if model is not None:
            lines += ["expected duration", *model.explain(facts_of(job.spec, around))]
        found[job.spec.name] = lines
    return found


def _decided(policy: str, decided: Plan, cluster: Cluster) -> Iterator[Listing | str]:
    """Yield the parts of the reply: a table of groups, their timelines, and the waiting jobs."""
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
    yield Listing(title, columns, rows, folded="why")
    for number, each in enumerate(decided.groups, 1):
        if each.spans:
            yield f"\n{_title(number, each)}"
            yield from timeline(each.spans, RESOURCES)
    if decided.waiting:
        names = ", ".join(job.spec.name for job in decided.waiting)
        yield f"\n{len(decided.waiting)} wait: {names}"


def _group(each: PlannedGroup, cluster: Cluster) -> dict[str, object]:
    """Return a group as ``--json`` prints it."""
    return {
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


def _jobs(decided: Plan) -> list[JobState]:
    return [*(job for each in decided.groups for job in each.group.jobs), *decided.waiting]


def _members(each: PlannedGroup) -> list[str]:
    names = [job.spec.name for job in each.group.jobs]
    if len(names) == 1:
        return names
    return [f"{letter}: {name}" for letter, name in zip(ascii_uppercase, names, strict=False)]


def _where(each: PlannedGroup, cluster: Cluster) -> str:
    """Return the GPUs of a group by server, as in ``a:0,1 b:3``; each server's GPUs are numbered from 0."""
    located = ((cluster.node_of[gpu], gpu) for gpu in sorted(each.group.gpus))
    places = by_key((node, gpu - cluster.gpus_of[node].start) for node, gpu in located)
    return " ".join(
        f"{cluster.servers[node].name}:{','.join(map(str, numbers))}" for node, numbers in places.items()
    )


def _title(number: int, each: PlannedGroup) -> str:
    gamma = "" if each.group.efficiency is None else f", gamma {each.group.efficiency:.3f}"
    return f"group {number}{gamma}: {', '.join(_members(each))}"


_IDLE = "·"


def timeline(spans: Sequence[Span], resources: Sequence[str], *, width: int = 64) -> list[str]:
    """Return the timeline of a group for one round: a line for each resource, and a line with the times.

    A round has `width` characters. Job 0 is drawn as A, job 1 as B, and so on. Each span that takes time has
    at least one character, as far as there is room.

    >>> timeline([Span(0, 0, 0, 2), Span(1, 1, 0, 2), Span(0, 1, 2, 3)], ["cpu", "gpu"], width=6)
    ['cpu |AAAA··|', 'gpu |BBBBAA|', '    0      3 s']
    """
    length_s = max((span.end_s for span in spans), default=0.0)
    margin = max(map(len, resources))
    lines = []
    for number, resource in enumerate(resources):
        cells = [_IDLE] * width
        for span in spans:
            if span.resource == number:
                first = min(round(span.start_s / length_s * width), width - 1)
                last = max(round(span.end_s / length_s * width), first + 1)
                cells[first:last] = ascii_uppercase[span.job] * (last - first)
        lines.append(f"{resource:>{margin}} |{''.join(cells)}|")
    end = f"{length_s:.3g} s"
    return [*lines, f"{'':{margin}} 0{'':{width}}{end}"]


# --------------------------------------------------------------------------- all policies


def policies(
    families: Annotated[
        list[str] | None,
        Declared(
            argument=True,
            metavar="[FAMILY]...",
            show_default="all",
            help="List all policies of these families. A family is the part of a policy's name before the "
            "colon, or a file or module that defines FAMILY.",
        ),
    ] = None,
    everything: Annotated[
        bool,
        Declared(
            "--all",
            help="List baselines and further combinations, too.",
        ),
    ] = False,
) -> Reply:
    """List the policies by family, and their parameters.

    Families differ in their models of speed: compare results only within one family. --json lists all
    policies.

    Examples:
        ina schedule policies

        ina schedule policies --all

        ina schedule policies synergy --json
    """
    listed = {kind: find_family(kind) for kind in families or FAMILIES}
    document = {
        "name": "schedule policies",
        "policies": {
            kind: [full_name(kind, policy) for policy in family.policies] for kind, family in listed.items()
        },
        "outside": plugins.names(GROUP),
        "settings": {
            kind: {name: asdict(setting) for name, setting in family.settings.items()}
            for kind, family in listed.items()
        },
    }
    return Reply(document, _policies(listed, everything=everything, whole=bool(families)))


def _policies(listed: Mapping[str, Family], *, everything: bool, whole: bool) -> Iterator[Listing | str]:
    """Yield lines about the policies of these families: the main policies, or all of them.

    Args:
        listed: The families, by name.
        everything: Whether --all is given, which lists all policies.
        whole: Whether the user has named the families, which also lists all policies.
    """
    shown = 0
    for kind, of in listed.items():
        names = list(of.policies) if everything or whole else of.main
        if not names:
            continue
        shown += len(names)
        lines = [(full_name(kind, name), of.policies[name]) for name in names]
        lines += [(f"--set {name}={each.default:g}", each.about) for name, each in of.settings.items()]
        width = max(len(name) for name, _ in lines)
        yield Listing(f"{kind or 'plain'}: {of.about}")
        yield from (f"  {name:{width}}  {about}" for name, about in lines)
    if whole:
        return
    if offered := plugins.names(GROUP):
        yield f"from installed packages: {', '.join(offered)}"
    if not everything:
        yield f"--all lists {len(known()) - shown} more: baselines and further combinations."
