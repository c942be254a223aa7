"""Predicted arrivals of jobs: the throughput predict model (Lucid, 3.5.2)."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from controller.policies.scheduling.lucid.additive import AdditiveModel, Boosting, Value, train
from controller.policies.scheduling.lucid.usage import BadSample

WINDOWS_H = (1, 3, 24)
"""Windows before an interval, in hours. For each window, one feature of the interval is the count of the
interval at the window's beginning, and another is a weighted mean of all counts in the window."""

FEATURES = (
    "weekday",
    "hour",
    "minute",
    *(f"{hours} h ago" for hours in WINDOWS_H),
    *(f"soft sum of {hours} h" for hours in WINDOWS_H),
    "mean of 1 h",
    "median of 1 h",
    "deviation of 1 h",
)


def features(counts: Sequence[float], when: datetime, *, interval_s: int) -> tuple[Value, ...]:
    """Return the features of the interval that begins at `when`, from the counts of earlier intervals.

    A soft sum weights recent intervals more: the weight halves with each quarter of the window. A feature is
    None if it needs a count from before the first count.
    """
    per_hour = 3600 // interval_s
    found: list[Value] = [float(when.weekday()), float(when.hour), float(when.minute)]
    for hours in WINDOWS_H:
        back = hours * per_hour
        found.append(counts[-back] if len(counts) >= back else None)
    for hours in WINDOWS_H:
        window = counts[-hours * per_hour :]
        if not window:
            found.append(None)
            continue
        halving = max(1.0, hours * per_hour / 4)
        weights = [0.5 ** ((len(window) - 1 - i) / halving) for i in range(len(window))]
        found.append(sum(w * c for w, c in zip(weights, window, strict=True)) / sum(weights))
    last = counts[-per_hour:]
    found += (
        [statistics.fmean(last), statistics.median(last), statistics.pstdev(last)] if last else [None] * 3
    )
    return tuple(found)


@dataclass(frozen=True, slots=True)
class ThroughputModel:
    """Model that predicts the count of the next interval and, by feeding predictions back, later counts."""

    model: AdditiveModel
    interval_s: int

    def predict(self, counts: Sequence[float], next_s: float, *, steps: int = 1) -> list[float]:
        """Return the expected counts of the next `steps` intervals; `next_s` is the first one's beginning."""
        known = list(counts[-WINDOWS_H[-1] * 3600 // self.interval_s :])
        when = datetime.fromtimestamp(next_s, UTC)
        found = []
        for _ in range(steps):
            value = max(0.0, self.model.predict(features(known, when, interval_s=self.interval_s)))
            found.append(value)
            known.append(value)
            when += timedelta(seconds=self.interval_s)
        return found


LONG = Boosting(interactions=3)
"""Training settings for a model that is trained once."""


def train_throughput(
    counts: Sequence[float], first_s: float, boosting: Boosting = LONG, *, interval_s: int = 600
) -> ThroughputModel:
    """Train a model on a series of counts, and return it.

    Args:
        counts: Jobs that arrived in each interval.
        first_s: Beginning of the first interval, seconds since 1970, UTC.
        boosting: Settings of the training.
        interval_s: Length of an interval in seconds; must divide an hour.

    Raises BadSample unless the interval divides an hour, the counts are not negative, and they cover two days
    at least (the features look back one day); ExtraMissing without `interpret-core`.
    """
    if interval_s < 1 or 3600 % interval_s:
        raise BadSample(f"an interval of {interval_s} s; it has to divide an hour")
    if not all(math.isfinite(c) and c >= 0 for c in counts):
        raise BadSample("a count is negative or not finite")
    day = 86400 // interval_s
    if len(counts) < 2 * day:
        raise BadSample(f"{len(counts)} counts of {interval_s} s; want two days or more, at least {2 * day}")
    rows = [
        features(
            counts[max(0, i - day) : i],
            datetime.fromtimestamp(first_s + i * interval_s, UTC),
            interval_s=interval_s,
        )
        for i in range(day, len(counts))
    ]
    return ThroughputModel(train(FEATURES, rows, counts[day:], boosting), interval_s)
