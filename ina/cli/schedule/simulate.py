"""``ina schedule simulate``: policies side by side on the same jobs."""

from __future__ import annotations

import json as json_module
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer

from controller.figures import PlotsMissing, check
from controller.policies.registry import family
from controller.simulator.files import naming, whole
from controller.simulator.plots import draw_jcts, draw_utilisation
from controller.simulator.pool import run_all
from controller.simulator.runs import Outcome, SimulationTask, write_rows
from ina.cli import job_files, options
from ina.cli.output import out
from ina.cli.paths import check_output
from ina.cli.plain import count, plural, say, seconds
from ina.cli.schedule import common, inputs

EPILOG = """Examples:

  ina schedule simulate --generate 500 --policy fifo,srtf,muri-s

  ina schedule simulate --trace trace3.csv --policy srtf,muri-s --json

  ina schedule simulate --cluster examples/schedule/cluster.toml --load 0.8 --seed 1 --output results

  ina schedule simulate --policy synergy:fifo+proportional,synergy:fifo+tune --nodes 4 --cpus-per-gpu 4
"""

NUMBERS = ("metrics.json", "curves.json", "jobs.csv")
PLOTS = ("jct.svg", "utilisation.svg")


def simulate(
    *,
    policy: inputs.Policies = "fifo,srtf,muri-s",
    workload: inputs.JobOptions,
    load: inputs.Load = None,
    seed: inputs.Seed = 0,
    cluster: inputs.ClusterOptions,
    models: inputs.ModelOptions,
    settings: inputs.Settings = None,
    processes: inputs.Processes = 0,
    verify: Annotated[
        bool,
        typer.Option(
            "--verify", help="Check every decision of the scheduler: no GPU and no job is used twice. Slower."
        ),
    ] = False,
    output: Annotated[
        Path | None,
        typer.Option(
            writable=True,
            metavar="DIR",
            help=f"Write {', '.join(NUMBERS)} and, with matplotlib, {' and '.join(PLOTS)} into this "
            "directory.",
        ),
    ] = None,
    jobs_csv: inputs.JobsCsv = None,
    json: options.Json = False,
) -> None:
    """Simulate policies on the same jobs, and compare the results.

    The jobs come from a trace or are generated. Times are in seconds. Policies run in parallel on several
    cores, which does not change the figures. --output writes all its files at the end, or none.
    """
    names = inputs.parse_policies(policy)
    if output is not None:
        for name in (*NUMBERS, *PLOTS):
            check_output("--output ", output / name)
    servers = cluster.servers()
    around = models.config(servers, names, settings, seed=seed)
    source, jobs = workload.offered(names, around, load=load, seed=seed)
    unused_keys = job_files.note("schedule simulate", workload.trace, cluster.cluster)
    rows = output is not None or jobs_csv is not None
    tasks = [
        SimulationTask(name, source, around, curves=output is not None, verify=verify, rows=rows)
        for name in names
    ]
    outcomes = run(tasks, processes)
    document = as_json(outcomes, jobs)
    document["setup"]["unused_keys"] = unused_keys
    if output is not None:
        write(output, outcomes, document)
    if jobs_csv is not None:
        with whole(jobs_csv) as draft:
            write_rows(draft, outcomes)
    if json:
        print(json_module.dumps(document, indent=2))
    else:
        show(
            outcomes,
            f"{plural(jobs, 'job')} on {plural(servers.gpus, 'GPU')}"
            f" in {plural(len(servers.servers), 'server')}",
        )


def run(tasks: Sequence[SimulationTask], processes: int) -> list[Outcome]:
    """Run the tasks, with a bar for each. Raises Failure."""
    with common.Bars([task.policy for task in tasks]) as bars:
        return run_all(tasks, processes=processes, report=bars.update if bars.shown else None)


def as_json(outcomes: Sequence[Outcome], jobs: int) -> dict[str, Any]:
    """Return the object that ``--json`` prints."""
    task = outcomes[0].task
    source, cluster = task.source, task.config.cluster
    setting = {
        "jobs": jobs,
        "servers": len(cluster.servers),
        "gpus": cluster.gpus,
        "trace": str(source.trace or "generated"),
        "load": source.load,
        "seed": source.seed,
        "settings": dict(task.config.settings),
    }
    metrics = {o.task.policy: {**asdict(o.metrics), "wall_s": o.wall_s} for o in outcomes}
    return {"name": "schedule simulate", "setup": setting, "metrics": metrics}


def write(directory: Path, outcomes: Sequence[Outcome], document: dict[str, Any]) -> None:
    """Write the files of ``--output``, all of them or none."""
    curves = {
        o.task.policy: {
            "jct_s": sorted(o.jcts_s),
            "time_s": list(o.curves.time_s),
            "queue": list(o.curves.queue),
            "gpus": list(o.curves.gpus),
            "blocking": list(o.curves.blocking),
            "busy": {name: list(values) for name, values in o.curves.busy.items()},
        }
        for o in outcomes
        if o.curves is not None
    }
    with ExitStack() as stack:
        metrics_file, curves_file, jobs_file = (
            stack.enter_context(whole(directory / name)) for name in NUMBERS
        )
        with naming(metrics_file):
            metrics_file.write_text(json_module.dumps(document, indent=2) + "\n", encoding="utf-8")
        with naming(curves_file):
            curves_file.write_text(json_module.dumps(curves) + "\n", encoding="utf-8")
        with naming(jobs_file):
            write_rows(jobs_file, outcomes)
        try:
            check()
        except PlotsMissing as error:
            say(f"ina: no plots: {error}")
            return
        jct_file, utilisation_file = (stack.enter_context(whole(directory / name)) for name in PLOTS)
        with naming(jct_file):
            draw_jcts({o.task.policy: o.jcts_s for o in outcomes}, jct_file)
        curved = {o.task.policy: (o.curves, o.end_s) for o in outcomes if o.curves is not None}
        with naming(utilisation_file):
            draw_utilisation(curved, utilisation_file)


FOR_DEADLINES = ("edf", "slack", "on-time", "joint")
"""Where one of these policies is asked for, the table says how many deadlines are met."""


def show(outcomes: Sequence[Outcome], title: str) -> None:
    """Print the table."""
    due = any(o.task.policy in FOR_DEADLINES for o in outcomes)
    columns = [
        *("policy", "avg JCT s", "median s", "p99 s", "makespan s", "slowdown"),
        *("in time",) * due,
        *("queue", "GPUs", "restarts", "took"),
    ]
    rows = [
        (
            o.task.policy,
            count(o.metrics.avg_jct_s),
            count(o.metrics.median_jct_s),
            count(o.metrics.p99_jct_s),
            count(o.metrics.makespan_s),
            f"{o.metrics.avg_slowdown:.2f}",
            *(f"{o.metrics.deadlines_met} of {o.metrics.deadlines}",) * due,
            f"{o.metrics.avg_queue:.1f}",
            f"{o.metrics.gpu_busy:.1%}",
            count(o.metrics.restarts),
            seconds(o.wall_s),
        )
        for o in outcomes
    ]
    common.table(title, columns, rows)
    families = {family(o.task.policy) for o in outcomes}
    if len(families) > 1:
        kinds = ", ".join(name or "plain" for name in sorted(families))
        out.print(
            f"Speed models differ between {kinds}: compare figures only within one family.", highlight=False
        )
