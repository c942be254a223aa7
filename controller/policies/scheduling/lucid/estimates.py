"""Predicted durations of jobs: the workload estimate model (Lucid, 3.5.3).

Users submit a job repeatedly with small changes of its name, so similar names are put into one bucket, whose
number is a feature of the model. Edit distance measures how similar two names are, and affinity propagation
finds the buckets, whose number need not be known.
"""

from __future__ import annotations

import math
import warnings
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

import numpy as np

from controller.policies.scheduling.errors import ExtraMissing
from controller.policies.scheduling.lucid.usage import (
    AdditiveModel,
    BadSample,
    Boosting,
    GpuUsage,
    Value,
    train,
)
from controller.policies.scheduling.policy import Submission


def _distance() -> Callable[[str, str], int]:
    try:
        from rapidfuzz.distance import Levenshtein
    except ImportError:
        raise ExtraMissing("comparing job names", "rapidfuzz") from None
    distance: Callable[[str, str], int] = Levenshtein.distance
    return distance


@dataclass(frozen=True, slots=True)
class NameBuckets:
    """Buckets of similar names.

    `exemplars[n]` is a name typical of bucket n. `known` has the bucket's number for each name seen before.
    """

    exemplars: tuple[str, ...]
    known: Mapping[str, int]

    def bucket(self, name: str, *, similar: float = 0.6) -> int:
        """Return the number of a name's bucket: as in `known`, or else the most similar exemplar's bucket.

        Returns -1 (a new kind of job) if the similarity to this exemplar is below `similar`. The similarity
        is 1 minus the edit distance divided by the length of the longer name.
        """
        if name in self.known:
            return self.known[name]
        distance = _distance()
        best, found = -1.0, -1
        for number, exemplar in enumerate(self.exemplars):
            alike = 1 - distance(name, exemplar) / max(1, len(name), len(exemplar))
            if alike > best:
                best, found = alike, number
        return found if best >= similar else -1


def bucket_names(
    names: Sequence[str], *, most_common: int = 100, damping: float = 0.9, seed: int = 0
) -> NameBuckets:
    """Put names into buckets.

    The most common names have their own buckets. Other names are clustered with the names that have the same
    first letter, by affinity propagation on the negated distance. O(n²) within a letter; deterministic by
    seed.

    Args:
        names: The names, repeated as often as they occur.
        most_common: Number of names that get their own buckets.
        damping: Damping of affinity propagation, 0.5 to below 1.
        seed: Seed of affinity propagation.

    Raises BadSample for no names, ExtraMissing without scikit-learn if there is anything to cluster.
    """
    if not names or most_common < 0:
        raise BadSample(
            f"{len(names)} names, most_common is {most_common}; want 1 name or more, most_common from 0 on"
        )
    ranked = [name for name, _ in sorted(Counter(names).items(), key=lambda item: (-item[1], item[0]))]
    exemplars = ranked[:most_common]
    known = {name: number for number, name in enumerate(exemplars)}
    by_letter: dict[str, list[str]] = {}
    for name in ranked[most_common:]:
        by_letter.setdefault(name[:1], []).append(name)
    for group in by_letter.values():
        for exemplar, members in _clusters(group, damping, seed):
            for member in members:
                known[member] = len(exemplars)
            exemplars.append(exemplar)
    return NameBuckets(tuple(exemplars), known)


