"""``ina schedule interleave``: groups of real jobs that take turns, measured beside what gamma predicts."""

from __future__ import annotations

import math
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from controller.policies.grouping.efficiency import best
from controller.vocabulary import Job
from hostlib import interleave
from hostlib.demos.four_stages import make
from ina.bench.interleave import GROUPS, KINDS, Comparison, compare, pool, steady
from ina.cli import options
from ina.cli.errors import USAGE, Failure
from ina.cli.live import print_output
from ina.cli.output import err, table
from ina.cli.plain import Result, parse_size, plural, seconds
from ina.runtime.fabric import SwitchFabric, open_fabric
from ina.runtime.fabric_jobs import FabricLauncher
from ina.runtime.job_group import GroupRun
from ina.runtime.spec import FabricSpec, LaunchSpec

Members = tuple[str, ...]

MOST = len(interleave.STAGES)
SLOTS = 128
"""So half as many packets of a worker are in flight: a port that has a rate can queue them."""
LEAST_RATE_BPS = 1e6
"""Below, a gradient takes so long that workers give up."""
LEAST_ITERATIONS = 5
"""Some of them are not counted (`ina.bench.interleave.steady`)."""

EPILOG = """Examples:

  ina schedule interleave

  ina schedule interleave --groups load+deep,augment+wide --iterations 40 --json
"""


def interleave_(
    groups: Annotated[
        str,
        typer.Option(
            metavar="GROUPS",
            help=f"Measure these groups, separated by commas: each joins 2 to {MOST} of these jobs "
            f"by +: {', '.join(KINDS)}.",
        ),
    ] = ",".join(GROUPS),
    workers: Annotated[
        int, typer.Option(*options.WORKERS, min=1, max=8, help="Set the number of worker processes per job.")
    ] = 2,
    iterations: Annotated[
        int,
        typer.Option(min=LEAST_ITERATIONS, help="Run this many training iterations per job and measurement."),
    ] = 20,
    rounds: Annotated[int, typer.Option(min=1, help="Measure all jobs and groups this many times.")] = 1,
    directory: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            help="Write the training records to this directory, and remove them at the end. It "
            "should be on a disk, not in memory. Default: the system's temporary directory.",
            file_okay=False,
            exists=True,
            writable=True,
        ),
    ] = None,
    size: Annotated[
        str,
        typer.Option(
            metavar="SIZE", help="Write this many bytes of training records in total, such as 256MB or 1GB."
        ),
    ] = "256MB",
    rate_bps: Annotated[
        float,
        typer.Option(
            "--rate",
            metavar="BPS",
            min=0,
            help="Limit every port to this rate, in bits per second; 0: unlimited.",
        ),
    ] = 200e6,
    cores: Annotated[
        str,
        typer.Option(
            metavar="A,B",
            help="Preprocess on core A and compute on core B. Default: the first two available cores.",
        ),
    ] = "",
    json: options.Json = False,
) -> None:
    """Run groups of training jobs in turns, and compare the speed-up with the prediction.

    First runs each job alone: its stage times give the best order of stages, the efficiency gamma and the
    predicted speed-up of every group. Then runs each group, with a barrier after every turn and gradients
    summed in the switch.

    Reads bypass the page cache. No GPU is needed: one core stands in for it, and another one preprocesses.
    """
    wanted = list(dict.fromkeys(_members(text) for text in groups.split(",") if text))
    if not wanted:
        raise Failure("--groups: no group given", USAGE)
    if not (rate_bps == 0 or LEAST_RATE_BPS <= rate_bps < math.inf):
        raise Failure(f"--rate {rate_bps:g}: want 0, or {LEAST_RATE_BPS:g} and more", USAGE)
    chosen = _two_cores(cores)
    kinds = sorted({kind for members in wanted for kind in members})
    most = max(len(members) for members in wanted)
    fabric_spec = FabricSpec(impairments=options.impairments(rate=rate_bps, queue=SLOTS))
    steps = rounds * (len(kinds) + len(wanted))
    with (
        _records(directory, size) as data,
        open_fabric(fabric_spec, [workers] * most) as fabric,
        _progress(steps) as progress,
    ):
        bench = _Bench(fabric, workers, lambda kind: KINDS[kind].command(data, iterations, chosen), progress)
        offsets: dict[Members, tuple[int, ...]] = {}
        for _ in range(rounds):
            for kind in kinds:
                bench.measure((kind,), (0,))
            for members in wanted:
                stages = [bench.alone(kind).stages_s for kind in members]
                bench.measure(members, offsets.setdefault(members, best(stages).offsets))
    jobs = {kind: bench.alone(kind) for kind in kinds}
    found = [
        (members, compare([jobs[kind] for kind in members], bench.profiles(members), offsets[members]))
        for members in wanted
    ]
    if json:
        setup = {
            "workers": workers,
            "iterations": iterations,
            "rounds": rounds,
            "size_bytes": parse_size(size),
            "rate_bps": rate_bps,
            "cores": chosen,
            "alone": {kind: asdict(each) for kind, each in jobs.items()},
        }
        of_groups = {
            "+".join(members): {
                **asdict(each),
                "together": [asdict(member) for member in bench.profiles(members)],
            }
            for members, each in found
        }
        Result("schedule interleave", setup, {"groups": len(found)}, of_groups).print_json()
        return
    _show(workers, jobs, found)


