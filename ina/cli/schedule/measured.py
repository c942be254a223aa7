"""``ina schedule profile`` and ``interleave``: measure real jobs, alone and in groups that take turns."""

from __future__ import annotations

import math
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated

from controller.policies.grouping.rounds import best
from controller.policies.scheduling.synergy.demand import (
    BadDemand,
    BadMatrix,
    ModelProfile,
    ServerShape,
    demand,
    write_profile,
)
from controller.policies.scheduling.synergy.profiling import Dataset
from controller.vocabulary import Job
from hostlib import interleave as turns
from hostlib.demos.four_stages import make
from ina.bench.interleave import (
    GROUPS,
    KINDS,
    MOST_ITERATIONS,
    NO_STORAGE,
    Comparison,
    CpuMeasurement,
    JobOnCpus,
    compare,
    pool,
    profile_job,
    steady,
)
from ina.cli import options
from ina.cli.command import (
    USAGE,
    Declared,
    Failure,
    Listing,
    Reply,
    Result,
    parse_size,
    plural,
    refuse,
    seconds,
)
from ina.cli.execute import print_output
from ina.cli.output import Bars
from ina.run.launch.group_run import GroupRun
from ina.run.launch.spec import FabricSpec, LaunchSpec
from ina.run.live import grouped
from ina.run.switches.fabric import SwitchFabric, open_fabric

MEMORY_GB = (20.83, 62.5, 125.0, 187.5, 250.0)
"""Memory sizes of a profile, in GB: the same as in Synergy's published profiles."""

SERVER_GPUS = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class ProfileSettings:
    """Options of 'ina schedule profile': a job to measure, and the file for its profile."""

    command: Annotated[
        list[str] | None,
        Declared(argument=True, help="Run this training program; give it after --.", metavar="-- COMMAND"),
    ] = None
    most: Annotated[
        int | None,
        Declared(
            "--cpus", min=1, help="Measure with at most this many CPUs. Default: all CPUs of this machine."
        ),
    ] = None
    iterations: Annotated[
        int,
        Declared(min=1, max=MOST_ITERATIONS, help="Measure this many iterations with each number of CPUs."),
    ] = 8
    reads: Annotated[
        float,
        Declared(
            metavar="MB", min=0, help="Assume that an iteration reads this many MB; 0: storage is no limit."
        ),
    ] = 0.0
    dataset: Annotated[
        float, Declared(metavar="MB", min=0, help="With --reads: set the size of the data set, in MB.")
    ] = 0.0
    storage: Annotated[
        float,
        Declared(metavar="MBPS", min=1e-6, help="With --reads: set the storage bandwidth per GPU, in MB/s."),
    ] = 62.5
    name: Annotated[str, Declared(help="Give the model this name in --out.")] = "measured"
    cpus_per_gpu: Annotated[
        int, Declared(min=1, help="Make the profile for servers with this many CPUs per GPU.")
    ] = 3
    out: Annotated[
        Path | None,
        Declared(
            writable=True,
            metavar="FILE",
            dir_okay=False,
            help="Append the profile to this CSV file, which --matrix reads.",
        ),
    ] = None


