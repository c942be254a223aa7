"""The update engine: models are retrained on recent samples (Lucid, 3.6)."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

from controller.policies.scheduling.errors import BadSpec
from controller.policies.scheduling.lucid.errors import BadSample

Sample = TypeVar("Sample")
Model = TypeVar("Model")


class UpdateEngine(Generic[Sample, Model]):
    """Keeps the latest samples, and trains a model on them once per period.

    Args:
        train: Makes a model of samples, oldest first. If it raises BadSample, the model in use stays.
        period_s: How long a model is used.
        window: How many samples are kept.
        minimum: Samples that a first model needs.
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
                f"an update every {period_s} s with {minimum} of {window} samples; time has to pass, and the"
                " minimum is from 1 to the window"
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
        """Return the model in use, retrained first if it is due and there are new samples; None: no model."""
        if now_s >= self._due_s and self._fresh and len(self._samples) >= self._minimum:
            self._due_s = now_s + self._period_s
            try:
                self._model = self._train(tuple(self._samples))
            except BadSample:
                return self._model
            self._fresh = 0
            self.trained += 1
        return self._model
