"""Lucid's models: a job's usage of a GPU, additive models of numbers, and predicted arrivals of jobs.

A job's GPU usage as the profiler measures it, and its class by the packing analyser (Lucid, 3.2, 3.5.1).

The packing analyser is a pruned decision tree, trained on measured pairs (`grow`). The tree is plain data, so
predictions and their explanations need no library.

Errors of Lucid's parts::

    SchedulingError
    └── LucidError
        └── BadSample  invalid measurements or training data, or too little of it

Additive models with interactions (GA²M): sums of tables, one per feature or pair of features (Lucid, 3.5).

The package `interpret` trains them (explainable boosting machines). `draw_shapes` plots the learned tables of
single features, the shape functions.

Predicted arrivals of jobs: the throughput predict model (Lucid, 3.5.2).
"""

from __future__ import annotations

import math
import statistics
import warnings
from collections import defaultdict
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import IntEnum
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from controller.figures import new_figure, save
from controller.policies.scheduling.errors import BadInput, SchedulingError, needed


class LucidError(SchedulingError):
    """Base class of this package's errors."""


class BadSample(LucidError, BadInput):
    """Invalid measurements or training data."""


class Size(IntEnum):
    """How much a job slows down another job on its GPUs. The value is the job's sharing score."""

    TINY = 0
    MEDIUM = 1
    JUMBO = 2


@dataclass(frozen=True, slots=True)
class GpuUsage:
    """Average GPU usage over a profiling run, as `nvidia-smi` or DCGM report it without changing the job.

    `gpu_util` is the percentage of time in which a kernel ran, `memory_util` the percentage of time in which
    memory was read or written, `memory_mb` the memory footprint. `mixed_precision` is as stated by the user.
    """

    gpu_util: float
    memory_util: float
    memory_mb: float
    mixed_precision: bool = False

    def __post_init__(self) -> None:
        for name, value, most in (
            ("gpu_util", self.gpu_util, 100.0),
            ("memory_util", self.memory_util, 100.0),
            ("memory_mb", self.memory_mb, math.inf),
        ):
            if not 0 <= value <= most or not math.isfinite(value):
                limit = f"0 to {most:g}" if most < math.inf else "0 or more"
                raise BadSample(f"{name} is {value}; it can be {limit}")

    def features(self) -> tuple[float, ...]:
        """Return the usage as numbers, in the order of `FEATURES`."""
        return self.gpu_util, self.memory_util, self.memory_mb, float(self.mixed_precision)


FEATURES = ("GPU utilisation in %", "memory utilisation in %", "memory in MB", "mixed precision")


TINY, MEDIUM = 0.95, 0.85
"""Minimum mean speed of the jobs beside a job of the class tiny, and beside one of the class medium, relative
to running alone (Lucid's values)."""


def size_of(speed: float) -> Size:
    """Return the class of a job; `speed` is its partners' mean speed relative to their speed alone.

    >>> size_of(0.97), size_of(0.9), size_of(0.6)
    (<Size.TINY: 0>, <Size.MEDIUM: 1>, <Size.JUMBO: 2>)
    """
    return Size.TINY if speed >= TINY else Size.MEDIUM if speed >= MEDIUM else Size.JUMBO


@dataclass(frozen=True, slots=True)
class Leaf:
    """A leaf of the decision tree: the number of training samples of each class that reached it."""

    counts: tuple[float, float, float]

    @property
    def size(self) -> Size:
        """The most frequent class of the leaf's samples; of equally frequent ones, the larger (safer)."""
        return max(Size, key=lambda size: (self.counts[size], size))


@dataclass(frozen=True, slots=True)
class Split:
    """Inner node of the tree: go to `below` if the feature is at most the threshold, else to `above`."""

    feature: int
    threshold: float
    below: Tree
    above: Tree


Tree = Leaf | Split


