"""Estimates of durations from past jobs (Lucid, 3.5), made once or updated as jobs end.

Predicted durations of jobs: the workload estimate model (Lucid, 3.5.3).

Users submit a job repeatedly with small changes of its name, so similar names are put into one bucket, whose
number is a feature of the model. Edit distance measures how similar two names are, and affinity propagation
finds the buckets, whose number need not be known.

Lucid without given durations: it learns durations and arrivals while it runs (ASPLOS'23, 3.5, 3.6).

Each ended job is a sample for the duration model. Each elapsed interval is a sample for the models of
arrivals. Once per period, the update engine retrains the models on recent samples (3.6). The forecast of
arrivals determines how much jobs share GPUs (the dynamic strategy), and whether the profiler returns borrowed
nodes.
"""

from __future__ import annotations

import math
import warnings
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Generic, TypeVar

import numpy as np

from controller.policies.scheduling.errors import BadSpec, needed
from controller.policies.scheduling.lucid.policy import LucidOptions, LucidPolicy, Sharing, strategy
from controller.policies.scheduling.lucid.usage import (
    INTERVAL_S,
    AdditiveModel,
    BadSample,
    Boosting,
    GpuUsage,
    Size,
    ThroughputModel,
    Value,
    train,
    train_throughput,
)
from controller.policies.scheduling.policy import Decision, JobState, Submission, View
from controller.vocabulary.lists import by_key


def _distance() -> Callable[[str, str], int]:
    module = needed("rapidfuzz.distance", "comparing job names", "rapidfuzz")
    distance: Callable[[str, str], int] = module.Levenshtein.distance
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

    Raises ExtraMissing without scikit-learn if there is anything to cluster.
    """
    ranked = [name for name, _ in sorted(Counter(names).items(), key=lambda item: (-item[1], item[0]))]
    exemplars = ranked[:most_common]
    known = {name: number for number, name in enumerate(exemplars)}
    for group in by_key((name[:1], name) for name in ranked[most_common:]).values():
        for exemplar, members in _clusters(group, damping, seed):
            for member in members:
                known[member] = len(exemplars)
            exemplars.append(exemplar)
    return NameBuckets(tuple(exemplars), known)


def _clusters(names: Sequence[str], damping: float, seed: int) -> list[tuple[str, list[str]]]:
    if len(names) == 1:
        return [(names[0], [names[0]])]
    cluster = needed("sklearn.cluster", "clustering job names", "scikit-learn")
    distance = _distance()
    likeness = np.array([[-float(distance(a, b)) for b in names] for a in names])
    off_diagonal = likeness[~np.eye(len(names), dtype=bool)]
    if off_diagonal.min() == off_diagonal.max():  # all distances are equal: one bucket
        return [(names[0], list(names))]
    model = cluster.AffinityPropagation(
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
            reason = f"user {job.user} is new" if job.user else "the job names no user"
            return [f"{reason}: {self.predict_s(job):.0f} s is the mean of jobs with the same number of GPUs"]
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

    Raises BadSample for too few jobs; ExtraMissing without the packages for training.
    """
    by_gpus: dict[int, list[float]] = defaultdict(list)
    for job, duration_s in zip(jobs, durations_s, strict=True):
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


Sample = TypeVar("Sample")
Model = TypeVar("Model")


class UpdateEngine(Generic[Sample, Model]):
    """The latest samples, and a model that is trained on these samples once per period.

    Args:
        train: Function that returns a model trained on samples, oldest first. If it raises BadSample, the
            present model stays in use.
        period_s: Time from one training to the next, in seconds.
        window: Number of samples to keep.
        minimum: Number of samples needed to train the first model.
    """

    def __init__(
        self,
        train: Callable[[Sequence[Sample]], Model],
        *,
        period_s: float,
        window: int = 50_000,
        minimum: int = 100,
    ) -> None:
        self._train = train
        self._period_s = period_s
        self._minimum = minimum
        self._samples: deque[Sample] = deque(maxlen=window)
        self._fresh = 0  # samples since the last training
        self._model: Model | None = None
        self._due_s = -math.inf

    def observe(self, sample: Sample) -> None:
        """Add a sample; the oldest one is dropped when the window is full."""
        self._samples.append(sample)
        self._fresh += 1

    def model(self, now_s: float) -> Model | None:
        """Return the model, after retraining it if a period has passed; None before the first training."""
        if now_s >= self._due_s and self._fresh and len(self._samples) >= self._minimum:
            self._due_s = now_s + self._period_s
            try:
                self._model = self._train(tuple(self._samples))
            except BadSample:
                return self._model
            self._fresh = 0
        return self._model


MOST_INTERVALS = 1 << 20
"""Maximum number of intervals of ten minutes that can be counted: twenty years."""

QUICK = 400
"""Rounds of boosting: fewer than for a model that is trained once, because these models are retrained."""


UNKNOWN_S = 3600.0
"""Expected duration of jobs before any job has ended, in seconds."""
AHEAD = 5
"""Number of intervals to forecast."""


