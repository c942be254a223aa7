"""Additive models with interactions (GA²M): sums of tables, one per feature or pair of features (Lucid, 3.5).

The package `interpret` trains them (explainable boosting machines). `draw_shapes` plots the learned tables of
single features, the shape functions.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from controller.figures import new_figure, save
from controller.policies.scheduling.errors import ExtraMissing
from controller.policies.scheduling.lucid.usage import BadSample

Value = float | str | None
"""Value of a feature of one job: a number or a category; None: unknown."""


@dataclass(frozen=True, slots=True)
class Contribution:
    """Contribution of one term to a prediction."""

    term: str
    values: tuple[Value, ...]
    score: float


@dataclass(frozen=True, slots=True)
class AdditiveModel:
    """An intercept and a sum of terms over named features; `machine` is the model trained by `interpret`."""

    features: tuple[str, ...]
    categories: tuple[str, ...]
    machine: Any

    @property
    def intercept(self) -> float:
        """The constant to which the terms are added."""
        return float(np.ravel(self.machine.intercept_)[0])

    @property
    def names(self) -> list[str]:
        """The name of each term: the names of the term's features, joined by " x "."""
        return [" x ".join(self.features[each] for each in of) for of in self.machine.term_features_]

    def predict(self, values: Sequence[Value]) -> float:
        """Return the prediction for one job."""
        return float(self.machine.predict(_matrix(self.features, [values], self.categories))[0])

    def explain(self, values: Sequence[Value]) -> list[Contribution]:
        """Return each term's contribution, largest first; their sum plus the intercept is the prediction."""
        scores = self.machine.eval_terms(_matrix(self.features, [values], self.categories))[0]
        found = [
            Contribution(name, tuple(values[each] for each in of), float(score))
            for name, of, score in zip(self.names, self.machine.term_features_, scores, strict=True)
        ]
        return sorted(found, key=lambda c: -abs(c.score))

    def shape(self, feature: str) -> list[tuple[str, float]]:
        """Return a feature's shape function as pairs (value, score).

        The value is the lower end of an interval of values, or a category.

        Raises BadSample if the model has no term of this feature alone.
        """
        if feature not in self.names:
            raise BadSample(f"there is no term of '{feature}' alone; the terms are {', '.join(self.names)}")
        scores = self.machine.term_scores_[self.names.index(feature)].tolist()  # first: for unknown values
        bins = self.machine.bins_[self.features.index(feature)][0]
        if isinstance(bins, dict):
            return [(str(name), scores[row]) for name, row in bins.items()]
        return list(zip(["-inf", *(f"{cut:g}" for cut in bins)], scores[1:], strict=False))


@dataclass(frozen=True, slots=True, kw_only=True)
class Boosting:
    """Settings of a model's training.

    Attributes:
        interactions: Number of tables of pairs of features.
        max_rounds: Maximum number of rounds of boosting.
        bags: Number of models that are averaged, each trained on a different part of the samples.
        seed: Seed of the training.
    """

    interactions: int = 0
    max_rounds: int = 1000
    bags: int = 4
    seed: int = 0


def train(
    features: Sequence[str],
    samples: Sequence[Sequence[Value]],
    targets: Sequence[float],
    boosting: Boosting,
    *,
    categories: Sequence[str] = (),
    rising: Sequence[str] = (),
) -> AdditiveModel:
    """Train a model on samples, and return it. Deterministic by seed.

    Args:
        features: Names of the features; those in `categories` are categories, other features are numbers.
        samples: The values of all features, for each sample.
        targets: The value to predict, for each sample.
        boosting: Settings of the training.
        categories: Names of the categorical features.
        rising: Features of which a larger value may not lower a prediction (isotonic regression).

    Raises BadSample for samples of the wrong length, targets that are not finite, or fewer than ten samples,
    ExtraMissing without `interpret-core`.
    """
    if len(samples) != len(targets) or len(samples) < 10:
        raise BadSample(f"{len(samples)} samples with {len(targets)} targets; want equal numbers, 10 or more")
    for number, (sample, target) in enumerate(zip(samples, targets, strict=True)):
        if len(sample) != len(features) or not math.isfinite(target):
            raise BadSample(
                f"sample {number} has {len(sample)} of {len(features)} features and the target {target}"
            )
    machine = _machine(features, categories, boosting)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of features that are unknown in all samples of a bag
        machine.fit(_matrix(features, samples, categories), np.asarray(targets, dtype=float))
    for name in rising:
        machine.monotonize(name, increasing=True)
    return AdditiveModel(tuple(features), tuple(categories), machine)


def _machine(features: Sequence[str], categories: Sequence[str], boosting: Boosting) -> Any:
    try:
        from interpret.glassbox import ExplainableBoostingRegressor
    except ImportError:
        raise ExtraMissing("training an additive model", "interpret-core") from None
    return ExplainableBoostingRegressor(
        feature_names=list(features),
        feature_types=["nominal" if name in categories else "continuous" for name in features],
        n_jobs=1,
        interactions=boosting.interactions,
        learning_rate=0.05,
        max_rounds=boosting.max_rounds,
        max_bins=64,
        outer_bags=boosting.bags,
        random_state=boosting.seed,
    )


def _matrix(features: Sequence[str], samples: Sequence[Sequence[Value]], categories: Sequence[str]) -> Any:
    matrix = np.empty((len(samples), len(features)), dtype=object)
    for row, sample in enumerate(samples):
        for column, value in enumerate(sample):
            named = features[column] in categories and value is not None
            matrix[row, column] = str(value) if named else value
    return matrix


def draw_shapes(model: AdditiveModel, path: Path, *, features: Sequence[str] = ()) -> None:
    """Draw the shape functions of `features`, one below the other; by default, of all that have one.

    Raises PlotsMissing without matplotlib, BadSample for a feature without a shape function.
    """
    single = [name for name in model.names if name in model.features]
    wanted = list(features) or single
    if not wanted:
        raise BadSample("the model has no term of one feature to draw")
    shapes = [model.shape(name) for name in wanted]
    figure, panels = new_figure(len(wanted))
    for name, shape, panel in zip(wanted, shapes, panels, strict=True):
        labels, scores = [_plain(label) for label, _ in shape], [score for _, score in shape]
        panel.axhline(0, color="0.8", linewidth=0.8)
        if "-inf" in labels:
            starts = [float(label) for label in labels[1:]]
            first = starts[0] - (starts[-1] - starts[0] or 1.0) * 0.05 if starts else 0.0
            panel.step([first, *starts], scores, where="post")
        else:
            panel.bar(labels, scores)
        panel.set_xlabel(name)
        panel.set_ylabel("score")
    save(figure, path)


def _plain(label: str) -> str:
    return label.replace("$", r"\$")  # matplotlib would read a formula
