"""``ina schedule``: simulate schedulers on traces of jobs, side by side."""

from __future__ import annotations

import json as json_module
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from controller.cli import options
from controller.cli.errors import USAGE, Failure
from controller.cli.output import count, out, table
from controller.scheduling import BadSpec, BadTrace, Cluster, JobSpec
from controller.simulator import Metrics, measure, simulate
from controller.simulator.generate import generate
from controller.simulator.setups import SETUPS, setup
from controller.simulator.traces import READERS, read

EPILOG = """Examples:

  ina schedule simulate --generate 500 --policy fifo,srtf,muri-s

  ina schedule simulate --trace trace3.csv --policy coded:srtf,coded:muri-s --json
"""

app = typer.Typer(no_args_is_help=True, help="Simulate schedulers of training jobs.")


@app.command("simulate", epilog=EPILOG)
def simulate_(
    trace: Annotated[Path | None, typer.Option(help="Trace file; its first line tells the format.")] = None,
    generated: Annotated[int, typer.Option("--generate", min=1, help="Or so many jobs of our own.")] = 500,
    policy: Annotated[
        str, typer.Option(help=f"Policies, by comma: {', '.join(SETUPS)}.")
    ] = "fifo,srtf,muri-s",
    nodes: Annotated[int, typer.Option(min=1, help="Servers.")] = 8,
    gpus: Annotated[int, typer.Option(min=1, help="GPUs per server.")] = 8,
    format: Annotated[str, typer.Option(help=f"Format of the trace: {', '.join(READERS)}.")] = "",
    load: Annotated[float, typer.Option(help="Load of generated jobs; 1: the cluster is just enough.")] = 1.2,
    seed: Annotated[int, typer.Option(help="Seed of generated jobs.")] = 0,
    verify: Annotated[bool, typer.Option("--verify", help="Check every decision.")] = False,
    json: options.Json = False,
) -> None:
    """Run policies on the same jobs and compare what becomes of these."""
    names = [name for name in policy.split(",") if name]
    unknown = [name for name in names if name not in SETUPS]
    if unknown or not names:
        wrong = f"policy {unknown[0]!r} is unknown" if unknown else "no policy"
        raise Failure(f"{wrong}; known are {', '.join(SETUPS)}", USAGE)
    cluster = Cluster.uniform(nodes, gpus)
    jobs = _jobs(trace, format, generated, cluster, load, seed, names)
    found = {name: _one(name, jobs, cluster, verify) for name in names}
    if json:
        setting = {"jobs": len(jobs), "nodes": nodes, "gpus": gpus, "trace": str(trace or "generated")}
        metrics = {name: asdict(metrics) for name, metrics in found.items()}
        print(
            json_module.dumps({"name": "schedule simulate", "setup": setting, "metrics": metrics}, indent=2)
        )
        return
    columns = ["policy", "avg JCT s", "median s", "p99 s", "makespan s", "queue", "GPUs given", "preempted"]
    rows = [
        (
            name,
            count(metrics.avg_jct_s),
            count(metrics.median_jct_s),
            count(metrics.p99_jct_s),
            count(metrics.makespan_s),
            f"{metrics.avg_queue:.1f}",
            f"{metrics.gpu_busy:.1%}",
            count(metrics.preemptions),
        )
        for name, metrics in found.items()
    ]
    table(f"{len(jobs)} jobs on {nodes} x {gpus} GPUs", columns, rows)


def _jobs(
    trace: Path | None,
    format: str,
    generated: int,
    cluster: Cluster,
    load: float,
    seed: int,
    names: list[str],
) -> list[JobSpec]:
    try:
        if trace is not None:
            return read(trace, cluster, format=format)
        coded = any(name.startswith("coded:") for name in names)
        return generate(generated, cluster, load=load, seed=seed, three_stages=coded)
    except (BadTrace, BadSpec) as error:
        raise Failure(str(error), USAGE) from error


def _one(name: str, jobs: list[JobSpec], cluster: Cluster, verify: bool) -> Metrics:
    chosen = setup(name)
    try:
        with out.status(f"{name}: {len(jobs)} jobs"):
            result = simulate(jobs, cluster, chosen.policy, chosen.speed, chosen.rules, verify=verify)
    except BadSpec as error:
        raise Failure(f"{name}: {error}", USAGE) from error
    return measure(result)
