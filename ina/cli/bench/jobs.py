"""``ina bench jobs``: several jobs at once on one switch, against one job as large as all and one of them."""

from __future__ import annotations

import json as json_module
import statistics
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer
from rich.progress import track

from controller.vocabulary import Job
from hostlib import command_line
from ina.bench.jobs import throughput_bps
from ina.cli import options
from ina.cli.errors import USAGE, Failure
from ina.cli.live import print_output
from ina.cli.output import err, table
from ina.cli.plain import Result, parse_size, plural, rate
from ina.runtime.fabric import SwitchFabric, open_fabric
from ina.runtime.fabric_jobs import FabricLauncher
from ina.runtime.jobs import JobEnd, run_jobs
from ina.runtime.metrics import metrics, total
from ina.runtime.spec import FabricSpec, LaunchSpec
from ina.runtime.topology import MAX_CHILDREN

EPILOG = """Examples:

  ina bench jobs

  ina bench jobs --jobs 2 -np 4 --size 64MB --program exclusive --json
"""


def jobs(
    number: Annotated[
        int, typer.Option("--jobs", min=2, max=16, help="Run this many jobs at the same time.")
    ] = 4,
    workers: Annotated[
        int, typer.Option(*options.WORKERS, min=1, help="Set the number of workers per job.")
    ] = 2,
    size: Annotated[
        str, typer.Option(help="Sum arrays of this many bytes, such as 64MB (1MB is 1024 x 1024 bytes).")
    ] = "16MB",
    iterations: Annotated[int, typer.Option(min=2, help="Run this many allreduces per job and round.")] = 30,
    rounds: Annotated[
        int, typer.Option(min=1, help="Measure this many rounds; each runs all cases in turn.")
    ] = 3,
    program: options.Program = "shared",
    lanes: options.Lanes = 256,
    slots: Annotated[
        int | None, typer.Option(min=0, help="Allocate this many aggregator slots, as in 'ina run'.")
    ] = None,
    json: options.Json = False,
) -> None:
    """Compare the throughput of one switch process with several concurrent jobs and with one job.

    Three cases take turns on the same switch: all jobs; one job with as many workers as all jobs together,
    whose ratio is the cost of sharing; and one of the jobs alone on the machine.
    """
    try:
        payload = parse_size(size)
    except ValueError as error:
        raise Failure(f"--size {error}", exit_code=USAGE) from error
    all_workers = number * workers
    if all_workers > MAX_CHILDREN:
        raise Failure(
            f"--jobs {number} with {workers} workers each: {number * workers} workers; one "
            f"switch sums at most {MAX_CHILDREN}",
            exit_code=USAGE,
        )
    shapes = {"several": [workers] * number, "one_job": [all_workers], "alone": [workers]}
    measured: dict[str, list[_Measured]] = {name: [] for name in shapes}
    turns = list(shapes) * rounds
    with open_fabric(FabricSpec(program=program, lanes=lanes), [all_workers]) as fabric:
        for name in track(turns, "measuring", console=err, transient=True, disable=not err.is_terminal):
            measured[name].append(_measure(fabric, shapes[name], payload, iterations, slots))
    medians = {name: statistics.median(each.bps for each in found) for name, found in measured.items()}
    # Of rounds, for what else the machine does comes and goes.
    ratios = {
        name: statistics.median(
            several.bps / each.bps for several, each in zip(measured["several"], found, strict=True)
        )
        for name, found in measured.items()
    }
    collided = {name: statistics.fmean(each.collided for each in found) for name, found in measured.items()}
    resent = {name: statistics.fmean(each.resent for each in found) for name, found in measured.items()}
    if json:
        setup = {
            "jobs": number,
            "workers": workers,
            "size_bytes": payload,
            "iterations": iterations,
            "rounds": rounds,
            "program": program,
            "lanes": lanes,
            "slots": slots,
        }
        numbers: dict[str, float] = {}
        for name, median in medians.items():
            prefix = "" if name == "several" else f"{name}_"
            numbers[f"{prefix}gradient_bps"] = median
            numbers[f"{prefix}gradient_best_bps"] = max(each.bps for each in measured[name])
            numbers[f"{prefix}collided_share"] = collided[name]
            numbers[f"{prefix}resent_share"] = resent[name]
            if prefix:
                numbers[f"ratio_vs_{name}"] = ratios[name]
        Result("bench jobs", setup, numbers).print_json()
        return
    table(
        f"gradients into the switch, {program}, {lanes} lanes, arrays of {size}, median of {rounds}",
        ["", "throughput", f"{number} jobs have", "collided", "sent again"],
        [
            (
                _words(shapes[name]),
                rate(median),
                f"{ratios[name]:.2f} of it",
                f"{collided[name]:.2%}",
                f"{resent[name]:.2%}",
            )
            for name, median in medians.items()
        ],
    )


@dataclass(frozen=True, slots=True)
class _Measured:
    """Packets of the jobs' workers together, and the shares that found slots taken, or were sent again."""

    bps: float
    collided: float
    resent: float


def _words(shape: Sequence[int]) -> str:
    return f"{plural(len(shape), 'job')} of {plural(shape[0], 'worker')}"


def _measure(
    fabric: SwitchFabric, shape: Sequence[int], payload: int, iterations: int, slots: int | None
) -> _Measured:
    """Run the jobs once, at the same time."""
    with tempfile.TemporaryDirectory() as directory:
        specs = []
        for index, workers in enumerate(shape):
            command = command_line.module("ina.bench.jobs", "--bytes", str(payload))
            command += ["--iterations", str(iterations), "--output", directory]
            command += ["--name", f"job{index}", "--jobs", str(len(shape))]
            job = Job(name=f"job{index}", workers=workers, command=tuple(command), slots=slots)
            specs.append(LaunchSpec(job=job))
        ends = [JobEnd(spec) for spec in specs]
        run_jobs(FabricLauncher(fabric), ends, on_output=print_output)
        for end in ends:
            end.check()
        times = [json_module.loads((Path(directory) / f"{spec.job.name}.json").read_text()) for spec in specs]
    sums = total(metrics(end.result) for end in ends if end.result)
    sent = sums["sent_packets"] + sums["resent_packets"]
    return _Measured(
        throughput_bps(times, payload * shape[0]),
        sums["switch_collided_packets"] / sent,
        sums["resent_packets"] / sent,
    )
