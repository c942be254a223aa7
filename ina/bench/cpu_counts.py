"""Speed of a running job by the number of CPUs that it may use: Synergy's optimistic profiling.

The job marks its stages (`hostlib.interleave.stages`). It runs once; its processes are bound to more or fewer
CPUs meanwhile (``sched_setaffinity``), and the iterations that they report between two changes count.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from controller.errors import ControllerError
from controller.policies.scheduling.synergy.profiling import Dataset, Profile, profile
from hostlib.interleave import StageProfile, TurnServer, job_profile

POLL_S = 0.01
SETTLED = 2
"""Iterations that do not count after a change: one was under way, and caches of other cores are cold."""

MOST_ITERATIONS = 60
"""Iterations that can be measured at a time: a turn server keeps few more
(`hostlib.interleave.stages.KEPT`)."""


class NotMeasured(ControllerError):
    """A job cannot be measured, or has ended before it was."""


@dataclass(frozen=True, slots=True)
class Measured:
    """An iteration with `cpus` CPUs: medians over `profile.iterations` iterations."""

    cpus: int
    profile: StageProfile


class JobOnCpus:
    """A job that runs under a turn server, and whose CPUs can be changed.

    `ended` says why there will be no more iterations, None while it runs. It is given `patience_s` for each
    iteration, from its start on.
    """

    def __init__(
        self, turns: TurnServer, name: str, ended: Callable[[], str | None], *, patience_s: float = 120.0
    ) -> None:
        self._turns = turns
        self._name = name
        self._ended = ended
        self._patience_s = patience_s

    def measure(self, cpus: Sequence[int], iterations: int) -> Measured:
        """Bind the job to these CPUs and return the time of `iterations` iterations. Raises NotMeasured."""
        self._wait(1)  # before, nobody may have joined
        bind(self._turns.processes(self._name), cpus)
        begun = self._turns.iterations(self._name)
        self._wait(begun + SETTLED + iterations)
        latest = [times[-iterations:] for times in self._turns.measured(self._name)]
        return Measured(len(cpus), job_profile(latest))

    def _wait(self, number: int) -> None:
        """Return when the job has done so many iterations."""
        seen, since_s = -1, time.monotonic()
        while (done := self._turns.iterations(self._name)) < number:
            if done > seen:
                seen, since_s = done, time.monotonic()
            if why := self._ended():
                raise NotMeasured(
                    f"the job ended after {done} marked iterations, {number} are needed so far: {why}"
                )
            if time.monotonic() - since_s > self._patience_s:
                raise NotMeasured(f"no iteration in {self._patience_s:g} s, after {done}")
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
) -> tuple[Profile, list[Measured]]:
    """Return the matrix of a running job, in iterations per second, and its measurements.

    Args:
        job: The running job.
        cpus: Ids of CPUs; the job is bound to the first ones, as many as
            `controller.policies.scheduling.synergy.profiling` asks for.
        iterations: Iterations of each measurement.
        memory_gb: The memory sizes of the matrix, in GB.
        dataset: The data set, counted in iterations as samples.
        bandwidth_mbps: Rate of storage, which serves the misses of the cache.

    Raises NotMeasured.
    """
    measured: list[Measured] = []

    def speed(number: int) -> float:
        measured.append(job.measure(cpus[:number], iterations))
        return 1 / measured[-1].profile.iteration_s

    found = profile(
        speed, max_cpus=len(cpus), memory_gb=memory_gb, dataset=dataset, bandwidth_mbps=bandwidth_mbps
    )
    return found, sorted(measured, key=lambda each: each.cpus)
