"""Throughput of one switch process with several jobs at once, against one as large as all and one of them.

Its workers are this module as a program: a rank sums repeatedly, beside the workers of other jobs. All jobs
begin together: each leaves a file when its ranks are ready, and waits for those of the others. Each
continues until all have done their iterations, so that the last ones compete with as many jobs as the first.
"""

from __future__ import annotations

import json as json_module
import statistics
import sys
import tempfile
import time
from bisect import bisect_right
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

import hostlib
from benchmarks.fill import asked, option
from benchmarks.speed.shown import show
from controller.vocabulary import Job
from ina.bench.allreduce import Data
from ina.cli import options
from ina.cli.declared import Json
from ina.cli.errors import USAGE, Failure
from ina.cli.live import print_output
from ina.cli.plain import parse_size
from ina.runtime.fabric import SwitchFabric, open_fabric
from ina.runtime.fabric_jobs import FabricLauncher
from ina.runtime.jobs import JobEnd, run_jobs
from ina.runtime.metrics import metrics, total
from ina.runtime.spec import FabricSpec, LaunchSpec
from ina.runtime.topology import MAX_CHILDREN

PATIENCE_S = 60.0


def throughput_bps(jobs: Sequence[Sequence[float]], bytes_per_iteration: float) -> float:
    """Return the bits per second that all jobs moved while all of them were at work.

    Args:
        jobs: when each job began and when each of its iterations ended, in seconds of one clock.
        bytes_per_iteration: what one iteration of one job moves.

    >>> throughput_bps([[0.0, 1.0, 2.0], [0.5, 1.5, 2.5]], 1.0)
    16.0
    """
    first, last = max(times[0] for times in jobs), min(times[-1] for times in jobs)
    if last <= first:
        raise ValueError("the jobs never ran at the same time")
    done = sum(_iterations(times, last) - _iterations(times, first) for times in jobs)
    return 8 * bytes_per_iteration * done / (last - first)


def _iterations(times: Sequence[float], at: float) -> float:
    """Return the number of iterations done at a time, with the fraction of the one under way."""
    index = min(bisect_right(times, at) - 1, len(times) - 2)
    return index + (at - times[index]) / (times[index + 1] - times[index])


class JobBarrier:
    """A barrier between the jobs: files of a directory tell which of them have reached it."""

    def __init__(self, name: str, directory: Path, job: str, jobs: int) -> None:
        self._name, self._directory, self._job, self._jobs = name, directory, job, jobs
        self._since: float | None = None

    def all_there(self) -> bool:
        """Note that this job has reached it; return True once all have. Exits after `PATIENCE_S`."""
        now = time.monotonic()
        if self._since is None:
            self._since = now
            (self._directory / f"{self._job}.{self._name}").touch()
        if len(list(self._directory.glob(f"*.{self._name}"))) == self._jobs:
            return True
        if now > self._since + PATIENCE_S:
            raise SystemExit(f"the other jobs were not {self._name} within {PATIENCE_S:g} s")
        return False


