"""Jobs as schedulers see them: plain data, checked on creation."""

from __future__ import annotations

import math
import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from controller.vocabulary import BadSpec, Job

RESOURCES = ("storage", "cpu", "gpu", "network")
"""The resources of the four stages of a training iteration, in stage order."""


@dataclass(frozen=True, slots=True)
class Submission:
    """A job as a scheduler sees it: its arrival, number of GPUs and run time alone.

    Policies and the engine use only this part of a `Job`. A field has the
    meaning of the `Job` field with its name.

    Attributes:
        name: Unique among jobs.
        arrival_s: Time of submission, seconds from the start of the trace.
        gpus: Number of GPUs that the job needs, all of them at once.
        iterations: Number of iterations to do; need not be an integer.
        iteration_s: Seconds per iteration when the job has its GPUs for itself.
        stages_s: Seconds per iteration on each resource, in stage order; empty: not measured.
        model: Name of the model that the job trains; the key of profiles and speed models.
        restart_s: Time lost whenever the job is started, moved or regrouped, in seconds.
        estimate_s: Run time alone, estimated by a user or a predictor, in seconds; None: unknown.
        opportunistic: Whether the job has no guaranteed GPUs and only uses those that other jobs leave
            (AntMan).
        user: The job's owner.
        vc: The virtual cluster to which the job is submitted.
        batch: Batch size per GPU; 0 if unknown.
        deadline_s: Deadline, seconds from its arrival; None: no deadline.
        extra: Further columns of a trace, by name, for policies that use them.
        once: Whether the job's workers can be started only once: no policy stops or moves the job once it
            runs.
    """

    name: str
    arrival_s: float
    gpus: int
    iterations: float
    iteration_s: float = 1.0
    stages_s: tuple[float, ...] = ()
    model: str = ""
    restart_s: float = 0.0
    estimate_s: float | None = None
    opportunistic: bool = False
    user: str = ""
    vc: str = ""
    batch: int = 0
    deadline_s: float | None = None
    extra: Mapping[str, Any] = field(default_factory=dict, hash=False)
    once: bool = False

    def __post_init__(self) -> None:
        if self.gpus < 1:
            raise BadSpec(f"job {self.name!r} asks for {self.gpus} GPUs; at least 1 is needed")
        for key in ("iterations", "iteration_s"):
            value = getattr(self, key)
            if not (value > 0 and math.isfinite(value)):
                raise BadSpec(f"job {self.name!r}: {key} is {value}; it must be positive")
        for key in ("arrival_s", "restart_s"):
            value = getattr(self, key)
            if not (value >= 0 and math.isfinite(value)):
                raise BadSpec(f"job {self.name!r}: {key} is {value}; it must not be negative")
        if self.deadline_s is not None and not (self.deadline_s > 0 and math.isfinite(self.deadline_s)):
            raise BadSpec(f"job {self.name!r}: deadline_s is {self.deadline_s}; it must be positive")
        if any(not (stage >= 0 and math.isfinite(stage)) for stage in self.stages_s):
            raise BadSpec(f"job {self.name!r}: a stage time in {self.stages_s} is negative")
        if self.stages_s and not any(self.stages_s):
            raise BadSpec(f"job {self.name!r}: all stage times are 0; want at least one above 0")

    @classmethod
    def of(cls, job: Job) -> Submission:
        """Return a job as schedulers see it, without a network.

        An iteration lasts `Job.iteration_s`, or else the sum of the job's stages, or else its computing time.
        Raises BadSpec if all are 0.
        """
        iteration_s = job.iteration_s or sum(job.stages_s) or job.compute_s
        if iteration_s <= 0:
            raise BadSpec(f"job {job.name!r}: compute_s is 0; schedulers need the time of an iteration")
        command = {} if job.command is None else {"command": shlex.join(job.command)}
        return cls.timed(
            job,
            iterations=job.iterations if job.duration_s is None else job.duration_s / iteration_s,
            iteration_s=iteration_s,
            stages_s=job.stages_s,
            extra={**job.extra, **command},
        )

    @classmethod
    def timed(
        cls,
        job: Job,
        *,
        iterations: float,
        iteration_s: float,
        stages_s: tuple[float, ...],
        extra: Mapping[str, str],
    ) -> Submission:
        """Return a job as schedulers see it, with the given times; copy all other fields from `job`.

        Args:
            job: The job.
            iterations: Number of iterations to do.
            iteration_s: Seconds per iteration when it has its GPUs for itself.
            stages_s: Seconds per iteration on each resource, in stage order; empty if not measured.
            extra: Further columns of a trace, by name.
        """
        return cls(
            job.name,
            job.arrival_s,
            job.gpus,
            iterations=iterations,
            iteration_s=iteration_s,
            stages_s=stages_s,
            model=job.model,
            restart_s=job.restart_s,
            estimate_s=job.estimate_s,
            opportunistic=job.opportunistic,
            user=job.user,
            vc=job.vc,
            batch=job.batch,
            deadline_s=job.deadline_s,
            extra=extra,
        )

    @property
    def duration_s(self) -> float:
        """Run time of the job, in seconds, if it has its GPUs for itself and is never interrupted."""
        return self.iterations * self.iteration_s

    @property
    def service_s(self) -> float:
        """GPU-seconds that the job needs."""
        return self.duration_s * self.gpus
