"""Errors of Lucid's parts.

SchedulingError
└── LucidError
    └── BadSample  invalid measurements or training data, or too little of it

A job's usage as the profiler measures it, and its class by the packing analyser (Lucid, 3.2, 3.5.1).

A decision tree as plain data, which needs no library to predict and to explain itself.

The packing analyser: a pruned decision tree from measured pairs (Lucid, 3.5.1).
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from controller.policies.scheduling.errors import BadInput, ExtraMissing, SchedulingError

if TYPE_CHECKING:
    from types import ModuleType


class LucidError(SchedulingError):
    """Base class of this package's errors."""


class BadSample(LucidError, BadInput):
    """Invalid measurements or training data."""


class Size(IntEnum):
    """Degree to which a job disturbs another one on its GPUs. The value is its sharing score."""

    TINY = 0
    MEDIUM = 1
    JUMBO = 2


@dataclass(frozen=True, slots=True)
class Usage:
    """Averages over a profiling run, as `nvidia-smi` or DCGM give them without touching the job.

    `gpu_util` is the percentage of time in which a kernel ran, `memory_util` that in which memory was read or
    written, `memory_mb` the footprint. `mixed_precision` is what the user says of the job.
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
        """Return the numbers in the order of `FEATURES`."""
        return self.gpu_util, self.memory_util, self.memory_mb, float(self.mixed_precision)


FEATURES = ("GPU utilisation in %", "memory utilisation in %", "memory in MB", "mixed precision")


def size_of(speed: float, *, tiny: float = 0.95, medium: float = 0.85) -> Size:
    """Class a job by the mean normalised speed of the jobs that it is paired with.

    >>> size_of(0.97), size_of(0.9), size_of(0.6)
    (<Size.TINY: 0>, <Size.MEDIUM: 1>, <Size.JUMBO: 2>)
    """
    if not (math.isfinite(speed) and speed > 0 and 0 < medium <= tiny):
        raise BadSample(
            f"a speed of {speed} with thresholds {medium} and {tiny}; all have to be positive, in order"
        )
    return Size.TINY if speed >= tiny else Size.MEDIUM if speed >= medium else Size.JUMBO


@dataclass(frozen=True, slots=True)
class Leaf:
    """The end of a path: how many training samples of each class came here."""

    counts: tuple[float, float, float]

    @property
    def size(self) -> Size:
        """The class of most of them; the larger one of equal ones, which is the safe side."""
        return max(Size, key=lambda size: (self.counts[size], size))


@dataclass(frozen=True, slots=True)
class Split:
    """A question: is the feature at most the threshold? If so, continue at `below`."""

    feature: int
    threshold: float
    below: Tree
    above: Tree


Tree = Leaf | Split


@dataclass(frozen=True, slots=True)
class PackingTree:
    """The packing analyser's model."""

    root: Tree

    def predict(self, usage: Usage) -> Size:
        """Return the class of a job. O(depth)."""
        values = usage.features()
        node = self.root
        while isinstance(node, Split):
            node = node.below if values[node.feature] <= node.threshold else node.above
        return node.size

    def explain(self, usage: Usage) -> list[str]:
        """Return the questions that led to the class, a line each, and the class with its sample counts."""
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

    def importances(self) -> dict[str, float]:
        """Return each feature's part of the Gini impurity that the tree removes; the parts add up to 1."""
        removed = [0.0] * len(FEATURES)
        _removed_by(self.root, removed)
        total = sum(removed)
        return {name: part / total if total else 0.0 for name, part in zip(FEATURES, removed, strict=True)}

    @property
    def leaves(self) -> int:
        """Number of leaves."""
        return _leaves(self.root)

    def describe(self) -> str:
        """Draw the tree as indented text."""
        return "\n".join(_lines(self.root, ""))

    def to_dict(self) -> dict[str, Any]:
        """Return it as data for JSON."""
        return _to_dict(self.root)

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> PackingTree:
        """Undo `to_dict`. Raises BadSample for anything else."""
        return cls(_from_dict(data))


