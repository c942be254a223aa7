"""Predicted durations of jobs: the workload estimate model (Lucid, 3.5.3)."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from controller.policies.scheduling.lucid.additive import AdditiveModel, Value, train
from controller.policies.scheduling.lucid.errors import BadSample
from controller.policies.scheduling.lucid.names import NameBuckets, bucket_names
from controller.policies.scheduling.lucid.usage import Usage
from controller.policies.scheduling.model import Submission

FEATURES = (
    "user",
    "name",
    "vc",
    "gpus",
    "month",
    "weekday",
    "hour",
    "gpu_util",
    "memory_util",
    "memory_mb",
    "mixed_precision",
)
CATEGORIES = ("user", "name", "vc")


@dataclass(frozen=True, slots=True)
class Facts:
    """Features of a job when it is submitted, and, with `usage`, when it has been profiled.

    `submit_s` is seconds since 1970, UTC.
    """

    user: str
    name: str
    vc: str
    gpus: int
    submit_s: float
    usage: Usage | None = None


def submission(spec: Submission, usage: Usage | None = None) -> Facts:
    """Return a job's features: the name is the trace's `jobname`, or else the model.

    Months, weekdays and hours count as if the trace had begun on 1 January 1970 at midnight.
    """
    name = spec.extra.get("jobname") or spec.model
    return Facts(spec.user, name, spec.vc, spec.gpus, spec.arrival_s, usage)


@dataclass(frozen=True, slots=True)
class DurationModel:
    """Predicts durations; `means_s` has the mean duration of jobs by number of GPUs, for unseen users."""

    model: AdditiveModel
    names: NameBuckets
    users: frozenset[str]
    means_s: dict[int, float]
    mean_s: float

    def predict_s(self, job: Facts) -> float:
        """Return the expected duration in seconds, at least 1.

        For an unseen user's job it is the mean of all jobs with as many GPUs.
        """
        if job.user not in self.users:
            return self.means_s.get(job.gpus, self.mean_s)
        return max(1.0, math.exp(min(self.model.predict(features(job, self.names)), 60.0)))

    def explain(self, job: Facts) -> list[str]:
        """Return the reasons for a prediction: the factor by which each term changes the duration."""
        if job.user not in self.users:
            who = f"user {job.user} is new" if job.user else "it names no user"
            return [f"{who}: {self.predict_s(job):.0f} s is the mean of jobs with as many GPUs"]
        lines = [f"start: {math.exp(self.model.intercept):.0f} s"]
        for part in self.model.explain(features(job, self.names)):
            values = ", ".join(str(v) for v in part.values)
            lines.append(f"{part.term} = {values}: x {math.exp(part.score):.3f}")
        return [*lines, f"together: {self.predict_s(job):.0f} s"]


def features(job: Facts, names: NameBuckets) -> tuple[Value, ...]:
    """Return a job's features in the order of `FEATURES`."""
    when = datetime.fromtimestamp(job.submit_s, UTC)
    usage = job.usage.features() if job.usage is not None else (None,) * 4
    bucket = names.bucket(job.name)
    return (
        job.user,
        None if bucket < 0 else str(bucket),
        job.vc,
        float(job.gpus),
        float(when.month),
        float(when.weekday()),
        float(when.hour),
        *usage,
    )


def train_durations(
    jobs: Sequence[Facts],
    durations_s: Sequence[float],
    *,
    common_names: int = 100,
    interactions: int = 5,
    seed: int = 0,
    max_rounds: int = 2000,
    bags: int = 4,
) -> DurationModel:
    """Train on jobs that have ended.

    The model predicts the logarithm: durations spread over five orders of magnitude, and an error of an hour
    matters little to a job of a week.

    Args:
        jobs: Features of each job.
        durations_s: The duration of each job in seconds.
        common_names: The most common names, this many, have their own buckets; similar others share one.
        interactions: Number of tables of pairs of features.
        seed: Of training.
        max_rounds: Most rounds of boosting.
        bags: Number of models that are averaged.

    Raises BadSample for durations that are not positive, or too few jobs; ExtraMissing.
    """
    if len(jobs) != len(durations_s):
        raise BadSample(f"{len(jobs)} jobs with {len(durations_s)} durations")
    by_gpus: dict[int, list[float]] = defaultdict(list)
    for job, duration_s in zip(jobs, durations_s, strict=True):
        if not (math.isfinite(duration_s) and duration_s > 0):
            raise BadSample(f"job '{job.name}' took {duration_s} s; want a positive duration")
        by_gpus[job.gpus].append(duration_s)
    names = bucket_names([job.name for job in jobs], most_common=common_names, seed=seed)
    model = train(
        FEATURES,
        [features(job, names) for job in jobs],
        [math.log(d) for d in durations_s],
        categories=CATEGORIES,
        interactions=interactions,
        max_rounds=max_rounds,
        bags=bags,
        seed=seed,
    )
    means_s = {gpus: math.fsum(d) / len(d) for gpus, d in by_gpus.items()}
    mean_s = math.fsum(durations_s) / len(durations_s)
    return DurationModel(model, names, frozenset(j.user for j in jobs), means_s, mean_s)