def jobs(
    number: Annotated[int, typer.Option("--jobs", min=2, max=16)] = 4,
    workers: Annotated[int, typer.Option(*options.WORKERS, min=1, help="Workers of each job.")] = 2,
    size: Annotated[str, typer.Option(help="Sum arrays of this many bytes, such as 64MB.")] = "16MB",
    iterations: Annotated[int, typer.Option(min=2, help="Allreduces per job and round.")] = 30,
    rounds: Annotated[int, typer.Option(min=1, help="Each round runs all cases in turn.")] = 3,
    program: options.Program = "shared",
    lanes: options.Lanes = 256,
    slots: Annotated[int | None, typer.Option(min=0)] = None,
    json: Json = False,
) -> None:
    """Compare the throughput of one switch process with several concurrent jobs and with one job.

    Three cases take turns on the same switch: all jobs; one job with as many workers as all jobs together,
    whose ratio is the cost of sharing; and one of the jobs alone on the machine. Figures are medians of
    rounds, for what else the machine does comes and goes; shares are of packets that collided or were sent
    again.
    """
    try:
        payload = parse_size(size)
    except ValueError as error:
        raise Failure(f"--size {error}", exit_code=USAGE) from error
    if number * workers > MAX_CHILDREN:
        raise Failure(
            f"--jobs {number} with {workers} workers each: {number * workers} workers; one "
            f"switch sums at most {MAX_CHILDREN}",
            exit_code=USAGE,
        )
    shapes = {"several": [workers] * number, "one_job": [number * workers], "alone": [workers]}
    measured: dict[str, list[tuple[float, float, float]]] = {name: [] for name in shapes}
    with open_fabric(FabricSpec(program=program, lanes=lanes), [number * workers]) as fabric:
        for name in list(shapes) * rounds:
            measured[name].append(_measure(fabric, shapes[name], payload, iterations, slots))
    found: dict[str, float] = {}
    for name, turns in measured.items():
        prefix = "" if name == "several" else f"{name}_"
        rates, collided, resent = zip(*turns, strict=True)
        found[f"{prefix}gradient_bps"] = statistics.median(rates)
        found[f"{prefix}gradient_best_bps"] = max(rates)
        found[f"{prefix}collided_share"] = statistics.fmean(collided)
        found[f"{prefix}resent_share"] = statistics.fmean(resent)
        if prefix:
            ratios = (all_jobs[0] / rate for all_jobs, rate in zip(measured["several"], rates, strict=True))
            found[f"ratio_vs_{name}"] = statistics.median(ratios)
    setup = {"jobs": number, "workers": workers, "size_bytes": payload, "iterations": iterations}
    setup |= {"rounds": rounds, "lanes": lanes}
    show("jobs", {**setup, "program": program, "slots": slots}, found, json=json)


def _measure(
    fabric: SwitchFabric, shape: Sequence[int], payload: int, iterations: int, slots: int | None
) -> tuple[float, float, float]:
    """Run jobs of these sizes once, at the same time.

    Returns: their bits per second together, and the shares of packets that collided and were sent again.
    """
    with tempfile.TemporaryDirectory() as directory:
        specs = []
        for index, workers in enumerate(shape):
            command = [sys.executable, "-m", "benchmarks.speed.jobs", "--bytes", str(payload)]
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
    rate = throughput_bps(times, payload * shape[0])
    return rate, sums["switch_collided_packets"] / sent, sums["resent_packets"] / sent


def main() -> None:
    """Run the iterations; rank 0 writes when it began and when each iteration ended."""
    given = asked(
        None,
        option("--bytes", type=int, required=True),
        option("--iterations", type=int, required=True),
        option("--output", type=Path, required=True),
        option("--name", required=True),
        option("--jobs", type=int, required=True),
    )

    hostlib.init()
    data = Data(given.bytes // 4, hostlib.rank(), hostlib.size())
    for _ in range(2):  # first uses pay for page faults
        data.fill()
        hostlib.allreduce(data.array, op="sum", out=data.array)
        data.check(1e-5 * hostlib.size())
    ready, done = (JobBarrier(name, given.output, given.name, given.jobs) for name in ("ready", "done"))
    while hostlib.rank() == 0 and not ready.all_there():
        time.sleep(0.01)
    hostlib.barrier()
    times = [time.monotonic()]
    array = data.array
    array[0] = 0  # the average of equal arrays stays as it is, until rank 0 says here that it is the last
    while array[0] == 0:
        if hostlib.rank() == 0 and len(times) > given.iterations and done.all_there():
            array[0] = 1
        hostlib.allreduce(array, op="average", out=array)
        times.append(time.monotonic())
    if hostlib.rank() == 0:
        (given.output / f"{given.name}.json").write_text(json_module.dumps(times))
    hostlib.shutdown()


if __name__ == "__main__":
    main()
