"""The packing analyser: a pruned decision tree from measured pairs (Lucid, 3.5.1)."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from controller.policies.scheduling.errors import ExtraMissing
from controller.policies.scheduling.lucid.errors import BadSample
from controller.policies.scheduling.lucid.tree import Leaf, PackingTree, Split, Tree, accuracy
from controller.policies.scheduling.lucid.usage import Size, Usage, size_of

if TYPE_CHECKING:
    from types import ModuleType

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
