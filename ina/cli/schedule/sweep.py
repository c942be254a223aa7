"""``ina schedule sweep``: policies over loads and seeds, on many cores or on a Ray cluster."""

from __future__ import annotations

import json as json_module
import re
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from controller.simulator.files import whole
from controller.simulator.pool import run_all, run_on_ray
from controller.simulator.runs import Outcome, Point, Task, points_of, sweep_tasks, write_rows
from controller.simulator.traces.rows import brief
from ina.cli import job_files, options
from ina.cli.errors import USAGE, Failure
from ina.cli.plain import count, plural
from ina.cli.schedule import common, inputs

EPILOG = """Examples:

  ina schedule sweep --policy srtf,tiresias,muri-s --loads 0.8,1,1.2 --seeds 0-4

  ina schedule sweep --trace trace3.csv --loads 0.5,1,2 --output sweep.json --plot sweep.svg

  ina schedule sweep --seeds 0-99 --ray --ray-address ray://head:10001
"""


SEED_DIGITS = 6


def sweep(
    *,
    policy: inputs.Policies = "fifo,srtf,muri-s",
    loads: Annotated[
        str,
        typer.Option(
            metavar="FACTORS",
            help="Simulate these comma-separated loads: for generated jobs, the offered load "
            "relative to the cluster's capacity; for a trace, how many times as fast jobs "
            "arrive.",
        ),
    ] = "1",
    seeds: Annotated[
        str,
        typer.Option(
            metavar="SEEDS", help="Generate jobs with each of these seeds: numbers and ranges, such as 0-4,7."
        ),
    ] = "0",
    workload: inputs.JobOptions,
    cluster: inputs.ClusterOptions,
    models: inputs.ModelOptions,
    settings: inputs.Settings = None,
    processes: inputs.Processes = 0,
    ray: Annotated[
        bool, typer.Option("--ray", help="Run on a Ray cluster; files must have the same paths there.")
    ] = False,
    ray_address: Annotated[
        str,
        typer.Option(
            metavar="ADDRESS",
            help="With --ray: connect to this cluster. Default: RAY_ADDRESS, else a new cluster on "
            "this machine.",
        ),
    ] = "",
    output: Annotated[
        Path | None,
        typer.Option(
            writable=True,
            metavar="FILE",
            help="Write the JSON object to this file, too: means, and the figures of each simulation.",
        ),
    ] = None,
    plot: Annotated[
        Path | None,
        typer.Option(
            writable=True,
            metavar="FILE",
            help="Draw completion times by load: .svg, .png or .pdf. Needs matplotlib.",
        ),
    ] = None,
    jobs_csv: inputs.JobsCsv = None,
    json: options.Json = False,
) -> None:
    """Simulate policies over several loads and seeds, and print means over the seeds.

    Runs one simulation for each policy, load and seed. Times are in seconds; ± is the standard deviation over
    the seeds. The figures do not depend on where, or in how many processes, the simulations run.
    """
    names = inputs.parse_policies(policy)
    if plot is not None:
        common.check_plots("--plot", plot)
    if ray_address and not ray:
        raise Failure("--ray-address needs --ray: give both", USAGE)
    servers = cluster.servers()
    around = models.config(servers, names, settings)
    source, _ = workload.offered(names, around, load=1.0)
    planned = sweep_tasks(
        names,
        source,
        around,
        loads=_loads(loads),
        seeds=_seeds(seeds),
        rows=jobs_csv is not None,
    )
    unused_keys = job_files.note("schedule sweep", workload.trace, cluster.cluster)
    outcomes = _run(planned, processes, ray=ray, address=ray_address)
    points = points_of(outcomes)
    document = _json(planned, outcomes, points, unused_keys)
    if output is not None:
        with whole(output) as draft:
            draft.write_text(document + "\n", encoding="utf-8")
    if jobs_csv is not None:
        with whole(jobs_csv) as draft:
            write_rows(draft, outcomes)
    if plot is not None:
        with whole(plot) as draft:
            _draw(points, draft)
    if json:
        print(document)
    else:
        jobs = workload.generated if workload.trace is None else workload.trace
        _show(points, f"{jobs} jobs on {plural(servers.gpus, 'GPU')}, mean of seeds {seeds}")


def _seeds(text: str) -> tuple[int, ...]:
    for number in re.findall(r"[0-9]+", text):
        if len(number) > SEED_DIGITS:  # before a range of such numbers is made
            raise Failure(f"--seeds: {brief(number)} has more than {SEED_DIGITS} digits", USAGE)
    return options.parse_numbers("--seeds", text)


def _loads(text: str) -> list[float]:
    try:
        return [float(part) for part in text.split(",") if part.strip()]
    except ValueError:
        raise Failure(f"--loads {brief(repr(text))}: want numbers, such as 0.8,1,1.2", USAGE) from None


def _run(planned: Sequence[Task], processes: int, *, ray: bool, address: str) -> list[Outcome]:
    name = f"{len(planned)} simulations"
    with common.Bars([task.policy for task in planned], together=name) as bars:
        report = bars.update if bars.shown else None
        if ray:
            return run_on_ray(planned, address=address, report=report)
        return run_all(planned, processes=processes, report=report)


def _json(
    planned: Sequence[Task],
    outcomes: Sequence[Outcome],
    points: Sequence[Point],
    unused_keys: Sequence[str],
) -> str:
    first = planned[0]
    setting = {
        "trace": str(first.source.trace or "generated"),
        "servers": len(first.config.cluster.servers),
        "gpus": first.config.cluster.gpus,
        "unused_keys": unused_keys,
    }
    runs = [
        {"load": o.task.source.load, "seed": o.task.source.seed, **asdict(o.metrics), "policy": o.task.policy}
        for o in outcomes
    ]
    means = [asdict(point) for point in points]
    return json_module.dumps(
        {"name": "schedule sweep", "setup": setting, "points": means, "runs": runs}, indent=2
    )


def _show(points: Sequence[Point], title: str) -> None:
    columns = ["policy", "load", "avg JCT s", "±", "median s", "p99 s", "±", "slowdown", "queue", "GPUs"]
    rows = [
        (
            point.policy,
            f"{point.load:g}",
            count(point.mean["avg_jct_s"]),
            count(point.spread["avg_jct_s"]),
            count(point.mean["median_jct_s"]),
            count(point.mean["p99_jct_s"]),
            count(point.spread["p99_jct_s"]),
            f"{point.mean['avg_slowdown']:.2f}",
            f"{point.mean['avg_queue']:.1f}",
            f"{point.mean['gpu_busy']:.1%}",
        )
        for point in points
    ]
    common.table(title, columns, rows)


def _draw(points: Sequence[Point], path: Path) -> None:
    from bmv2_topos.plots import draw_lines

    lines: dict[str, list[tuple[float, float]]] = {}
    for point in points:
        lines.setdefault(point.policy, []).append((point.load, point.mean["avg_jct_s"] / 3600))
    lines = {policy: sorted(found) for policy, found in lines.items()}
    draw_lines(lines, path, x="load", y="average completion time (h)")
