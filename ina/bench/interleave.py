"""Jobs and groups of `ina schedule interleave`, with predicted and measured speeds.

The jobs are `hostlib.demos.four_stages` with different options, so that each spends most of its time in a
different stage, like the four models of the paper (Muri, SIGCOMM'22, table 1).
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from controller.errors import ControllerError
from controller.policies.grouping.rounds import efficiency, round_s
from controller.policies.scheduling.synergy.profiling import Dataset, SensitivityProfile, profile
from hostlib.interleave import Ranks, StageProfile, TurnServer, job_profile
from hostlib.launch import command_line


@dataclass(frozen=True, slots=True)
class JobKind:
    """A kind of job, as options of `hostlib.demos.four_stages`.

    Attributes:
        record: Bytes of a training record.
        batch: Records per worker and iteration.
        views: Augmented views of each record, which the CPU computes.
        masks: Dropout masks per iteration, which set the length of the computing stage.
        hidden: Width of the neural network, which determines the size of the gradients.
    """

    record: int
    batch: int
    views: int
    masks: int
    hidden: int

    def command(self, data: Path, iterations: int, cores: str) -> list[str]:
        """Return the command that starts a worker of a job of this kind."""
        options = {
            "data": data,
            "iterations": iterations,
            "cores": cores,
            "record": self.record,
            "batch": self.batch,
            "views": self.views,
            "masks": self.masks,
            "hidden": self.hidden,
        }
        words = [word for name, value in options.items() for word in (f"--{name}", str(value))]
        return command_line.module("hostlib.demos.four_stages", *words)


KINDS: Mapping[str, JobKind] = {
    "load": JobKind(record=1 << 18, batch=384, views=1, masks=1, hidden=32),
    "augment": JobKind(record=4096, batch=256, views=16, masks=1, hidden=32),
    "deep": JobKind(record=4096, batch=256, views=1, masks=48, hidden=64),
    "wide": JobKind(record=4096, batch=16, views=1, masks=1, hidden=384),
    "even": JobKind(record=1 << 18, batch=128, views=24, masks=16, hidden=96),
}
"""The kinds of jobs. The longest stages of the first four are storage, CPU, GPU and network, in this order;
the stages of the last one are equally long."""

GROUPS = (
    "load+deep",
    "augment+wide",
    "load+augment",
    "deep+wide",
    "augment+deep",
    "even+even",
    "wide+wide",
    "load+deep+wide",
    "load+augment+deep+wide",
    "even+even+even+even",
)


def steady(ranks: Ranks) -> Ranks:
    """Return the measurements of each rank without the first two iterations and the last one.

    The first two iterations include one-time costs, and the jobs of a group do not start at the same time.
    During the last iteration, other jobs of the group may have ended already.
    """
    return [measured[2:-1] for measured in ranks]


def pool(runs: Sequence[Ranks]) -> Ranks:
    """Join the measurements of several runs of a job; return the iterations of each rank."""
    return [[each for measured in of_rank for each in measured] for of_rank in zip(*runs, strict=True)]


@dataclass(frozen=True, slots=True)
class Comparison:
    """Predicted and measured speed of a group; the prediction is made from its jobs' profiles alone.

    Attributes:
        offsets: Number of the stage at which each job starts a round. The offsets are chosen for the fastest
            round according to the profiles of the first runs.
        predicted_round_s: Seconds per round by equation 3 of Muri's paper (SIGCOMM'22).
        contended_round_s: Seconds per round by equation 3, with the stage times that were measured while the
            jobs took turns. The excess over the prediction is the cost of interference between stages.
        measured_round_s: Mean seconds per iteration of the jobs. The excess over the contended round is the
            cost of barriers and varying stage times.
        predicted_efficiency: gamma of the predicted round, equation 4.
        measured_efficiency: gamma of the measured round.
        predicted_speedup: Predicted sum over the jobs of the speed in the group relative to the speed alone.
        measured_speedup: Measured sum of these relative speeds (normalised throughput, table 2).
    """

    offsets: tuple[int, ...]
    predicted_round_s: float
    contended_round_s: float
    measured_round_s: float
    predicted_efficiency: float
    measured_efficiency: float
    predicted_speedup: float
    measured_speedup: float


def compare(
    alone: Sequence[StageProfile], together: Sequence[StageProfile], offsets: Sequence[int]
) -> Comparison:
    """Return the predicted and the measured speed of a group.

    Args:
        alone: Profile of each job without the others.
        together: Profile of each job in the group.
        offsets: The stage at which each job starts a round.
    """
    stages = [each.stages_s for each in alone]
    predicted_s = round_s(stages, offsets)
    measured_s = sum(each.iteration_s for each in together) / len(together)
    return Comparison(
        tuple(offsets),
        predicted_s,
        round_s([each.stages_s for each in together], offsets),
        measured_s,
        efficiency(stages, predicted_s),
        efficiency(stages, measured_s),
        sum(each.iteration_s for each in alone) / predicted_s,
        sum(one.iteration_s / many.iteration_s for one, many in zip(alone, together, strict=True)),
    )


POLL_S = 0.01
SETTLED = 2
"""Number of iterations that are not measured after a change of CPUs: the first is in progress at the change,
and the next finds cold caches on the new cores."""

MOST_ITERATIONS = 60
"""Maximum number of iterations of a measurement: a turn server keeps the times of the latest
`hostlib.interleave.stages.KEPT` iterations only."""


class CpusNotMeasured(ControllerError):
    """A job cannot be measured, or ended before its measurement."""


@dataclass(frozen=True, slots=True)
class CpuMeasurement:
    """Times of an iteration on `cpus` CPUs: medians over `profile.iterations` iterations."""

    cpus: int
    profile: StageProfile


class JobOnCpus:
    """A running job that reports its iterations to a turn server, and can be bound to CPUs.

    `ended` returns how the job ended, None while it runs. Each iteration must end within `patience_s`.
    """

    def __init__(
        self, turns: TurnServer, name: str, ended: Callable[[], str | None], *, patience_s: float = 120.0
    ) -> None:
        self._turns = turns
        self._name = name
        self._ended = ended
        self._patience_s = patience_s

    def measure(self, cpus: Sequence[int], iterations: int) -> CpuMeasurement:
        """Bind the job to these CPUs, run `iterations` iterations, and return the median time of each stage.

        Raises CpusNotMeasured.
        """
        self._wait(1)  # earlier, no worker may have joined the turn server
        bind(self._turns.processes(self._name), cpus)
        self._wait(self._turns.iterations(self._name) + SETTLED + iterations)
        latest = [times[-iterations:] for times in self._turns.measured(self._name)]
        return CpuMeasurement(len(cpus), job_profile(latest))

    def _wait(self, number: int) -> None:
        """Wait until the job has done `number` iterations. Raises CpusNotMeasured."""
        last, since_s = -1, time.monotonic()
        while (done := self._turns.iterations(self._name)) < number:
            if done > last:
                last, since_s = done, time.monotonic()
            if why := self._ended():
                raise CpusNotMeasured(
                    f"the job ended after {done} iterations; want {number} for this measurement: {why}"
                )
            if time.monotonic() - since_s > self._patience_s:
                raise CpusNotMeasured(f"no iteration ended in {self._patience_s:g} s, after iteration {done}")
            time.sleep(POLL_S)


def bind(processes: Iterable[int], cpus: Iterable[int]) -> None:
    """Bind all threads of these processes and of their descendants to these CPUs."""
    chosen = set(cpus)
    for thread in _threads(processes):
        with contextlib.suppress(ProcessLookupError):  # it may have ended since
            os.sched_setaffinity(thread, chosen)


def _threads(processes: Iterable[int]) -> Iterator[int]:
    for process in processes:
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            for task in Path(f"/proc/{process}/task").iterdir():
                yield int(task.name)
                yield from _threads(map(int, (task / "children").read_text().split()))


NO_STORAGE = Dataset(samples=1, sample_mb=1e-9)
"""A data set that fits into any cache, for jobs that storage does not slow down."""


def profile_job(
    job: JobOnCpus,
    cpus: Sequence[int],
    iterations: int,
    memory_gb: Sequence[float],
    *,
    dataset: Dataset = NO_STORAGE,
    bandwidth_mbps: float = 1.0,
) -> tuple[SensitivityProfile, list[CpuMeasurement]]:
    """Return the sensitivity matrix of a running job, in iterations per second, and its measurements.

    Args:
        job: The running job.
        cpus: Ids of CPUs; for a measurement with N CPUs, the job is bound to the first N.
            `controller.policies.scheduling.synergy.profiling` chooses the numbers N.
        iterations: Number of iterations of each measurement.
        memory_gb: The memory sizes of the matrix, in GB.
        dataset: The job's data set; a sample is the data of one iteration.
        bandwidth_mbps: Rate at which data outside the cache is read from storage, in MB/s.

    Raises CpusNotMeasured.
    """
    measured: list[CpuMeasurement] = []

    def speed(number: int) -> float:
        measured.append(job.measure(cpus[:number], iterations))
        return 1 / measured[-1].profile.iteration_s

    found = profile(
        speed, max_cpus=len(cpus), memory_gb=memory_gb, dataset=dataset, bandwidth_mbps=bandwidth_mbps
    )
    return found, sorted(measured, key=lambda each: each.cpus)
