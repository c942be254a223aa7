"""``ina schedule profile``: a job's sensitivity to CPUs, measured while it runs."""

from __future__ import annotations

import os
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Annotated

import typer

from controller.scheduling.synergy import BadDemand, BadMatrix, Dataset, ModelProfile, ServerShape, demand
from controller.scheduling.synergy.matrix_csv import write_profile
from hostlib import interleave
from ina.bench.cpu_counts import MOST_ITERATIONS, NO_STORAGE, Measured, RunningJob, profile_job
from ina.cli import options
from ina.cli.errors import USAGE, Failure
from ina.cli.live import print_output
from ina.cli.output import table
from ina.cli.plain import Result, seconds
from ina.runtime.fabric import open_fabric
from ina.runtime.job_group import Cancelled, GroupRun
from ina.runtime.jobs import JobEnd
from ina.runtime.spec import FabricSpec, LaunchSpec

MEMORY_GB = (20.83, 62.5, 125.0, 187.5, 250.0)
"""Sizes at which Synergy's own profiles are kept."""

SERVER_GPUS = 8

EPILOG = """Examples:

  ina schedule profile -- python examples/four_stages.py --iterations 500 --views 24 --threads 4 --batch 256

  ina schedule profile --name vision --out matrix.csv --reads 28 --dataset 140000 -- python train.py

  ina schedule simulate --policy synergy:srtf+tune,synergy:srtf+proportional --matrix matrix.csv
"""


def profile_(
    command: Annotated[
        list[str] | None, typer.Argument(help="The training program, after --.", metavar="-- COMMAND")
    ] = None,
    most: Annotated[
        int | None, typer.Option("--cpus", min=1, help="Most CPUs; by default as many as there are here.")
    ] = None,
    iterations: Annotated[
        int,
        typer.Option(min=1, max=MOST_ITERATIONS, help="Iterations measured with each number of CPUs."),
    ] = 8,
    reads: Annotated[
        float, typer.Option(metavar="MB", min=0, help="What an iteration reads; 0: storage is no limit.")
    ] = 0.0,
    dataset: Annotated[
        float, typer.Option(metavar="MB", min=0, help="Size of the data set, with --reads.")
    ] = 0.0,
    storage: Annotated[
        float, typer.Option(metavar="MBPS", min=1e-6, help="Storage bandwidth of a GPU, with --reads.")
    ] = 62.5,
    name: Annotated[str, typer.Option(help="Name of the model in --out.")] = "measured",
    cpus_per_gpu: Annotated[
        int, typer.Option(min=1, help="CPUs per GPU of the servers that the profile is for.")
    ] = 3,
    out: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", dir_okay=False, help="Add the profile to this CSV file, as --matrix takes it."
        ),
    ] = None,
    json: options.Json = False,
) -> None:
    """Measure how fast a running job is with fewer and more CPUs.

    Runs the program as a job of one worker; it has to mark its stages (hostlib.stages), and to run long
    enough. While it runs, its processes are bound to one CPU, to all, and to numbers between as long as these
    tell something new; it is ended when enough is known. The effect of memory is computed: a cache holds its
    part of the data set, and the rest comes from storage (Synergy, OSDI'22, 3.1).
    """
    if not command:
        raise Failure("nothing to run: give -- COMMAND...", USAGE)
    if (reads > 0) != (dataset > 0) or reads > dataset:
        raise Failure(f"--reads {reads:g}, --dataset {dataset:g}: give both, the data set no smaller", USAGE)
    cpus = sorted(os.sched_getaffinity(0))
    if most is not None and most > len(cpus):
        raise Failure(f"--cpus {most}: this process may use {len(cpus)}", USAGE)
    read = Dataset(max(1, round(dataset / reads)), reads) if reads else NO_STORAGE
    with running(command) as job:
        found, measured = profile_job(
            job, cpus[:most], iterations, MEMORY_GB, dataset=read, bandwidth_mbps=storage
        )
    server = ServerShape(SERVER_GPUS, SERVER_GPUS * cpus_per_gpu, SERVER_GPUS * MEMORY_GB[1])
    try:
        wants = demand(name, 1, found.sensitivity, server)
        fair = found.sensitivity.at(server.fair_cpus, server.fair_memory_gb)
        ideal = wants.ideal
        kept = ModelProfile(name, found.sensitivity, 1, 1 / fair, ideal.speed, ideal.cpus, ideal.memory_gb)
        if out is not None:
            write_profile(out, kept, cpus_per_gpu=cpus_per_gpu)
    except (BadDemand, BadMatrix, OSError) as error:
        raise Failure(f"--out: {error}" if out else str(error)) from error
    if json:
        result = {"cpus": len(cpus[:most]), "iterations": iterations, "command": command}
        summary = {"ideal_cpus": ideal.cpus, "ideal_memory_gb": ideal.memory_gb, "speedup": ideal.speed}
        rows = {
            str(each.cpus): {"iteration_s": each.profile.iteration_s, "stages_s": each.profile.stages_s}
            for each in measured
        }
        Result("schedule profile", result, summary, rows).print_json()
        return
    _show(measured, kept)


@contextmanager
def running(command: list[str]) -> Iterator[RunningJob]:
    """Run a job of one worker that reports its iterations, and end it afterwards."""
    spec = LaunchSpec(command, 1, name="profiled")
    with open_fabric(FabricSpec(), [1]) as fabric, ThreadPoolExecutor(1) as pool:
        group = GroupRun(fabric, [spec], (0,), on_output=_complaint)
        future = pool.submit(group.run)
        try:
            yield RunningJob(group.turns, spec.name, lambda: _end(future))
        finally:
            group.cancel()
            with suppress(Cancelled):
                future.result()


def _end(future: Future[list[JobEnd]]) -> str | None:
    if not future.done():
        return None
    (end,) = future.result()
    return str(end.failure() or "all its work is done; give it more")


def _complaint(job: LaunchSpec, rank: int, data: bytes, is_error: bool) -> None:
    if is_error:
        print_output(job, rank, data, is_error)


def _show(measured: list[Measured], profile: ModelProfile) -> None:
    slowest_s = measured[0].profile.iteration_s
    table(
        f"{profile.name}: medians per iteration, by CPUs",
        ["CPUs", *interleave.STAGES, "iteration", "speed"],
        [
            (
                str(each.cpus),
                *(seconds(stage_s) for stage_s in each.profile.stages_s),
                seconds(each.profile.iteration_s),
                f"{slowest_s / each.profile.iteration_s:.2f}",
            )
            for each in measured
        ],
    )
    print(
        f"ideal share: {profile.ideal_cpus:g} CPUs, {profile.ideal_memory_gb:g} GB,"
        f" {profile.speedup:.2f} times as fast as with a fair share"
    )