class OnlineLucid:
    """A `LucidPolicy` with models that are trained while jobs run: of durations and of arrivals.

    Args:
        options: Options of Lucid.
        measure: Function that returns a job's usage, as the profiler measures it.
        analyse: The packing analyser: function that returns the sharing score of a usage.
    """

    name = "lucid"

    def __init__(
        self,
        options: LucidOptions,
        *,
        measure: Callable[[JobState], GpuUsage],
        analyse: Callable[[GpuUsage], Size],
    ) -> None:
        self._options = options
        self._measure = measure
        self._now_s = 0.0
        self._usages: dict[int, GpuUsage] = {}  # of unfinished jobs that were profiled, by order of arrival
        self._ended: dict[int, tuple[int, float]] = {}  # how many jobs, and seconds, by GPU count
        self._durations: UpdateEngine[tuple[JobFacts, float], DurationModel] = UpdateEngine(
            self._train, period_s=options.period_s, minimum=options.minimum
        )
        self._jobs = Arrivals(options, lambda job: 1)
        self._gpus = Arrivals(options, lambda job: job.spec.gpus)
        self._policy = LucidPolicy(
            options,
            estimate=self._expected_s,
            measure=self._profile,
            analyse=analyse,
            sharing=self._sharing,
            forecast_gpus=self._gpus.forecast,
        )

    def decide(self, view: View) -> Decision:
        """Learn from the events since the last decision; return the groups to profile and to run."""
        self._now_s = view.now_s
        for job in view.finished:
            self._learn(job)
        for job in view.arrived:
            self._jobs.count(job)
            self._gpus.count(job)
        return self._policy.decide(view)

    def explain(self, job: JobState) -> list[str]:
        """Return sentences on an unfinished job: known properties, and terms of the expected duration."""
        model = self._durations.model(self._now_s)
        lines = [self._policy.explain(job)]
        if model is not None:
            lines += model.explain(submission(job.spec, self._usages.get(job.order)))
        return lines

    def _learn(self, job: JobState) -> None:
        usage = self._usages.pop(job.order, None)
        alone_s = job.spec.iterations * job.alone_s
        count, total_s = self._ended.get(job.spec.gpus, (0, 0.0))
        self._ended[job.spec.gpus] = (count + 1, total_s + alone_s)
        self._durations.observe((submission(job.spec, usage), alone_s))

    def _train(self, samples: Sequence[tuple[JobFacts, float]]) -> DurationModel:
        jobs, durations_s = zip(*samples, strict=True)
        boosting = Boosting(interactions=3, max_rounds=QUICK, bags=2, seed=self._options.seed)
        return train_durations(jobs, durations_s, boosting, monotone=self._options.monotone)

    def _expected_s(self, job: JobState) -> float:
        """Return a job's expected duration in seconds, by the model.

        Without a model, return the mean of the ended jobs with the same number of GPUs or, if there is none,
        of all ended jobs.
        """
        model = self._durations.model(self._now_s)
        if model is not None:
            return model.predict_s(submission(job.spec, self._usages.get(job.order)))
        same = self._ended.get(job.spec.gpus)
        found = [same] if same else list(self._ended.values())
        count = sum(number for number, _ in found)
        return sum(total_s for _, total_s in found) / count if count else UNKNOWN_S

    def _profile(self, job: JobState) -> GpuUsage:
        usage = self._usages[job.order] = self._measure(job)
        return usage

    def _sharing(self, now_s: float, idle: float) -> Sharing:
        lately, forecast = self._jobs.latest(now_s), self._jobs.forecast(now_s)
        if not forecast:
            return Sharing.DEFAULT  # future arrivals are unknown
        return strategy(self._options, now=lately, forecast=forecast, idle=idle)


class Arrivals:
    """Counts of arrivals by interval, and forecasts of later counts after the first two days."""

    def __init__(self, options: LucidOptions, weight: Callable[[JobState], float]) -> None:
        self._seed = options.seed
        self._weight = weight
        self._begin_s: float | None = None
        self._over: list[float] = []  # counts of the past intervals
        self._now = 0.0  # count of the present interval
        self._engine: UpdateEngine[float, ThroughputModel] = UpdateEngine(
            self._train,
            period_s=options.period_s,
            window=MOST_INTERVALS,
            minimum=2 * 86_400 // INTERVAL_S,
        )
        self._last_forecast: tuple[int, list[float]] = (
            -1,
            [],
        )  # number of past intervals at the last forecast, and the forecast

    def count(self, job: JobState) -> None:
        """Count a job at the time of its submission."""
        self._until(job.spec.arrival_s)
        self._now += self._weight(job)

    def latest(self, now_s: float) -> float:
        """Return the number of arrivals in the last complete interval; 0 during the first interval."""
        self._until(now_s)
        return self._over[-1] if self._over else 0.0

    def forecast(self, now_s: float) -> list[float]:
        """Return the expected arrivals in the present and the next intervals; empty without a model."""
        self._until(now_s)
        if self._last_forecast[0] != len(self._over):
            model = self._engine.model(now_s)
            found = []
            if model is not None:
                found = model.predict(self._over, self._start_s(len(self._over)), steps=AHEAD)
            self._last_forecast = (len(self._over), found)
        return self._last_forecast[1]

    def _until(self, now_s: float) -> None:
        if self._begin_s is None:
            self._begin_s = math.floor(now_s / INTERVAL_S) * INTERVAL_S
        if now_s > self._start_s(MOST_INTERVALS):
            raise BadSpec(f"arrivals until {now_s:g} s: at most {MOST_INTERVALS:,} intervals can be counted")
        while now_s >= self._start_s(len(self._over) + 1):
            self._over.append(self._now)
            self._engine.observe(self._now)
            self._now = 0.0

    def _start_s(self, interval: int) -> float:
        assert self._begin_s is not None
        return self._begin_s + interval * INTERVAL_S

    def _train(self, counts: Sequence[float]) -> ThroughputModel:
        boosting = Boosting(interactions=3, max_rounds=QUICK, bags=2, seed=self._seed)
        return train_throughput(counts, self._start_s(0), boosting)