def profile(asked: ProfileSettings) -> Reply:
    """Measure how the speed of a job depends on its number of CPUs.

    Runs the program as a job of one worker. The program must mark its stages (hostlib.interleave.stages) and
    run long enough. Measures it on one CPU, on all CPUs, and on numbers of CPUs between them as long as they
    add information; then ends it. The effect of memory is computed, not measured: a cache holds a share of
    the data set, and further data is read from storage (Synergy, OSDI'22, 3.1).

    Examples:
        ina schedule profile -- python examples/four_stages.py --iterations 500 --views 24 --threads 4 --batch
        256

        ina schedule profile --name vision --out matrix.csv --reads 28 --dataset 140000 -- python train.py

        ina schedule simulate --policy synergy:srtf+tune,synergy:srtf+proportional --matrix matrix.csv
    """
    if not asked.command:
        raise Failure("nothing to run: give -- COMMAND...", USAGE)
    refuse(
        (asked.reads > 0) != (asked.dataset > 0) or asked.reads > asked.dataset,
        f"--reads {asked.reads:g}, --dataset {asked.dataset:g}: give both, with a data set that is "
        "not smaller than the reads of an iteration",
    )
    cpus = sorted(os.sched_getaffinity(0))
    refuse(
        asked.most is not None and asked.most > len(cpus),
        f"--cpus {asked.most}: this process may use only {len(cpus)}",
    )
    read = Dataset(max(1, round(asked.dataset / asked.reads)), asked.reads) if asked.reads else NO_STORAGE
    with running(asked.command) as job:
        found, measured = profile_job(
            job, cpus[: asked.most], asked.iterations, MEMORY_GB, dataset=read, bandwidth_mbps=asked.storage
        )
    server = ServerShape(SERVER_GPUS, SERVER_GPUS * asked.cpus_per_gpu, SERVER_GPUS * MEMORY_GB[1])
    try:
        job_demand = demand(asked.name, 1, found.sensitivity, server)
        fair = found.sensitivity.at(server.fair_cpus, server.fair_memory_gb)
        ideal = job_demand.ideal
        kept = ModelProfile(
            asked.name, found.sensitivity, 1, 1 / fair, ideal.speed, ideal.cpus, ideal.memory_gb
        )
        if asked.out is not None:
            write_profile(asked.out, kept, cpus_per_gpu=asked.cpus_per_gpu)
    except (BadDemand, BadMatrix, OSError) as error:
        raise Failure(f"--out: {error}" if asked.out else str(error)) from error
    setup = {"cpus": len(cpus[: asked.most]), "iterations": asked.iterations, "command": asked.command}
    summary = {"ideal_cpus": ideal.cpus, "ideal_memory_gb": ideal.memory_gb, "speedup": ideal.speed}
    by_cpus = {
        str(each.cpus): {"iteration_s": each.profile.iteration_s, "stages_s": each.profile.stages_s}
        for each in measured
    }
    return Reply(Result("schedule profile", setup, summary, by_cpus), _by_cpus(measured, kept))


@contextmanager
def running(command: list[str]) -> Iterator[JobOnCpus]:
    """Run `command` as a job of one worker inside the context; yield the running job, to measure it."""
    spec = LaunchSpec(job=Job(name="profiled", workers=1, command=tuple(command)))
    with open_fabric(FabricSpec(), [1]) as fabric, grouped(fabric, [spec], (0,), _complaint) as group:
        yield JobOnCpus(group.turns, spec.name, lambda: _end(group))


def _end(group: GroupRun) -> str | None:
    if not group.over.is_set():
        return None
    (end,) = group.runs
    return str(end.failure() or "the program ended before the last measurement: run more iterations")


def _by_cpus(measured: list[CpuMeasurement], profile: ModelProfile) -> list[Listing | str]:
    slowest_s = measured[0].profile.iteration_s
    rows = [
        (
            each.cpus,
            *(seconds(stage_s) for stage_s in each.profile.stages_s),
            seconds(each.profile.iteration_s),
            f"{slowest_s / each.profile.iteration_s:.2f}",
        )
        for each in measured
    ]
    title = f"{profile.name}: medians per iteration, by CPUs"
    return [
        Listing(title, ["CPUs", *turns.STAGES, "iteration", "speed"], rows),
        f"ideal share: {profile.ideal_cpus:g} CPUs, {profile.ideal_memory_gb:g} GB,"
        f" {profile.speedup:.2f} times as fast as with a fair share",
    ]


def _complaint(spec: LaunchSpec, rank: int, data: bytes, is_error: bool) -> None:
    if is_error:
        print_output(spec, rank, data, is_error)


# --------------------------------------------------------------------------- groups in turns

Members = tuple[str, ...]

