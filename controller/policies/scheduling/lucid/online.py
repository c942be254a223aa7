"""Lucid without given durations: it learns durations and arrivals while it runs (ASPLOS'23, 3.5, 3.6).

Each ended job is a sample for the duration model. Each elapsed interval is a sample for the models of
arrivals. Once per period, the update engine retrains the models on recent samples (3.6). The forecast of
arrivals determines how much jobs share GPUs (the dynamic strategy), and whether the profiler returns borrowed
nodes.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

from controller.policies.scheduling.errors import BadSpec
from controller.policies.scheduling.lucid.binder import LucidOptions, Sharing, strategy
from controller.policies.scheduling.lucid.estimates import (
    DurationModel,
    JobFacts,
    submission,
    train_durations,
)
from controller.policies.scheduling.lucid.policy import LucidPolicy
from controller.policies.scheduling.lucid.usage import (
    BadSample,
    Boosting,
    GpuUsage,
    Size,
    ThroughputModel,
    train_throughput,
)
from controller.policies.scheduling.policy import Decision, JobState, View

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
        if not (math.isfinite(period_s) and period_s > 0) or not 1 <= minimum <= window:
            raise BadSpec(
                f"period_s is {period_s}, minimum {minimum} and window {window}; want a positive, finite"
                " period and 1 <= minimum <= window"
            )
        self._train = train
        self._period_s = period_s
        self._minimum = minimum
        self._samples: deque[Sample] = deque(maxlen=window)
        self._fresh = 0  # samples since the last training
        self._model: Model | None = None
        self._due_s = -math.inf
        self.trained = 0

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
            self.trained += 1
        return self._model


MOST_INTERVALS = 1 << 20
"""Maximum number of intervals of ten minutes that can be counted: twenty years."""

QUICK = 400
"""Rounds of boosting: fewer than for a model that is trained once, because these models are retrained."""


UNKNOWN_S = 3600.0
"""Expected duration of jobs before any job has ended, in seconds."""
INTERVAL_S = 600
"""Length of the intervals in which arrivals are counted, in seconds; an hour must be a multiple of it."""
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
        self._said: tuple[int, list[float]] = (
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
        if self._said[0] != len(self._over):
            model = self._engine.model(now_s)
            found = []
            if model is not None:
                found = model.predict(self._over, self._start_s(len(self._over)), steps=AHEAD)
            self._said = (len(self._over), found)
        return self._said[1]

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
        return train_throughput(counts, self._start_s(0), boosting, interval_s=INTERVAL_S)
