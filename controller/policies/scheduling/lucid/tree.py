"""A decision tree as plain data, which needs no library to predict and to explain itself."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from controller.policies.scheduling.lucid.errors import BadSample
from controller.policies.scheduling.lucid.usage import FEATURES, Size, Usage


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
