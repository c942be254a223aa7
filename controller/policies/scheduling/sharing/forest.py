"""A random forest as plain arrays: training needs scikit-learn; predicting needs only numpy, and is fast."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from controller.policies.scheduling.errors import ExtraMissing
from controller.policies.scheduling.sharing.errors import BadTraining

if TYPE_CHECKING:
    from types import ModuleType

    from numpy.typing import NDArray

Rows = Sequence[Sequence[float]]


@dataclass(frozen=True, eq=False, slots=True)
class Forest:
    """All trees' nodes one after another. A leaf is its own child, so that all trees are walked in step.

    Attributes:
        feature: The input that a node compares, by node.
        threshold: The largest value with which the walk continues at `below`, by node.
        below: The next node then, by node.
        above: The next node otherwise, by node.
        value: Predictions of leaves, nodes x outputs.
        roots: Each tree's first node.
        depth: Depth of the deepest tree.
        inputs: Number of inputs.
    """

    feature: NDArray[np.intp]
    threshold: NDArray[np.float64]
    below: NDArray[np.intp]
    above: NDArray[np.intp]
    value: NDArray[np.float64]
    roots: NDArray[np.intp]
    depth: int
    inputs: int

    def predict(self, rows: Rows) -> NDArray[np.float64]:
        """Return predictions, rows x outputs: the mean of the trees'. O(rows trees depth).

        Raises BadTraining if the rows do not have the length that it was trained on.
        """
        x = np.asarray(rows, dtype=np.float32)  # thresholds were chosen between float32 values
        if x.ndim != 2 or x.shape[1] != self.inputs:
            raise BadTraining(f"rows of shape {x.shape}; the forest was trained on {self.inputs} inputs")
        lines = np.arange(len(x))[:, None]
        node = np.broadcast_to(self.roots, (len(x), len(self.roots)))
        for _ in range(self.depth):
            below = x[lines, self.feature[node]] <= self.threshold[node]
            node = np.where(below, self.below[node], self.above[node])
        mean: NDArray[np.float64] = self.value[node].mean(axis=1)
        return mean


def grow(x: Rows, y: Rows, *, trees: int = 60, leaf: int = 2, seed: int = 0) -> Forest:
    """Train a random forest. Deterministic by seed.

    Args:
        x: Inputs, samples x inputs.
        y: Outputs to predict, samples x outputs.
        trees: Number of trees.
        leaf: Fewest samples in a leaf.
        seed: Of training.

    Raises BadTraining for an empty training set, rows that do not match or options out of range; ExtraMissing
    without scikit-learn.
    """
    if not len(x):
        raise BadTraining("an empty training set; at least 1 sample is needed")
    if len(x) != len(y):
        raise BadTraining(f"{len(x)} inputs and {len(y)} outputs to train on; want equal numbers")
    if trees < 1 or leaf < 1:
        raise BadTraining(f"{trees} trees with leaves of {leaf}; both have to be at least 1")
    model = (
        _sklearn()
        .RandomForestRegressor(n_estimators=trees, min_samples_leaf=leaf, max_features=0.5, random_state=seed)
        .fit(np.asarray(x), np.asarray(y) if len(y[0]) > 1 else np.asarray(y)[:, 0])
    )
    grown: list[Any] = [estimator.tree_ for estimator in model.estimators_]
    roots = np.cumsum([0] + [tree.node_count for tree in grown[:-1]])
    parts = [_shift(tree, int(root)) for tree, root in zip(grown, roots, strict=True)]
    feature, threshold, below, above, value = (np.concatenate(part) for part in zip(*parts, strict=True))
    depth = max(tree.max_depth for tree in grown)
    return Forest(feature, threshold, below, above, value, roots, depth, len(x[0]))


def _shift(tree: Any, first: int) -> tuple[NDArray[Any], ...]:
    """Return a tree's arrays with nodes that count from `first` on."""
    own = np.arange(first, first + tree.node_count)
    leaf = tree.children_left < 0
    return (
        np.where(leaf, 0, tree.feature).astype(np.intp),
        tree.threshold,
        np.where(leaf, own, tree.children_left + first),
        np.where(leaf, own, tree.children_right + first),
        tree.value[:, :, 0],
    )


def _sklearn() -> ModuleType:
    try:
        from sklearn import ensemble
    except ImportError:
        raise ExtraMissing("training forests", "scikit-learn") from None
    module: ModuleType = ensemble
    return module
