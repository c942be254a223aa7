"""Additive models with interactions (GA²M) as plain data: sums of tables of features and pairs (Lucid, 3.5).

`interpret` trains them (explainable boosting machines); after that a model predicts and explains
its predictions without it.

Plots of what additive models have learned: shape functions.
"""

from __future__ import annotations

import math
import warnings
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from controller.figures import new_figure, save
from controller.policies.scheduling.errors import ExtraMissing
from controller.policies.scheduling.lucid.usage import BadSample

Value = float | str | None
"""A feature of one job: a number, a category, or None where it is unknown."""


@dataclass(frozen=True, slots=True)
class Axis:
    """Bins: a feature's values as rows of a table.

    Row 0 is for unknown values, the last one for categories that were not in training. Numbers fall between
    `cuts`, which increase; categories have their row in `rows`.
    """

    feature: int
    cuts: tuple[float, ...] = ()
    rows: Mapping[str, int] | None = None

    def row(self, value: Value) -> int:
        """Return a value's row."""
        if value is None or (isinstance(value, float) and math.isnan(value)):
            return 0
        if self.rows is not None:
            return self.rows.get(str(value), max(self.rows.values(), default=0) + 1)
        return bisect_right(self.cuts, float(value)) + 1


@dataclass(frozen=True, slots=True)
class Term:
    """One table: scores by the rows of one axis, or of two; `weights` are the samples behind each."""

    axes: tuple[Axis, ...]
    scores: tuple[tuple[float, ...], ...]
    weights: tuple[tuple[float, ...], ...]

    def score(self, values: Sequence[Value]) -> float:
        """Return the contribution of this term to a job's prediction."""
        rows = [axis.row(values[axis.feature]) for axis in self.axes]
        return self.scores[rows[0]][rows[1] if len(rows) > 1 else 0]


@dataclass(frozen=True, slots=True)
class Contribution:
    """Contribution of one term to a prediction."""

    term: str
    values: tuple[Value, ...]
    score: float


@dataclass(frozen=True, slots=True)
class AdditiveModel:
    """An intercept and a sum of terms over named features."""

    features: tuple[str, ...]
    intercept: float
    terms: tuple[Term, ...]

    def predict(self, values: Sequence[Value]) -> float:
        """Return the prediction for one job. O(terms · log cuts)."""
        return self.intercept + math.fsum(term.score(values) for term in self.terms)

    def explain(self, values: Sequence[Value]) -> list[Contribution]:
        """Return each term's contribution, largest first; with the intercept they sum to the prediction."""
        found = [
            Contribution(self.name(term), tuple(values[a.feature] for a in term.axes), term.score(values))
            for term in self.terms
        ]
        return sorted(found, key=lambda c: -abs(c.score))

    def name(self, term: Term) -> str:
        """Return the names of a term's features."""
        return " x ".join(self.features[axis.feature] for axis in term.axes)

    def shape(self, feature: str) -> list[tuple[str, float]]:
        """Return the shape function of a feature: where each stretch begins, or the category, and its score.

        Raises BadSample if the model has no term of this feature alone.
        """
        term = self._single(feature)
        axis = term.axes[0]
        scores = [row[0] for row in term.scores]
        if axis.rows is not None:
            return [(name, scores[row]) for name, row in axis.rows.items()]
        starts = ["-inf", *(f"{cut:g}" for cut in axis.cuts)]
        return list(zip(starts, scores[1:], strict=False))

    def _single(self, feature: str) -> Term:
        for term in self.terms:
            if len(term.axes) == 1 and self.features[term.axes[0].feature] == feature:
                return term
        raise BadSample(f"no term of '{feature}' alone; there are {', '.join(map(self.name, self.terms))}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Boosting:
    """How a model is trained.

    Attributes:
        interactions: Number of tables of pairs of features.
        max_rounds: Most rounds of boosting.
        bags: Number of models that are averaged, each trained on other samples.
        seed: Of training.
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
    """Train a model. Deterministic by seed.

    Args:
        features: Names of the features; those in `categories` are categories, the others numbers.
        samples: The values of all features, for each sample.
        targets: The value to predict, for each sample.
        boosting: How it is trained.
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
        warnings.simplefilter("ignore")  # it warns of features that are unknown in all of a bag's samples
        machine.fit(_matrix(features, samples, categories), np.asarray(targets, dtype=float))
    for name in rising:
        machine.monotonize(name, increasing=True)
    return _extract(machine, tuple(features))


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


def _extract(model: Any, features: tuple[str, ...]) -> AdditiveModel:
    terms = []
    for number, of in enumerate(model.term_features_):
        axes = []
        for feature in of:
            levels = model.bins_[feature]  # finest first; terms of k features use the k-th, or the last
            bins = levels[min(len(of), len(levels)) - 1]
            if isinstance(bins, dict):
                axes.append(Axis(feature, rows={str(k): int(v) for k, v in bins.items()}))
            else:
                axes.append(Axis(feature, cuts=tuple(map(float, bins))))
        terms.append(Term(tuple(axes), _rows(model.term_scores_[number]), _rows(model.bin_weights_[number])))
    return AdditiveModel(features, float(np.ravel(model.intercept_)[0]), tuple(terms))


def _rows(table: Any) -> tuple[tuple[float, ...], ...]:
    array = np.asarray(table, dtype=float)
    if array.ndim == 1:
        array = array[:, None]
    return tuple(tuple(map(float, row)) for row in array)


def draw_shapes(model: AdditiveModel, path: Path, *, features: Sequence[str] = ()) -> None:
    """Draw the shape functions of these features, or of all that have one, below each other.

    Raises PlotsMissing, BadSample for a feature that has none.
    """
    single = [model.name(term) for term in model.terms if len(term.axes) == 1]
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
    return label.replace("$", r"\$")  # no formula