@dataclass(frozen=True, slots=True)
class PackingTree:
    """The packing analyser's model: a decision tree that returns the class of a job."""

    root: Tree

    def predict(self, usage: GpuUsage) -> Size:
        """Return the class of a job. O(depth)."""
        values = usage.features()
        node = self.root
        while isinstance(node, Split):
            node = node.below if values[node.feature] <= node.threshold else node.above
        return node.size

    def explain(self, usage: GpuUsage) -> list[str]:
        """Return one line for each comparison that leads to the class, then the class and sample counts."""
        lines = []
        node = self.root
        values = usage.features()
        while isinstance(node, Split):
            value = values[node.feature]
            yes = value <= node.threshold
            sign = "<=" if yes else ">"
            lines.append(f"{FEATURES[node.feature]} {sign} {node.threshold:g} (it is {value:g})")
            node = node.below if yes else node.above
        total = sum(node.counts)
        share = node.counts[node.size] / total if total else 0.0
        lines.append(f"{node.size.name.title()}: {share:.0%} of {total:g} samples like this one")
        return lines

    @property
    def leaves(self) -> int:
        """Number of leaves."""
        return _leaves(self.root)


def _leaves(node: Tree) -> int:
    return 1 if isinstance(node, Leaf) else _leaves(node.below) + _leaves(node.above)


Sample = tuple[GpuUsage, Size]
NamedSample = TypeVar("NamedSample", bound=Hashable)


def sizes_from_pairs(
    pairs: Iterable[tuple[NamedSample, NamedSample, float, float]],
) -> dict[NamedSample, Size]:
    """Classify configurations by the slowdown that they cause in their partners.

    Each pair is two configurations and their speeds, 1 being the speed alone. A configuration is classified
    by the mean speed of its partners: its usage can predict its influence on others, not its own speed.

    >>> sizes_from_pairs([("a", "b", 0.99, 0.97), ("b", "c", 0.6, 0.9)])["c"].name
    'JUMBO'
    """
    partners: dict[NamedSample, list[float]] = defaultdict(list)
    for one, other, speed_one, speed_other in pairs:
        partners[one].append(speed_other)
        partners[other].append(speed_one)
    return {config: size_of(math.fsum(speeds) / len(speeds)) for config, speeds in partners.items()}


def grow(samples: Sequence[Sample], *, prune: float = 0.02, seed: int = 0) -> PackingTree:
    """Train a tree and prune it by minimal cost complexity. Deterministic by seed.

    `prune` is the price of a leaf (sklearn's `ccp_alpha`).

    Raises BadSample for fewer than two samples, ExtraMissing without scikit-learn.
    """
    if len(samples) < 2:
        raise BadSample(f"{len(samples)} samples to train on; at least 2 are needed")
    x, y = np.array([u.features() for u, _ in samples]), np.array([int(s) for _, s in samples])
    trees = needed("sklearn.tree", "training the packing analyser", "scikit-learn")
    model = trees.DecisionTreeClassifier(random_state=seed, ccp_alpha=prune).fit(x, y)
    return PackingTree(_convert(model.tree_, 0, [int(c) for c in model.classes_]))


