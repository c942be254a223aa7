"""``ina cluster simulate``: schedulers, placement, memory and routing together, side by side."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Annotated

import typer

from controller.errors import BadSpec
from controller.policies.by_kind import policies_of
from controller.policies.registry import check_settings, parse_setting
from controller.simulator.files import whole
from controller.simulator.network.average import TOO_LONG
from controller.simulator.network.run import NetworkMetrics, NetworkOutcome, NetworkTask, run_network
from controller.simulator.network.speed import Model as ContentionModel
from controller.simulator.network.speed import NetworkSettings
from controller.simulator.pool import run_each
from controller.simulator.runs import Row, row_of, write_jobs
from controller.vocabulary import Job, Topology
from ina.cli import job_files, options
from ina.cli.allocation import common as allocation
from ina.cli.allocation.alloc import Reading
from ina.cli.errors import USAGE, Failure
from ina.cli.output import err
from ina.cli.plain import Result, count, plural, seconds
from ina.cli.schedule import common, inputs

EPILOG = """Examples:

  ina cluster simulate --jobs examples/cluster/jobs.toml --cluster examples/cluster/racks.toml

  ina cluster simulate --scheduler srsf,muri-s --placement random,netpack --jobs j.toml --cluster c.toml

  ina cluster simulate --memory shared,deadline --jobs jobs.toml --cluster racks.toml --plot run.svg --json

  ina cluster simulate --explain train-3 --memory deadline --jobs jobs.toml --cluster racks.toml
