"""Job names as numbers: similar names fall into one bucket (Lucid, 3.5.3).

Users submit a job repeatedly with small changes of its name. Edit distance measures how similar two names
are, and affinity propagation finds the buckets, whose number need not be known.
"""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from controller.policies.scheduling.errors import ExtraMissing
from controller.policies.scheduling.lucid.errors import BadSample


def levenshtein(a: str, b: str) -> int:
    """Return the number of letters to insert, delete or replace. O(len(a) · len(b)).

    >>> levenshtein("resnet50", "resnet18")
    2
    """
    if len(a) < len(b):
        a, b = b, a
    row = list(range(len(b) + 1))
    for i, letter in enumerate(a, 1):
        diagonal, row[0] = row[0], i
        for j, other in enumerate(b, 1):
            diagonal, row[j] = row[j], min(row[j] + 1, row[j - 1] + 1, diagonal + (letter != other))
    return row[-1]


def fastest_distance() -> Callable[[str, str], int]:
    """Return rapidfuzz's distance if it is installed, else `levenshtein`; they agree."""
    try:
        from rapidfuzz.distance import Levenshtein
    except ImportError:
        return levenshtein
    distance: Callable[[str, str], int] = Levenshtein.distance
    return distance


@dataclass(frozen=True, slots=True)
class NameBuckets:
    """Buckets of names, numbered by the exemplars in `exemplars`."""

    exemplars: tuple[str, ...]
    known: Mapping[str, int]

    def bucket(self, name: str, *, similar: float = 0.6) -> int:
        """Return a name's bucket: its own, or that of the nearest exemplar.

        -1 if no exemplar is as similar as `similar` (1 minus distance over the longer length): a new kind of
        job.
        """
        if name in self.known:
            return self.known[name]
        distance = fastest_distance()
        best, found = -1.0, -1
        for number, exemplar in enumerate(self.exemplars):
            alike = 1 - distance(name, exemplar) / max(1, len(name), len(exemplar))
            if alike > best:
                best, found = alike, number
        return found if best >= similar else -1


def bucket_names(
    names: Sequence[str], *, most_common: int = 100, damping: float = 0.9, seed: int = 0
) -> NameBuckets:
    """Put names into buckets.

    The most common names have their own buckets. The others are clustered among those with the same first
    letter, by affinity propagation on the negated distance. O(n²) within a letter; deterministic by seed.

    Args:
        names: The names, repeated as often as they occur.
        most_common: How many names get their own buckets.
        damping: Of affinity propagation, 0.5 to below 1.
        seed: Of affinity propagation.

    Raises BadSample for no names, ExtraMissing without scikit-learn if there is anything to cluster.
    """
    if not names or most_common < 0:
        raise BadSample(f"{len(names)} names, {most_common} with their own buckets; want at least 1 and 0")
    ranked = [name for name, _ in sorted(Counter(names).items(), key=lambda item: (-item[1], item[0]))]
    exemplars = ranked[:most_common]
    known = {name: number for number, name in enumerate(exemplars)}
    by_letter: dict[str, list[str]] = {}
    for name in ranked[most_common:]:
        by_letter.setdefault(name[:1], []).append(name)
    for group in by_letter.values():
        for exemplar, members in _clusters(group, damping, seed):
            for member in members:
                known[member] = len(exemplars)
            exemplars.append(exemplar)
    return NameBuckets(tuple(exemplars), known)


def _clusters(names: Sequence[str], damping: float, seed: int) -> list[tuple[str, list[str]]]:
    if len(names) == 1:
        return [(names[0], [names[0]])]
    try:
        from sklearn.cluster import AffinityPropagation
    except ImportError:
        raise ExtraMissing("clustering job names", "scikit-learn") from None
    distance = fastest_distance()
    likeness = np.array([[-float(distance(a, b)) for b in names] for a in names])
    off_diagonal = likeness[~np.eye(len(names), dtype=bool)]
    if off_diagonal.min() == off_diagonal.max():  # nothing tells them apart: one bucket
        return [(names[0], list(names))]
    model = AffinityPropagation(
        affinity="precomputed", damping=damping, max_iter=2000, convergence_iter=50, random_state=seed
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it says in its labels too that it did not converge
        labels = model.fit_predict(likeness)
    if min(labels) < 0:  # it did not settle: every name for itself
        return [(name, [name]) for name in names]
    centers = [names[i] for i in model.cluster_centers_indices_]
    return [
        (center, [name for name, label in zip(names, labels, strict=True) if label == number])
        for number, center in enumerate(centers)
    ]