def _convert(tree: Any, node: int, classes: Sequence[int]) -> Tree:
    if tree.children_left[node] < 0:
        counts = [0.0, 0.0, 0.0]
        for size, part in zip(classes, tree.value[node][0], strict=True):
            counts[size] = round(float(part * tree.n_node_samples[node]), 6)
        return Leaf((counts[0], counts[1], counts[2]))
    return Split(
        int(tree.feature[node]),
        float(tree.threshold[node]),
        _convert(tree, tree.children_left[node], classes),
        _convert(tree, tree.children_right[node], classes),
    )


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
        return float(self.machine.predict(_inputs(self.features, [values], self.categories))[0])

    def explain(self, values: Sequence[Value]) -> list[Contribution]:
        """Return each term's contribution, largest first; their sum plus the intercept is the prediction."""
        scores = self.machine.eval_terms(_inputs(self.features, [values], self.categories))[0]
        found = [
            Contribution(name, tuple(values[each] for each in of), float(score))
            for name, of, score in zip(self.names, self.machine.term_features_, scores, strict=True)
        ]
        return sorted(found, key=lambda c: -abs(c.score))

    def shape(self, feature: str) -> list[tuple[str, float]]:
        """Return a feature's shape function as pairs (value, score).

        The value is the lower end of an interval of values, or a category.
        """
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

    Raises BadSample for other numbers of samples than of targets, or fewer than ten; ExtraMissing without
    `interpret-core`.
    """
    if len(samples) != len(targets) or len(samples) < 10:
        raise BadSample(f"{len(samples)} samples with {len(targets)} targets; want equal numbers, 10 or more")
    glassbox = needed("interpret.glassbox", "training an additive model", "interpret-core")
    machine = glassbox.ExplainableBoostingRegressor(
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
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of features that are unknown in all samples of a bag
        machine.fit(_inputs(features, samples, categories), np.asarray(targets, dtype=float))
    for name in rising:
        machine.monotonize(name, increasing=True)
    return AdditiveModel(tuple(features), tuple(categories), machine)


def _inputs(features: Sequence[str], samples: Sequence[Sequence[Value]], categories: Sequence[str]) -> Any:
    matrix = np.empty((len(samples), len(features)), dtype=object)
    for row, sample in enumerate(samples):
        for column, value in enumerate(sample):
            named = features[column] in categories and value is not None
            matrix[row, column] = str(value) if named else value
    return matrix


def draw_shapes(model: AdditiveModel, path: Path) -> None:
    """Draw the shape functions of all single features, one below the other.

    Raises PlotsMissing without matplotlib.
    """
    wanted = [name for name in model.names if name in model.features]
    shapes = [model.shape(name) for name in wanted]
    figure, panels = new_figure(len(wanted))
    for name, shape, panel in zip(wanted, shapes, panels, strict=True):
        labels, scores = [label.replace("$", r"\$") for label, _ in shape], [score for _, score in shape]
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


INTERVAL_S = 600
"""Length of the intervals in which arrivals are counted, in seconds; an hour must be a multiple of it."""
WINDOWS_H = (1, 3, 24)
"""Windows before an interval, in hours. For each window, one feature of the interval is the count of the
interval at the window's beginning, and another is a weighted mean of all counts in the window."""

CALENDAR = (
    "weekday",
    "hour",
    "minute",
    *(f"{hours} h ago" for hours in WINDOWS_H),
    *(f"soft sum of {hours} h" for hours in WINDOWS_H),
    "mean of 1 h",
    "median of 1 h",
    "deviation of 1 h",
)


def features(counts: Sequence[float], when: datetime) -> tuple[Value, ...]:
    """Return the features of the interval that begins at `when`, from the counts of earlier intervals.

    A soft sum weights recent intervals more: the weight halves with each quarter of the window. A feature is
    None if it needs a count from before the first count.
    """
    per_hour = 3600 // INTERVAL_S
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

    def predict(self, counts: Sequence[float], next_s: float, *, steps: int = 1) -> list[float]:
        """Return the expected counts of the next `steps` intervals; `next_s` is the first one's beginning."""
        known = list(counts[-WINDOWS_H[-1] * 3600 // INTERVAL_S :])
        when = datetime.fromtimestamp(next_s, UTC)
        found = []
        for _ in range(steps):
            value = max(0.0, self.model.predict(features(known, when)))
            found.append(value)
            known.append(value)
            when += timedelta(seconds=INTERVAL_S)
        return found


LONG = Boosting(interactions=3)
"""Training settings for a model that is trained once."""


def train_throughput(counts: Sequence[float], first_s: float, boosting: Boosting = LONG) -> ThroughputModel:
    """Train a model on a series of counts that covers two days at least, and return it.

    Args:
        counts: Jobs that arrived in each interval of `INTERVAL_S`.
        first_s: Beginning of the first interval, seconds since 1970, UTC.
        boosting: Settings of the training.

    Raises ExtraMissing without `interpret-core`.
    """
    day = 86400 // INTERVAL_S
    rows = [
        features(counts[max(0, i - day) : i], datetime.fromtimestamp(first_s + i * INTERVAL_S, UTC))
        for i in range(day, len(counts))
    ]
    return ThroughputModel(train(CALENDAR, rows, counts[day:], boosting))