def _clusters(names: Sequence[str], damping: float, seed: int) -> list[tuple[str, list[str]]]:
    if len(names) == 1:
        return [(names[0], [names[0]])]
    try:
        from sklearn.cluster import AffinityPropagation
    except ImportError:
        raise ExtraMissing("clustering job names", "scikit-learn") from None
    distance = _distance()
    likeness = np.array([[-float(distance(a, b)) for b in names] for a in names])
    off_diagonal = likeness[~np.eye(len(names), dtype=bool)]
    if off_diagonal.min() == off_diagonal.max():  # all distances are equal: one bucket
        return [(names[0], list(names))]
    model = AffinityPropagation(
        affinity="precomputed", damping=damping, max_iter=2000, convergence_iter=50, random_state=seed
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # negative labels also say that it did not converge
        labels = model.fit_predict(likeness)
    if min(labels) < 0:  # no convergence: one bucket for each name
        return [(name, [name]) for name in names]
    centers = [names[i] for i in model.cluster_centers_indices_]
    return [
        (center, [name for name, label in zip(names, labels, strict=True) if label == number])
        for number, center in enumerate(centers)
    ]


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
class JobFacts:
    """Features of a submitted job; `usage` is known once the job has been profiled.

    `submit_s` is the time of submission in seconds since 1970, UTC.
    """

    user: str
    name: str
    vc: str
    gpus: int
    submit_s: float
    usage: GpuUsage | None = None


def submission(spec: Submission, usage: GpuUsage | None = None) -> JobFacts:
    """Return a job's features: the name is the trace's `jobname`, or else the model.

    Months, weekdays and hours count as if the trace had begun on 1 January 1970 at midnight.
    """
    name = spec.extra.get("jobname") or spec.model
    return JobFacts(spec.user, name, spec.vc, spec.gpus, spec.arrival_s, usage)


@dataclass(frozen=True, slots=True)
class DurationModel:
    """Model of jobs' durations; `means_s`, for new users, has the mean duration by number of GPUs."""

    model: AdditiveModel
    names: NameBuckets
    users: frozenset[str]
    means_s: dict[int, float]
    mean_s: float

    def predict_s(self, job: JobFacts) -> float:
        """Return the expected duration in seconds, at least 1.

        For an unseen user's job, return the mean of all jobs with the same number of GPUs.
        """
        if job.user not in self.users:
            return self.means_s.get(job.gpus, self.mean_s)
        return max(1.0, math.exp(min(self.model.predict(features(job, self.names)), 60.0)))

    def explain(self, job: JobFacts) -> list[str]:
        """Return the reasons for a prediction: the factor by which each term changes the duration."""
        if job.user not in self.users:
            who = f"user {job.user} is new" if job.user else "the job names no user"
            return [f"{who}: {self.predict_s(job):.0f} s is the mean of jobs with the same number of GPUs"]
        lines = [f"start: {math.exp(self.model.intercept):.0f} s"]
        for part in self.model.explain(features(job, self.names)):
            values = ", ".join(str(v) for v in part.values)
            lines.append(f"{part.term} = {values}: x {math.exp(part.score):.3f}")
        return [*lines, f"together: {self.predict_s(job):.0f} s"]


def features(job: JobFacts, names: NameBuckets) -> tuple[Value, ...]:
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


LONG = Boosting(interactions=5, max_rounds=2000)
"""Training settings for a model that is trained once."""


def train_durations(
    jobs: Sequence[JobFacts],
    durations_s: Sequence[float],
    boosting: Boosting = LONG,
    *,
    common_names: int = 100,
    monotone: bool = False,
) -> DurationModel:
    """Train a duration model on jobs that have ended, and return it.

    The model predicts the logarithm: durations spread over five orders of magnitude, and an error of an hour
    matters little to a job of a week.

    Args:
        jobs: Features of each job.
        durations_s: The duration of each job in seconds.
        boosting: Settings of the training.
        common_names: Number of most common names that get their own buckets; other names share buckets.
        monotone: Whether jobs of more GPUs are expected to run no shorter, all else equal (system tuner,
            3.6).

    Raises BadSample for durations that are not positive, or too few jobs; ExtraMissing without the packages
    for training.
    """
    if len(jobs) != len(durations_s):
        raise BadSample(f"{len(jobs)} jobs with {len(durations_s)} durations; want one for each job")
    by_gpus: dict[int, list[float]] = defaultdict(list)
    for job, duration_s in zip(jobs, durations_s, strict=True):
        if not (math.isfinite(duration_s) and duration_s > 0):
            raise BadSample(f"job '{job.name}' took {duration_s} s; want a positive duration")
        by_gpus[job.gpus].append(duration_s)
    names = bucket_names([job.name for job in jobs], most_common=common_names, seed=boosting.seed)
    model = train(
        FEATURES,
        [features(job, names) for job in jobs],
        [math.log(d) for d in durations_s],
        boosting,
        categories=CATEGORIES,
        rising=["gpus"] if monotone else [],
    )
    means_s = {gpus: math.fsum(d) / len(d) for gpus, d in by_gpus.items()}
    mean_s = math.fsum(durations_s) / len(durations_s)
    return DurationModel(model, names, frozenset(j.user for j in jobs), means_s, mean_s)