MOST = len(turns.STAGES)
SLOTS = 128
"""Number of slots of each job. A worker's window is half this number of packets, so that the packets fit into
the queue of a port with limited rate."""
LEAST_RATE_BPS = 1e6
"""Minimum rate of ports, in bits per second; at lower rates, sums take so long that workers time out."""
LEAST_ITERATIONS = 5
"""Minimum number of iterations of a job, three of which are not counted (`ina.bench.interleave.steady`)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class InterleaveSettings:
    """Options of 'ina schedule interleave': groups of jobs, and how they are measured."""

    groups: Annotated[
        str,
        Declared(
            metavar="GROUPS",
            help=f"Measure these comma-separated groups; a group is 2 to {MOST} of these jobs joined "
            f"by +: {', '.join(KINDS)}.",
        ),
    ] = ",".join(GROUPS)
    workers: Annotated[
        int, Declared(*options.WORKERS, min=1, max=8, help="Set the number of worker processes per job.")
    ] = 2
    iterations: Annotated[
        int,
        Declared(min=LEAST_ITERATIONS, help="Run this many training iterations per job and measurement."),
    ] = 20
    rounds: Annotated[int, Declared(min=1, help="Measure all jobs and groups this many times.")] = 1
    directory: Annotated[
        Path | None,
        Declared(
            metavar="DIR",
            help="Write the training records to this directory, and remove them at the end. It "
            "should be on a disk, not in memory. Default: the system's temporary directory.",
            file_okay=False,
            exists=True,
            writable=True,
        ),
    ] = None
    size: Annotated[
        str,
        Declared(
            metavar="SIZE", help="Write this many bytes of training records in total, such as 256MB or 1GB."
        ),
    ] = "256MB"
    rate_bps: Annotated[
        float,
        Declared(
            "--rate",
            metavar="BPS",
            min=0,
            help="Limit every port to this rate, in bits per second; 0: unlimited.",
        ),
    ] = 200e6
    cores: Annotated[
        str,
        Declared(
            metavar="A,B",
            help="Preprocess on core A and compute on core B. Default: the first two available cores.",
        ),
    ] = ""


def interleave(asked: InterleaveSettings) -> Reply:
    """Run groups of training jobs in turns, and compare the speed-up with the prediction.

    First runs each job alone, and computes the best order of stages, the efficiency gamma and the predicted
    speed-up of every group from the jobs' stage times. Then runs each group, with a barrier after every turn
    and gradients summed in the switch.

    Reads bypass the page cache. No GPU is needed: one core stands for it, and another core preprocesses.

    Examples:
        ina schedule interleave

        ina schedule interleave --groups load+deep,augment+wide --iterations 40 --json
    """
    wanted = list(dict.fromkeys(_members(text) for text in asked.groups.split(",") if text))
    refuse(not wanted, "--groups: no group given")
    refuse(
        not (asked.rate_bps == 0 or LEAST_RATE_BPS <= asked.rate_bps < math.inf),
        f"--rate {asked.rate_bps:g}: want 0, or {LEAST_RATE_BPS:g} and more",
    )
    chosen = _two_cores(asked.cores)
    kinds = sorted({kind for members in wanted for kind in members})
    most = max(len(members) for members in wanted)
    impairments = options.FaultOptions(rate_bps=asked.rate_bps, queue=SLOTS).impairments()
    steps = asked.rounds * (len(kinds) + len(wanted))
    with (
        _records(asked.directory, asked.size) as data,
        open_fabric(FabricSpec(impairments=impairments), [asked.workers] * most) as fabric,
        Bars(["starting"]) as bar,
    ):

        def command(kind: str) -> list[str]:
            return KINDS[kind].command(data, asked.iterations, chosen)

        def show(done: int, what: str) -> None:
            bar.show(done / steps, what)

        bench = _Bench(fabric, asked.workers, command, show)
        offsets: dict[Members, tuple[int, ...]] = {}
        for _ in range(asked.rounds):
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
    setup = {
        "workers": asked.workers,
        "iterations": asked.iterations,
        "rounds": asked.rounds,
        "size_bytes": parse_size("--size", asked.size),
        "rate_bps": asked.rate_bps,
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
    result = Result("schedule interleave", setup, {"groups": len(found)}, of_groups)
    return Reply(result, _in_turns(asked.workers, jobs, found))


class _Bench:
    """Runs single jobs and groups of jobs, and keeps the measurements of each run."""

    def __init__(
        self,
        fabric: SwitchFabric,
        workers: int,
        command: Callable[[str], list[str]],
        on_run: Callable[[int, str], None],
    ) -> None:
        self._fabric = fabric
        self._workers = workers
        self._command = command
        self._on_run = on_run
        self._runs: dict[Members, list[list[turns.Ranks]]] = {}

    def measure(self, members: Members, offsets: Sequence[int]) -> None:
        """Run a group once; job i starts a round at stage `offsets[i]`. Raises the error of a failed job."""
        self._on_run(sum(map(len, self._runs.values())), " + ".join(members))
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
        with grouped(self._fabric, specs, offsets, _complaint) as run:
            run.over.wait()
        run.check()
        measured = [steady(run.turns.measured(spec.name)) for spec in specs]
        self._runs.setdefault(members, []).append(measured)

    def profiles(self, members: Members) -> list[turns.StageProfile]:
        """Return the profile of each job of a group, over all runs of the group."""
        return [turns.job_profile(pool(runs)) for runs in zip(*self._runs[members], strict=True)]

    def alone(self, kind: str) -> turns.StageProfile:
        """Return the profile of a job from its runs without other jobs."""
        return self.profiles((kind,))[0]


def _members(text: str) -> Members:
    members = tuple(text.split("+"))
    for kind in members:
        refuse(kind not in KINDS, f"--groups {text!r}: unknown job {kind!r}; want {', '.join(KINDS)}")
    refuse(
        not 2 <= len(members) <= MOST,
        f"--groups {text!r}: {plural(len(members), 'job')} in one group; want 2 to {MOST}",
    )
    return members


def _two_cores(wanted: str) -> str:
    cores = list(map(str, sorted(os.sched_getaffinity(0))))
    if len(cores) < 2:
        raise Failure(f"preprocessing and computing need two cores; this process may use {len(cores)}")
    pair = wanted.split(",") if wanted else cores[:2]
    refuse(
        len(pair) != 2 or not {*pair} <= {*cores},
        f"--cores {wanted!r}: want two of {', '.join(cores)}, such as {cores[0]},{cores[1]}",
    )
    return ",".join(pair)


@contextmanager
def _records(directory: Path | None, size: str) -> Iterator[Path]:
    number = parse_size("--size", size)
    most = max(kind.record * kind.batch for kind in KINDS.values())
    refuse(number < most, f"--size {size}: want at least {most} bytes, the size of the largest batch")
    place = tempfile.gettempdir() if directory is None else str(directory)
    free = shutil.disk_usage(place).free
    refuse(number > free, f"--size {size}: {place} has only {free} bytes free")
    with tempfile.TemporaryDirectory(prefix="ina-records-", dir=directory) as folder:
        path = Path(folder) / "records"
        make(path, number)
        yield path


def _in_turns(
    workers: int,
    jobs: dict[str, turns.StageProfile],
    found: Sequence[tuple[tuple[str, ...], Comparison]],
) -> Iterator[Listing]:
    yield Listing(
        f"each job alone, {plural(workers, 'worker')}: per iteration",
        ["job", *turns.STAGES, "iteration"],
        [
            (kind, *(seconds(stage_s) for stage_s in each.stages_s), seconds(each.iteration_s))
            for kind, each in jobs.items()
        ],
    )
    yield Listing(
        "groups in turns: speed-up measured and predicted, and causes of longer rounds",
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
                " ".join(turns.STAGES[offset] for offset in each.offsets),
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
