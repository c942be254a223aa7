"""Durations as reported to policies that know durations: true durations, or true durations times an error.

`EstimateError` estimates the error of reported durations from ended jobs. `Profiler` has stage times as a
profiler measures them.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from dataclasses import dataclass, field

from controller.policies.grouping.efficiency import Profile
from controller.policies.scheduling.errors import BadSpec
from controller.policies.scheduling.model import RESOURCES, Submission
from controller.policies.scheduling.policy import JobState

Remaining = Callable[[JobState, float], float]
"""Function of a job and a time in seconds that returns the job's reported remaining seconds."""


@dataclass(frozen=True, slots=True)
class DurationEstimates:
    """The durations reported to policies: a job's remaining time times a lognormal factor, fixed per job.

    `error` is the standard deviation of the factor's logarithm: with 0.5, two jobs of three are within a
    factor of 1.65.
    """

    error: float = 0.0
    seed: int = 0
    _factors: dict[str, float] = field(default_factory=dict)

    def remaining_s(self, job: JobState, now_s: float) -> float:
        """Return the remaining run time of a job alone on its GPUs, as reported to policies, in seconds."""
        left_s = job.iterations_left(now_s) * job.alone_s
        return left_s * self._factor(job.spec.name) if self.error else left_s

    def _factor(self, name: str) -> float:
        if name not in self._factors:
            self._factors[name] = random.Random(f"{self.seed} {name}").lognormvariate(0.0, self.error)
        return self._factors[name]


EXACT = DurationEstimates()


AGENTS = ("a2c", "dqn")
"""Models of Muri's traces whose first stage is simulation on the CPU. The first stage of other models is
loading data from storage."""


def profile(job: Submission) -> Profile:
    """Return the job's seconds per iteration on each of `RESOURCES`.

    If a job has three stages, as in Muri's traces, the first one is loading and preprocessing together; it
    counts as CPU time for the models in `AGENTS`, and as storage time for other models. Raises BadSpec for
    any other number of stages than three or four.
    """
    stages = job.stages_s
    if len(stages) == len(RESOURCES):
        return stages
    if len(stages) == len(RESOURCES) - 1:
        first, gpu, network = stages
        return (0.0, first, gpu, network) if job.model in AGENTS else (first, 0.0, gpu, network)
    raise BadSpec(f"job {job.name!r} has {len(stages)} stage times; {len(RESOURCES)} are needed to group it")


class Profiler:
    """Measured stage times of jobs: each deviates by up to the fraction `noise`, uniformly distributed."""

    def __init__(self, noise: float = 0.0, seed: int = 0) -> None:
        self._noise = noise
        self._rng = random.Random(seed)

    def measure(self, job: Submission) -> Profile:
        """Return the job's seconds per iteration on each of `RESOURCES`, as measured."""
        exact = profile(job)
        if not self._noise:
            return exact
        return tuple(stage * self._rng.uniform(1 - self._noise, 1 + self._noise) for stage in exact)


class EstimateError:
    """Error of reported durations: the spread of log(actual / reported) over the jobs that ended."""

    def __init__(self) -> None:
        self._estimate_s: dict[int, float] = {}  # by order of arrival
        self.count, self._mean, self._squares = 0, 0.0, 0.0  # Welford's running sums

    def expect(self, job: JobState, duration_s: float) -> None:
        """Record the reported duration of a job that has arrived."""
        self._estimate_s[job.order] = duration_s

    def compare(self, job: JobState, lasted_s: float) -> None:
        """Record the error of an ended job's reported duration; `lasted_s` is the real duration, in seconds.

        Ignore the job if one of the two durations is 0, or if the reported one is infinite.
        """
        estimate_s = self._estimate_s.pop(job.order)
        if not (0 < estimate_s < math.inf and lasted_s > 0):
            return
        off = math.log(lasted_s / estimate_s)
        self.count += 1
        before = off - self._mean
        self._mean += before / self.count
        self._squares += before * (off - self._mean)

    @property
    def value(self) -> float:
        """The standard deviation of the error; 0 before any job has ended."""
        return math.sqrt(self._squares / self.count) if self.count else 0.0

    @property
    def around_zero(self) -> float:
        """The root mean square of the errors, including their mean; 0 before any job has ended."""
        return math.hypot(self.value, self._mean)
