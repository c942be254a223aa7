"""Jobs and groups of `ina schedule interleave`, with predicted and measured speeds.

The jobs are `hostlib.demos.four_stages` with different options, so that each is long in another stage, like
the four models of the paper (Muri, SIGCOMM'22, table 1).
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from controller.errors import ControllerError
from controller.policies.grouping.efficiency import efficiency, round_s
from controller.policies.scheduling.synergy.profiling import Dataset, SensitivityProfile, profile
from hostlib.interleave import Ranks, StageProfile, TurnServer, job_profile
from hostlib.launch import command_line


@dataclass(frozen=True, slots=True)
class JobKind:
    """A kind of job: bytes per record, records per worker, views, dropout masks and width of the network."""

    record: int
    batch: int
    views: int
    masks: int
    hidden: int

    def command(self, data: Path, iterations: int, cores: str) -> list[str]:
        """Return the command of its workers."""
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
"""Long in storage, CPU, GPU, network; and in none."""

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
    """Leave out the first two iterations and the last.

    The first ones include one-time costs, and a group's jobs begin one by one; in the last some have ended.
    """
    return [measured[2:-1] for measured in ranks]


def pool(runs: Sequence[Ranks]) -> Ranks:
    """Combine the iterations of several runs of a job."""
    return [[each for measured in of_rank for each in measured] for of_rank in zip(*runs, strict=True)]


@dataclass(frozen=True, slots=True)
class Comparison:
    """A group as predicted from its jobs' profiles, and as measured.

    Attributes:
        offsets: The stage at which each job starts a round: the best order by the first run's profiles.
        predicted_round_s: Equation 3 of the paper.
        contended_round_s: Equation 3 with the stage times that were measured while the members took turns:
            its excess over the prediction is the interference between stages on different resources.
        measured_round_s: The members' mean seconds per iteration: its excess over the contended round is the
            cost of barriers and varying stage times.
        predicted_efficiency: gamma, equation 4.
        measured_efficiency: The same with the measured round.
        predicted_speedup: The sum of the jobs' speeds together, each relative to its speed alone.
        measured_speedup: The same measured (the normalised throughput of the paper's table 2).
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
    """Compare the prediction for a group with these offsets with the measurements."""
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
"""Iterations that do not count after a change: one was in progress, and caches of other cores are cold."""

MOST_ITERATIONS = 60
"""Most iterations of a measurement: a turn server keeps few more
(`hostlib.interleave.stages.KEPT`)."""


class CpusNotMeasured(ControllerError):
    """A job cannot be measured, or ended before its measurement."""


@dataclass(frozen=True, slots=True)
class CpuMeasurement:
    """An iteration with `cpus` CPUs: medians over `profile.iterations` iterations."""

    cpus: int
    profile: StageProfile


class JobOnCpus:
    """A job under a turn server, with changeable CPUs.

    `ended` returns why there will be no more iterations, None while it runs. The limit for each iteration is
    `patience_s`, from its start on.
    """

    def __init__(
        self, turns: TurnServer, name: str, ended: Callable[[], str | None], *, patience_s: float = 120.0
    ) -> None:
        self._turns = turns
        self._name = name
        self._ended = ended
        self._patience_s = patience_s

    def measure(self, cpus: Sequence[int], iterations: int) -> CpuMeasurement:
        """Bind the job to these CPUs and return the time of these iterations. Raises CpusNotMeasured."""
        self._wait(1)  # before, no worker may have joined
        bind(self._turns.processes(self._name), cpus)
        begun = self._turns.iterations(self._name)
        self._wait(begun + SETTLED + iterations)
        latest = [times[-iterations:] for times in self._turns.measured(self._name)]
        return CpuMeasurement(len(cpus), job_profile(latest))

    def _wait(self, number: int) -> None:
        """Return when the job has done `number` iterations."""
        seen, since_s = -1, time.monotonic()
        while (done := self._turns.iterations(self._name)) < number:
            if done > seen:
                seen, since_s = done, time.monotonic()
            if why := self._ended():
                raise CpusNotMeasured(
                    f"the job ended after {done} marked iterations, {number} are needed so far: {why}"
                )
            if time.monotonic() - since_s > self._patience_s:
                raise CpusNotMeasured(f"no iteration in {self._patience_s:g} s, after {done}")
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
"""A data set that every cache holds."""


def profile_job(
    job: JobOnCpus,
    cpus: Sequence[int],
    iterations: int,
    memory_gb: Sequence[float],
    *,
    dataset: Dataset = NO_STORAGE,
    bandwidth_mbps: float = 1.0,
) -> tuple[SensitivityProfile, list[CpuMeasurement]]:
    """Return the matrix of a running job, in iterations per second, and its measurements.

    Args:
        job: The running job.
        cpus: Ids of CPUs; the job is bound to the first ones, as many as
            `controller.policies.scheduling.synergy.profiling` requests.
        iterations: Iterations of each measurement.
        memory_gb: The memory sizes of the matrix, in GB.
        dataset: The data set, counted in iterations as samples.
        bandwidth_mbps: Rate of storage, which serves the misses of the cache.

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