def accuracy(tree: PackingTree, samples: Sequence[tuple[Usage, Size]]) -> float:
    """Return the fraction of samples that the tree classifies correctly. Raises BadSample for no samples."""
    if not samples:
        raise BadSample("an accuracy of no samples")
    return sum(tree.predict(usage) is size for usage, size in samples) / len(samples)


def _counts(node: Tree) -> tuple[float, float, float]:
    if isinstance(node, Leaf):
        return node.counts
    a, b = _counts(node.below), _counts(node.above)
    return a[0] + b[0], a[1] + b[1], a[2] + b[2]


def _impurity(counts: Sequence[float]) -> float:
    """Return the Gini impurity times the number of samples."""
    total = sum(counts)
    return total - sum(c * c for c in counts) / total if total else 0.0


def _removed_by(node: Tree, removed: list[float]) -> None:
    if isinstance(node, Split):
        below, above = _counts(node.below), _counts(node.above)
        removed[node.feature] += _impurity(_counts(node)) - _impurity(below) - _impurity(above)
        _removed_by(node.below, removed)
        _removed_by(node.above, removed)


def _leaves(node: Tree) -> int:
    return 1 if isinstance(node, Leaf) else _leaves(node.below) + _leaves(node.above)


def _lines(node: Tree, indent: str) -> list[str]:
    if isinstance(node, Leaf):
        return [f"{indent}{node.size.name.title()} {tuple(node.counts)}"]
    question = f"{FEATURES[node.feature]} <= {node.threshold:g}"
    return [
        f"{indent}{question}",
        *_lines(node.below, indent + "  "),
        f"{indent}else",
        *_lines(node.above, indent + "  "),
    ]


def _to_dict(node: Tree) -> dict[str, Any]:
    if isinstance(node, Leaf):
        return {"counts": list(node.counts)}
    return {
        "feature": node.feature,
        "threshold": node.threshold,
        "below": _to_dict(node.below),
        "above": _to_dict(node.above),
    }


def _from_dict(data: Mapping[str, Any]) -> Tree:
    try:
        if "counts" in data:
            tiny, medium, jumbo = map(float, data["counts"])
            return Leaf((tiny, medium, jumbo))
        feature = int(data["feature"])
        if not 0 <= feature < len(FEATURES):
            raise BadSample(f"a tree uses feature {feature}; there are {len(FEATURES)}, from 0")
        return Split(feature, float(data["threshold"]), _from_dict(data["below"]), _from_dict(data["above"]))
    except (KeyError, TypeError, ValueError) as error:
        raise BadSample(f"not a packing tree: {error!r}") from None


Sample = tuple[Usage, Size]
Named = TypeVar("Named", bound=Hashable)


def sizes_from_pairs(
    pairs: Iterable[tuple[Named, Named, float, float]], *, tiny: float = 0.95, medium: float = 0.85
) -> dict[Named, Size]:
    """Classify configurations by how much they slow down those that they are paired with.

    Each pair is two configurations and their speeds, 1 being the speed alone. A configuration is classified
    by the mean speed of its partners: its usage can predict its influence on others, not its own speed.

    >>> sizes_from_pairs([("a", "b", 0.99, 0.97), ("b", "c", 0.6, 0.9)])["c"].name
    'JUMBO'
    """
    partners: dict[Named, list[float]] = defaultdict(list)
    for one, other, speed_one, speed_other in pairs:
        if not all(math.isfinite(v) and v > 0 for v in (speed_one, speed_other)):
            raise BadSample(
                f"speeds {speed_one} and {speed_other} of {one} and {other}; both have to be positive"
            )
        partners[one].append(speed_other)
        partners[other].append(speed_one)
    return {
        config: size_of(math.fsum(speeds) / len(speeds), tiny=tiny, medium=medium)
        for config, speeds in partners.items()
    }


