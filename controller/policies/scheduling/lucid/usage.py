"""A job's GPU usage as the profiler measures it, and its class by the packing analyser (Lucid, 3.2, 3.5.1).

The packing analyser is a pruned decision tree, trained on measured pairs (`grow`). The tree is plain data, so
predictions and their explanations need no library.

Errors of Lucid's parts::

    SchedulingError
    └── LucidError
        └── BadSample  invalid measurements or training data, or too little of it
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Hashable, Iterable, Sequence
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
    x, y = _matrix(samples)
    model = _sklearn_tree().DecisionTreeClassifier(random_state=seed, ccp_alpha=prune).fit(x, y)
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