class _Bench:
    """Runs groups, of one job too, as often as asked, and keeps what each run measured."""

    def __init__(
        self, fabric: SwitchFabric, workers: int, command: Callable[[str], list[str]], progress: Progress
    ) -> None:
        self._launcher = FabricLauncher(fabric)
        self._workers = workers
        self._command = command
        self._progress = progress
        self._runs: dict[Members, list[list[interleave.Ranks]]] = {}

    def measure(self, members: Members, offsets: Sequence[int]) -> None:
        """Run a group whose jobs start their rounds at these stages. Raises Failure if it breaks."""
        (task,) = self._progress.task_ids
        self._progress.update(task, description=" + ".join(members))
        specs = [
            LaunchSpec(
                job=Job(
                    name=f"{kind}-{number}",
                    workers=self._workers,
                    command=tuple(self._command(kind)),
                    slots=SLOTS,
                )
            )
            for number, kind in enumerate(members)
        ]
        run = GroupRun(self._launcher, specs, offsets, on_output=_complaint)
        run.check(run.run())
        measured = [steady(run.turns.measured(spec.job.name)) for spec in specs]
        self._runs.setdefault(members, []).append(measured)
        self._progress.advance(task)

    def profiles(self, members: Members) -> list[interleave.StageProfile]:
        """Return the profile of each member over all runs of the group."""
        return [interleave.job_profile(pool(runs)) for runs in zip(*self._runs[members], strict=True)]

    def alone(self, kind: str) -> interleave.StageProfile:
        """Return the profile of a job that has the machine to itself."""
        return self.profiles((kind,))[0]


def _members(text: str) -> Members:
    members = tuple(text.split("+"))
    for kind in members:
        if kind not in KINDS:
            raise Failure(f"--groups {text!r}: unknown job {kind!r}; want {', '.join(KINDS)}", USAGE)
    if not 2 <= len(members) <= MOST:
        raise Failure(
            f"--groups {text!r}: {plural(len(members), 'job')} in one group; want 2 to {MOST}", USAGE
        )
    return members


def _two_cores(wanted: str) -> str:
    cores = list(map(str, sorted(os.sched_getaffinity(0))))
    if len(cores) < 2:
        raise Failure(f"preprocessing and computing need a core each; this process may use {len(cores)}")
    pair = wanted.split(",") if wanted else cores[:2]
    if len(pair) != 2 or not {*pair} <= {*cores}:
        raise Failure(
            f"--cores {wanted!r}: want two of {', '.join(cores)}, such as {cores[0]},{cores[1]}", USAGE
        )
    return ",".join(pair)


@contextmanager
def _records(directory: Path | None, size: str) -> Iterator[Path]:
    try:
        number = parse_size(size)
    except ValueError as error:
        raise Failure(f"--size {error}", USAGE) from error
    most = max(kind.record * kind.batch for kind in KINDS.values())
    if number < most:
        raise Failure(f"--size {size}: want at least {most} bytes, the size of the largest batch", USAGE)
    place = tempfile.gettempdir() if directory is None else str(directory)
    if number > (free := shutil.disk_usage(place).free):
        raise Failure(f"--size {size}: {place} has only {free} bytes free", USAGE)
    with tempfile.TemporaryDirectory(prefix="ina-records-", dir=directory) as folder:
        path = Path(folder) / "records"
        make(path, number)
        yield path


@contextmanager
def _progress(steps: int) -> Iterator[Progress]:
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=err, transient=True, disable=not err.is_terminal) as progress:
        progress.add_task("writing records", total=steps)
        yield progress


def _complaint(spec: LaunchSpec, rank: int, data: bytes, is_error: bool) -> None:
    if is_error:
        print_output(spec, rank, data, is_error)


def _show(
    workers: int,
    jobs: dict[str, interleave.StageProfile],
    found: Sequence[tuple[tuple[str, ...], Comparison]],
) -> None:
    table(
        f"each job alone, {plural(workers, 'worker')}: per iteration",
        ["job", *interleave.STAGES, "iteration"],
        [
            (kind, *(seconds(stage_s) for stage_s in each.stages_s), seconds(each.iteration_s))
            for kind, each in jobs.items()
        ],
    )
    table(
        "groups in turns: speed-up measured and predicted, and what makes the round longer",
        [
            "group",
            "starts at",
            "gamma",
            "gamma predicted",
            "speed-up",
            "speed-up predicted",
            "ratio",
            "contention",
            "barriers",
        ],
        [
            (
                " + ".join(members),
                " ".join(interleave.STAGES[offset] for offset in each.offsets),
                f"{each.measured_efficiency:.2f}",
                f"{each.predicted_efficiency:.2f}",
                f"{each.measured_speedup:.2f}",
                f"{each.predicted_speedup:.2f}",
                f"{each.measured_speedup / each.predicted_speedup:.2f}",
                f"x {each.contended_round_s / each.predicted_round_s:.2f}",
                f"x {each.measured_round_s / each.contended_round_s:.2f}",
            )
            for members, each in found
        ],
    )