"""

OWN = (
    "or one of your own: path.py:NAME, or a name that an installed package offers. Compares "
    "several, separated by commas."
)
KINDS = ("scheduler", "placement", "memory", "routing")


Schedulers = Annotated[
    str,
    typer.Option(
        metavar="NAME,…",
        help="Choose who runs when: a scheduler of 'ina schedule policies', or one of your "
        "own: path.py:NAME or package.module:NAME. Compares several, separated by commas.",
    ),
]
Placements = Annotated[
    str,
    typer.Option(
        metavar="NAME,…",
        help="Choose who runs where: netpack, random, gpu-balance, least-fragmentation, locality, "
        f"locality-fast-links, optimus, or scheduler (where the scheduler puts it); {OWN}",
    ),
]
Memories = Annotated[
    str,
    typer.Option(
        metavar="NAME,…",
        help="Divide slots by this policy: shared, static, deadline, deadline-lazy, earliest, preemptive, "
        f"preemptive-ending; {OWN}",
    ),
]
Routings = Annotated[
    str,
    typer.Option(
        metavar="NAME,…",
        help=f"Choose trees by this policy: shortest-path, tor-only, ecmp, ecmp-everywhere, grid; {OWN}",
    ),
]
Model = Annotated[
    ContentionModel,
    typer.Option(
        help="Model contention as an average, for thousands of jobs, or iteration by iteration "
        "(phases), for tens of jobs."
    ),
]
Period = Annotated[
    float,
    typer.Option(
        metavar="SECONDS",
        help="Divide memory again every so many seconds, besides at starts and ends of jobs; 0: only then.",
    ),
]


def simulate(
    *,
    jobs: allocation.Jobs,
    cluster: allocation.ClusterFile,
    scheduler: Schedulers = "fifo-backfill",
    placement: Placements = "netpack",
    memory: Memories = "shared",
    routing: Routings = "shortest-path",
    model: Model = "average",
    reading: Reading = "measured",
    period: Period = 60.0,
    margin: allocation.Margin = 0.05,
    settings: inputs.Settings = None,
    seed: inputs.Seed = 0,
    processes: inputs.Processes = 0,
    verify: Annotated[
        bool,
        typer.Option(
            "--verify", help="Check every decision of the scheduler: no GPU and no job is used twice. Slower."
        ),
    ] = False,
    explain: allocation.Explain = None,
    plot: Annotated[
        Path | None,
        typer.Option(
            writable=True,
            metavar="FILE",
            help="Draw jobs, deadlines, slots and rates over time, for the last combination: "
            ".png, .svg or .pdf.",
        ),
    ] = None,
    jobs_csv: inputs.JobsCsv = None,
    json: options.Json = False,
) -> None:
    """Simulate jobs that share a cluster's links and switch memory, and compare policies.

    Simulates each combination of scheduler, placement, memory and routing. Times are in seconds, on the clock
    of the jobs' arrivals. A job that has servers in the file waits for these servers.
    """
    allocation.check_files(plot)
    names = {"placement": placement, "memory": memory, "routing": routing}
    chosen = {"scheduler": inputs.parse_policies(scheduler)}
    chosen |= {kind: allocation.policies(text, kind) for kind, text in names.items()}
    around = NetworkSettings(model=model, reading=reading, period_s=period, margin=margin, seed=seed)
    given = allocation.load(jobs, cluster, "cluster simulate")
    tasks = tasks_of(chosen, given.jobs, given.topology, around, settings or (), verify=verify)
    if explain is not None:
        allocation.one_job(explain, given.jobs)
    if plot is not None or explain is not None:
        tasks[-1] = replace(tasks[-1], keep_log=True)
    outcomes = run(tasks, processes)
    if plot is not None:
        from controller.simulator.network.plots import draw

        draw(outcomes[-1].simulated, plot)
    if jobs_csv is not None:
        with whole(jobs_csv) as draft:
            write_jobs(draft, (({**o.task.names}, _rows(o)) for o in outcomes))
    if explain is not None:
        from controller.simulator.network.explain import explain as explain_simulated

        lines = explain_simulated(outcomes[-1].simulated, explain)
        policies = " + ".join(tasks[-1].names.values())
        allocation.print_lines(lines, "cluster simulate", policies, explain, json=json)
        return
    if json:
        _result(outcomes).print_json(unused_keys=job_files.unused_keys("cluster simulate", jobs, cluster))
        return
    title = (
        f"{plural(len(given.jobs), 'job')} on {plural(given.topology.gpus, 'GPU')} in"
        f" {plural(sum(server.gpus > 0 for server in given.topology.servers), 'server')}"
    )
    common.table(title, COLUMNS, [_cells(o) for o in outcomes])
    for outcome in outcomes:
        if crowded := sorted(outcome.simulated.crowded):
            err.print(_doubt(outcome, crowded), highlight=False, soft_wrap=True)


def tasks_of(
    chosen: dict[str, list[str]],
    jobs: Sequence[Job],
    cluster: Topology,
    around: NetworkSettings,
    settings: Iterable[str],
    *,
    verify: bool = False,
) -> list[NetworkTask]:
    """Return a task for each combination of policies, in their order.

    Args:
        chosen: Names of the policies, by kind.
        jobs: The jobs.
        cluster: Servers, switches and links.
        around: All other settings of the simulations.
        settings: Settings of the scheduling policies, each ``NAME=VALUE``.
        verify: Check every decision.

    Raises Failure.
    """
    try:
        numbers = tuple(parse_setting(text) for text in settings)
        check_settings(numbers, chosen["scheduler"])
    except BadSpec as error:
        raise Failure(f"--set: {error}", USAGE) from error
    tasks = []
    for scheduler, placement, memory, routing in itertools.product(*(chosen[kind] for kind in KINDS)):
        with_names = replace(around, placement=placement, memory=memory, routing=routing)
        policies_of(with_names)
        tasks.append(
            NetworkTask(
                jobs=jobs,
                topology=cluster,
                scheduler=scheduler,
                settings=with_names,
                of_scheduler=numbers,
                verify=verify,
            )
        )
    return tasks


def run(tasks: Sequence[NetworkTask], processes: int) -> list[NetworkOutcome]:
    """Run the tasks, with a bar for each. Raises Failure."""
    labels = [" + ".join(task.names.values()) for task in tasks]
    with common.Bars(labels) as bars:
        return run_each(run_network, tasks, processes=processes, report=bars.update if bars.shown else None)


COLUMNS = (
    *("scheduler", "placement", "memory", "routing", "avg JCT s", "median s", "p99 s", "makespan s"),
    *("slowdown", "missed", "GPUs", "took"),
)


def _cells(outcome: NetworkOutcome) -> tuple[str, ...]:
    found = outcome.metrics
    return (
        *outcome.task.names.values(),
        count(found.avg_jct_s),
        count(found.median_jct_s),
        count(found.p99_jct_s),
        count(found.makespan_s),
        f"{found.avg_slowdown:.2f}",
        _missed_of(found),
        f"{found.gpu_busy:.1%}",
        seconds(outcome.cpu_s),
    )


def _missed_of(found: NetworkMetrics) -> str:
    if not found.deadlines:
        return "-"
    broken = f", {found.broken} after losing a grant" if found.broken else ""
    return f"{found.missed} of {found.deadlines}{broken}"


def _rows(outcome: NetworkOutcome) -> Iterable[Row]:
    return [row_of(each) for each in outcome.simulated.result.jobs]


def _result(outcomes: Sequence[NetworkOutcome]) -> Result:
    task = outcomes[0].task
    setup = {
        "jobs": len(task.jobs),
        "servers": len(task.topology.servers),
        "gpus": task.topology.gpus,
        "cluster": task.topology.name,
        **{key: value for key, value in asdict(task.settings).items() if key not in task.settings.names},
        "settings": dict(task.of_scheduler),
    }
    metrics = {
        " + ".join(o.task.names.values()): {
            **asdict(o.metrics),
            "cpu_s": o.cpu_s,
            "missed_jobs": _missed(o),
            "crowded_jobs": sorted(o.simulated.crowded),
        }
        for o in outcomes
    }
    return Result("cluster simulate", setup, metrics)


def _doubt(outcome: NetworkOutcome, crowded: Sequence[str]) -> str:
    some = ", ".join(crowded[:3]) + (", …" if len(crowded) > 3 else "")
    return (
        f"Note: with {' + '.join(outcome.task.names.values())}, {plural(len(crowded), 'job')} ({some}) shared"
        f" slots of which one job alone can fill more than {TOO_LONG:g} times as many. Their times may be off"
        " by 60 %; 'ina sim' computes them packet by packet."
    )


def _missed(outcome: NetworkOutcome) -> list[str]:
    return sorted(each.spec.name for each in outcome.simulated.missed)