def grow(samples: Sequence[Sample], *, prune: float | None = None, seed: int = 0) -> PackingTree:
    """Train a tree and prune it by minimal cost complexity.

    `prune` is the price of a leaf (sklearn's `ccp_alpha`). Without it, the price is chosen by
    cross-validation: the highest whose accuracy is within one standard error of the best, which gives the
    smallest tree that is as good. Deterministic by seed.

    Raises BadSample for fewer than two samples, ExtraMissing without scikit-learn.
    """
    if len(samples) < 2:
        raise BadSample(f"{len(samples)} samples to train on; at least 2 are needed")
    if prune is None:
        prune = _best_price(samples, seed)
    elif not (math.isfinite(prune) and prune >= 0):
        raise BadSample(f"a leaf's price of {prune}; it has to be zero or more")
    return _fit(samples, prune, seed)


def held_out_accuracy(
    samples: Sequence[Sample],
    groups: Sequence[Hashable],
    *,
    folds: int = 5,
    fit: Callable[[Sequence[Sample]], PackingTree] = grow,
) -> float:
    """Return the accuracy (0 to 1) on samples whose group was not trained on.

    With the model's name as the group this is the accuracy on unseen models. Groups are assigned to the folds
    in turn, in the order in which they appear.

    Args:
        samples: All samples.
        groups: The group of each sample.
        folds: Number of divisions of the groups; each is left out once.
        fit: Trains a tree on samples.

    Raises BadSample if there are fewer than two folds, or fewer groups than folds.
    """
    names = list(dict.fromkeys(groups))
    if not 2 <= folds <= len(names):
        raise BadSample(f"{folds} folds of {len(names)} groups; want at least 2 folds and a group for each")
    fold_of = {name: number % folds for number, name in enumerate(names)}
    right = 0.0
    for fold in range(folds):
        inside = [s for s, g in zip(samples, groups, strict=True) if fold_of[g] != fold]
        outside = [s for s, g in zip(samples, groups, strict=True) if fold_of[g] == fold]
        right += accuracy(fit(inside), outside) * len(outside)
    return right / len(samples)


def _best_price(samples: Sequence[Sample], seed: int, folds: int = 5) -> float:
    x, y = _matrix(samples)
    path = _sklearn_tree().DecisionTreeClassifier(random_state=seed).cost_complexity_pruning_path(x, y)
    prices = sorted({max(0.0, float(a)) for a in path.ccp_alphas})
    order = np.random.default_rng(seed).permutation(len(samples))
    parts = [[samples[i] for i in order[f::folds]] for f in range(min(folds, len(samples)))]
    results: Mapping[float, list[float]] = {price: [] for price in prices}
    for number, part in enumerate(parts):
        rest = [s for other, p in enumerate(parts) if other != number for s in p]
        for price in prices:
            results[price].append(accuracy(_fit(rest, price, seed), part))
    means = {price: math.fsum(r) / len(r) for price, r in results.items()}
    best = max(prices, key=lambda price: means[price])
    error = float(np.std(results[best])) / math.sqrt(len(parts))
    return max(price for price in prices if means[price] >= means[best] - error)


def _fit(samples: Sequence[Sample], price: float, seed: int) -> PackingTree:
    x, y = _matrix(samples)
    model = _sklearn_tree().DecisionTreeClassifier(random_state=seed, ccp_alpha=price).fit(x, y)
    return PackingTree(_convert(model.tree_, 0, [int(c) for c in model.classes_]))


def _matrix(samples: Sequence[Sample]) -> tuple[Any, Any]:
    return np.array([u.features() for u, _ in samples]), np.array([int(s) for _, s in samples])


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


def _sklearn_tree() -> ModuleType:
    try:
        from sklearn import tree
    except ImportError:
        raise ExtraMissing("training the packing analyser", "scikit-learn") from None
    module: ModuleType = tree
    return module
