"""``ina schedule profile``: a job's sensitivity to CPUs, measured while it runs."""

from __future__ import annotations

import os
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Annotated

import typer

from controller.policies.scheduling.synergy.demand import BadDemand, BadMatrix, ServerShape, demand
from controller.policies.scheduling.synergy.matrix_csv import ModelProfile, write_profile
from controller.policies.scheduling.synergy.profiling import Dataset
from controller.vocabulary import Job
from hostlib import interleave
from ina.bench.cpu_counts import MOST_ITERATIONS, NO_STORAGE, JobOnCpus, Measured, profile_job
from ina.cli import options
from ina.cli.errors import USAGE, Failure
from ina.cli.live import print_output
from ina.cli.output import table
from ina.cli.plain import Result, seconds
from ina.runtime.fabric import open_fabric
from ina.runtime.fabric_jobs import FabricLauncher
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
        list[str] | None,
        typer.Argument(help="Run this training program; give it after --.", metavar="-- COMMAND"),
    ] = None,
    most: Annotated[
        int | None,
        typer.Option(
            "--cpus", min=1, help="Measure with at most this many CPUs. Default: all CPUs of this machine."
        ),
    ] = None,
    iterations: Annotated[
        int,
        typer.Option(
            min=1, max=MOST_ITERATIONS, help="Measure this many iterations with each number of CPUs."
        ),
    ] = 8,
    reads: Annotated[
        float,
        typer.Option(
            metavar="MB", min=0, help="Assume that an iteration reads this many MB; 0: storage is no limit."
        ),
    ] = 0.0,
    dataset: Annotated[
        float, typer.Option(metavar="MB", min=0, help="With --reads: set the size of the data set, in MB.")
    ] = 0.0,
    storage: Annotated[
        float,
        typer.Option(
            metavar="MBPS", min=1e-6, help="With --reads: set the storage bandwidth per GPU, in MB/s."
        ),
    ] = 62.5,
    name: Annotated[str, typer.Option(help="Name the model in --out.")] = "measured",
    cpus_per_gpu: Annotated[
        int, typer.Option(min=1, help="Make the profile for servers with this many CPUs per GPU.")
    ] = 3,
    out: Annotated[
        Path | None,
        typer.Option(
            writable=True,
            metavar="FILE",
            dir_okay=False,
            help="Append the profile to this CSV file, which --matrix reads.",
        ),
    ] = None,
    json: options.Json = False,
) -> None:
    """Measure how the speed of a job depends on its number of CPUs.

    Runs the program as a job of one worker. The program must mark its stages (hostlib.interleave.stages) and
    run long enough. Its processes are bound to one CPU, to all CPUs, and to numbers between as long as these
    add information; then the program is ended. The effect of memory is computed, not measured: a cache holds
    its share of the data set, and the rest is read from storage (Synergy, OSDI'22, 3.1).
    """
    if not command:
        raise Failure("nothing to run: give -- COMMAND...", USAGE)
    if (reads > 0) != (dataset > 0) or reads > dataset:
        raise Failure(
            f"--reads {reads:g}, --dataset {dataset:g}: want both, with a data set that is "
            "not smaller than the reads",
            USAGE,
        )
    cpus = sorted(os.sched_getaffinity(0))
    if most is not None and most > len(cpus):
        raise Failure(f"--cpus {most}: this process may use only {len(cpus)}", USAGE)
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
def running(command: list[str]) -> Iterator[JobOnCpus]:
    """Run a job of one worker that reports its iterations, and end it afterwards."""
    spec = LaunchSpec(job=Job(name="profiled", workers=1, command=tuple(command)))
    with open_fabric(FabricSpec(), [1]) as fabric, ThreadPoolExecutor(1) as pool:
        group = GroupRun(FabricLauncher(fabric), [spec], (0,), on_output=_complaint)
        future = pool.submit(group.run)
        try:
            yield JobOnCpus(group.turns, spec.job.name, lambda: _end(future))
        finally:
            group.cancel()
            with suppress(Cancelled):
                future.result()


def _end(future: Future[list[JobEnd]]) -> str | None:
    if not future.done():
        return None
    (end,) = future.result()
    return str(end.failure() or "the program ended before all was measured: give it more work")


def _complaint(spec: LaunchSpec, rank: int, data: bytes, is_error: bool) -> None:
    if is_error:
        print_output(spec, rank, data, is_error)


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
