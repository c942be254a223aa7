"""Interference features of jobs, and the random forests that predict interference from them (the patent).

To measure a job's features, it runs alone, and then beside each of n reference jobs. Its *sensitivity* is its
speed beside each reference job. Its *impact* is the speed of each reference job beside it. All speeds are
relative to running alone, so they do not depend on the unit of throughput. The patent does not say which jobs
are reference jobs, nor where they run beside a job of several GPUs. Here reference jobs use one of the job's
GPUs, and are chosen to differ from each other (`choose`).

A `Forest` consists of arrays. Training needs scikit-learn; predicting needs only numpy, and is fast. There
are four forests (the patent, claim 7):

========  ===================================  ======================================  ===============
model     jobs that share GPUs                 inputs                                  predicts
========  ===================================  ======================================  ===============
SGCM      two with one GPU each                features of both                        both speeds
DTCM      two with n GPUs each, n above 1      features of both                        both speeds
DTSPM     a large one and small ones in it     the large one's features, the mean of   the large one's
                                               the small ones' features, numbers of
                                               the large one's and of shared GPUs
SGSPM     a small one in a large one           features of the large and small one     the small one's
========  ===================================  ======================================  ===============

The patent's small jobs have one GPU each. Here small jobs may have several GPUs, but fewer than the large
job. A small job with g GPUs counts g times in the mean and in the number of shared GPUs. If all small jobs
have one GPU, this is the patent's rule.
"""

from __future__ import annotations

import math
import random
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any

import numpy as np
from numpy.typing import NDArray

from controller.policies.scheduling.errors import needed
from controller.policies.scheduling.sharing.pairs import (
    BadMeasurement,
    BadTraining,
    InterferenceModel,
    Load,
)

Features = tuple[float, ...]
"""A job's n sensitivities followed by its n impacts, for n reference jobs."""


@dataclass(frozen=True, slots=True)
class CoRunProfile:
    """Features of a job from n co-runs: speeds relative to running alone, one for each reference job."""

    sensitivity: tuple[float, ...]
    impact: tuple[float, ...]

    @property
    def features(self) -> Features:
        """Sensitivity and impact as one vector."""
        return self.sensitivity + self.impact


class CoRunProfiler:
    """Profiler of jobs by measurements of `measured`; jobs of one kind and size are profiled once."""

    def __init__(self, measured: InterferenceModel, references: Sequence[str]) -> None:
        self.references = tuple(references)
        self.measured = measured
        self._profiles: dict[Load, CoRunProfile] = {}

    def profile(self, load: Load) -> CoRunProfile:
        """Return the profile of `load`."""
        if load not in self._profiles:
            references = [Load(kind, 1) for kind in self.references]
            self._profiles[load] = CoRunProfile(
                tuple(self.measured.speed(load, (ref,)) for ref in references),
                tuple(self.measured.speed(ref, (load,)) for ref in references),
            )
        return self._profiles[load]


def choose(measured: InterferenceModel, count: int, kinds: Sequence[str] | None = None) -> tuple[str, ...]:
    """Return `count` of `kinds` (all by default) as reference jobs, as different from each other as possible.

    The first reference job is the one beside which other jobs are slowest. Each further reference job is the
    one farthest from the jobs chosen so far (Gonzalez' 2-approximation of the k-centre problem). The distance
    of two jobs is the distance of their vectors: a job's vector has the job's speeds beside jobs of all
    kinds, and the speeds of jobs of all kinds beside this job. Only jobs that fit into memory beside most
    other jobs are considered, because a job that does not fit measures nothing. O(kinds² + count kinds²).
    Raises BadMeasurement if `count` is out of range.
    """
    names = list(measured.kinds if kinds is None else kinds)
    if not 1 <= count <= len(names):
        raise BadMeasurement(f"{count} reference jobs of {len(names)} kinds; 1 to {len(names)} are possible")
    loads = [Load(name, 1) for name in names]
    vectors = [
        [measured.speed(load, (o,)) for o in loads] + [measured.speed(o, (load,)) for o in loads]
        for load in loads
    ]
    misfits = [vector.count(0.0) for vector in vectors]
    enough = sorted(misfits)[max(count, len(names) // 2) - 1]
    fitting = [i for i in range(len(names)) if misfits[i] <= enough]
    chosen = [min(fitting, key=lambda i: math.fsum(vectors[i][len(names) :]))]
    while len(chosen) < count:
        rest = [i for i in fitting if i not in chosen]
        chosen.append(max(rest, key=lambda i: min(math.dist(vectors[i], vectors[c]) for c in chosen)))
    return tuple(names[i] for i in chosen)


Rows = Sequence[Sequence[float]]

LEAF = 2
"""Minimum number of samples in a leaf of a tree."""


@dataclass(frozen=True, eq=False, slots=True)
class Forest:
    """A random forest, as arrays over the nodes of all trees, one tree after another.

    A leaf is its own child, so that all trees can be descended with the same number of steps.

    Attributes:
        feature: The input that a node compares, by node.
        threshold: The largest value with which the descent continues at `below`, by node.
        below: The next node for values up to the threshold, by node.
        above: The next node for larger values, by node.
        value: Predictions of leaves, shape (nodes, outputs).
        roots: Each tree's first node.
        depth: Depth of the deepest tree.
    """

    feature: NDArray[np.intp]
    threshold: NDArray[np.float64]
    below: NDArray[np.intp]
    above: NDArray[np.intp]
    value: NDArray[np.float64]
    roots: NDArray[np.intp]
    depth: int

    def predict(self, rows: Rows) -> NDArray[np.float64]:
        """Return the mean of the trees' predictions, shape (rows, outputs). O(rows trees depth)."""
        x = np.asarray(rows, dtype=np.float32)  # thresholds were chosen between float32 values
        lines = np.arange(len(x))[:, None]
        node = np.broadcast_to(self.roots, (len(x), len(self.roots)))
        for _ in range(self.depth):
            below = x[lines, self.feature[node]] <= self.threshold[node]
            node = np.where(below, self.below[node], self.above[node])
        mean: NDArray[np.float64] = self.value[node].mean(axis=1)
        return mean


def grow(x: Rows, y: Rows, *, trees: int = 60, seed: int = 0) -> Forest:
    """Train a random forest. Deterministic by seed.

    Args:
        x: Inputs, shape (samples, inputs).
        y: Outputs to predict, shape (samples, outputs).
        trees: Number of trees.
        seed: Seed of training.

    Raises ExtraMissing without scikit-learn.
    """
    ensemble = needed("sklearn.ensemble", "training forests", "scikit-learn")
    model = ensemble.RandomForestRegressor(
        n_estimators=trees, min_samples_leaf=LEAF, max_features=0.5, random_state=seed
    ).fit(np.asarray(x), np.asarray(y) if len(y[0]) > 1 else np.asarray(y)[:, 0])
    grown: list[Any] = [estimator.tree_ for estimator in model.estimators_]
    roots = np.cumsum([0] + [tree.node_count for tree in grown[:-1]])
    parts = [_shift(tree, int(root)) for tree, root in zip(grown, roots, strict=True)]
    feature, threshold, below, above, value = (np.concatenate(part) for part in zip(*parts, strict=True))
    depth = max(tree.max_depth for tree in grown)
    return Forest(feature, threshold, below, above, value, roots, depth)


def _shift(tree: Any, first: int) -> tuple[NDArray[Any], ...]:
    """Return a tree's arrays, with nodes numbered from `first` on."""
    own = np.arange(first, first + tree.node_count)
    leaf = tree.children_left < 0
    return (
        np.where(leaf, 0, tree.feature).astype(np.intp),
        tree.threshold,
        np.where(leaf, own, tree.children_left + first),
        np.where(leaf, own, tree.children_right + first),
        tree.value[:, :, 0],
    )


SIZES = (2, 4, 8)
"""Default GPU counts of the multi-GPU jobs on which forests are trained."""

MOST_DRAWS = 50
"""Maximum number of draws for each wanted group. A group that does not fit into memory is drawn again."""


class Model(Enum):
    """One of the four forests."""

    SGCM = "two jobs of one GPU each"
    DTCM = "two jobs of several GPUs, equally many"
    DTSPM = "large beside small"
    SGSPM = "small beside large"


@dataclass(frozen=True, slots=True)
class Sample:
    """A job, the jobs beside it, and the speeds to predict: the job's and, for equal sizes, the other's."""

    load: Load
    beside: tuple[Load, ...]
    speeds: tuple[float, ...]


def model_for(load: Load, beside: Sequence[Load]) -> Model:
    """Return the forest that predicts the speed of `load`.

    Raises BadMeasurement if none does: no job is beside it, or a GPU would have more than two jobs.
    """
    sizes = [other.gpus for other in beside]
    if len(sizes) == 1 and sizes[0] == load.gpus:
        return Model.SGCM if load.gpus == 1 else Model.DTCM
    if len(sizes) == 1 and sizes[0] > load.gpus:
        return Model.SGSPM
    if sizes and max(sizes) < load.gpus and sum(sizes) <= load.gpus:
        return Model.DTSPM
    raise BadMeasurement(
        f"no model for {load} beside {list(beside)}; want beside it one job of the same or a larger size, or"
        " smaller jobs that together have at most its number of GPUs"
    )


def draw(
    interference: InterferenceModel,
    model: Model,
    count: int,
    *,
    kinds: Sequence[str],
    sizes: Sequence[int] = SIZES,
    fresh: Collection[str] = (),
    seed: int = 0,
) -> list[Sample]:
    """Draw random groups of jobs, with their speeds, of the form for which `model` makes predictions.

    Args:
        interference: Source of the speeds.
        model: Determines the form of the groups.
        count: Number of groups to return, all of which fit into memory.
        kinds: Kinds of jobs to draw from.
        sizes: Numbers of GPUs to draw from, for jobs with several GPUs.
        fresh: Kinds of which each group must have at least one job; (): any.
        seed: Seed of the draws.

    Raises BadTraining if there is no kind to draw from, or too few groups fit into memory.
    """
    sizes = sorted(set(sizes))
    if not kinds or count < 1:
        raise BadTraining(f"{count} samples of {len(kinds)} kinds; at least 1 of both is needed")
    rng = random.Random(f"{seed} {model.name}")
    must = sorted(fresh)
    samples: list[Sample] = []
    for _ in range(MOST_DRAWS * count):
        if len(samples) == count:
            return samples
        load, beside = _groups(model, rng, kinds, sizes)
        if must:
            new = rng.randrange(1 + len(beside))
            kind = rng.choice(must)
            if new == 0:
                load = load._replace(kind=kind)
            else:
                beside[new - 1] = beside[new - 1]._replace(kind=kind)
        speeds = [interference.speed(load, beside)]
        if model in (Model.SGCM, Model.DTCM):
            speeds.append(interference.speed(beside[0], (load,)))
        if min(speeds) > 0:
            samples.append(Sample(load, tuple(beside), tuple(speeds)))
    raise BadTraining(f"{len(samples)} of {MOST_DRAWS * count} groups drawn fit into memory; want {count}")


def _groups(
    model: Model, rng: random.Random, kinds: Sequence[str], sizes: Sequence[int]
) -> tuple[Load, list[Load]]:
    def one(gpus: int) -> Load:
        return Load(rng.choice(kinds), gpus)

    if model is Model.SGCM:
        return one(1), [one(1)]
    size = rng.choice(sizes)
    if model is Model.DTCM:
        return one(size), [one(size)]
    smaller = [1, *(other for other in sizes if other < size)]
    if model is Model.SGSPM:
        return one(rng.choice(smaller)), [one(size)]
    shared = rng.randint(1, size)
    guests: list[Load] = []
    while shared:
        gpus = rng.choice([other for other in smaller if other <= shared])
        guests.append(one(gpus))
        shared -= gpus
    return one(size), guests


class Forests:
    """The four forests as an `InterferenceModel` for a policy. Predictions are cached.

    Speeds observed while jobs ran take precedence over the forests (the patent, claim 3). Whether jobs fit
    into memory together is known, not predicted: a job's profile has its memory.
    """

    def __init__(self, profiler: CoRunProfiler, forests: Mapping[Model, Forest]) -> None:
        self._profiler = profiler
        self.kinds = profiler.measured.kinds
        """All kinds that can be profiled, whether they were trained on or not."""
        self._forests = dict(forests)
        self._known: dict[tuple[Load, tuple[Load, ...]], float] = {}

    def speed(self, load: Load, beside: Sequence[Load]) -> float:
        """Return the predicted speed; 1 if `beside` is empty. Raises BadMeasurement."""
        if not beside:
            return 1.0
        key = load, tuple(sorted(beside)) if len(beside) > 1 else tuple(beside)
        found = self._known.get(key)
        if found is None:
            found = self._known[key] = self._predict(*key)
        return found

    def learn(self, load: Load, beside: Sequence[Load], speed: float) -> None:
        """Record the real speed of `load` beside these jobs."""
        self._known[load, tuple(sorted(beside))] = speed

    def fresh(self) -> Forests:
        """Return the same forests without observed speeds."""
        return Forests(self._profiler, self._forests)

    def _predict(self, load: Load, beside: tuple[Load, ...]) -> float:
        model = model_for(load, beside)
        if any(self._profiler.measured.speed(load, (other,)) == 0 for other in beside):
            return 0.0
        forest = self._forests[model]
        rows = [_inputs(self._profiler, model, load, beside)]
        if model in (Model.DTSPM, Model.SGSPM):
            return float(forest.predict(rows)[0, 0])
        # predictions for both orders are averaged: a forest is not symmetric by itself
        rows.append(_inputs(self._profiler, model, beside[0], (load,)))
        first, second = forest.predict(rows)
        return float(first[0] + second[1]) / 2.0


def train(
    profiler: CoRunProfiler,
    *,
    kinds: Sequence[str] | None = None,
    sizes: Sequence[int] = SIZES,
    samples: int = 1500,
    trees: int = 60,
    seed: int = 0,
) -> Forests:
    """Measure random groups of jobs for each model, and train the forests. Deterministic by seed.

    Args:
        profiler: Profiles and measures jobs.
        kinds: Kinds of jobs to train on; None: all.
        sizes: Numbers of GPUs of jobs of several GPUs; empty: only SGCM is trained.
        samples: Number of groups per model.
        trees: Number of trees of a forest.
        seed: Seed of draws and training.

    Raises BadTraining for an empty training set or options out of range, ExtraMissing without scikit-learn.
    """
    names = sorted(profiler.measured.kinds if kinds is None else kinds)
    forests = {}
    for model in Model if sizes else (Model.SGCM,):
        drawn = draw(profiler.measured, model, samples, kinds=names, sizes=sizes, seed=seed)
        forests[model] = fit(profiler, model, drawn, trees=trees, seed=seed)
    return Forests(profiler, forests)


def fit(
    profiler: CoRunProfiler,
    model: Model,
    samples: Sequence[Sample],
    *,
    trees: int = 60,
    seed: int = 0,
) -> Forest:
    """Train one forest on measured samples.

    Args:
        profiler: Profiles the samples' jobs.
        model: The forest to train.
        samples: Groups of jobs with their speeds.
        trees: Number of trees.
        seed: Seed of training.

    Raises ExtraMissing without scikit-learn.
    """
    inputs, outputs = [], []
    for sample in samples:
        inputs.append(_inputs(profiler, model, sample.load, sample.beside))
        outputs.append(sample.speeds)
        if len(sample.speeds) == 2:  # a pair is a sample in both orders
            inputs.append(_inputs(profiler, model, sample.beside[0], (sample.load,)))
            outputs.append(sample.speeds[::-1])
    return grow(inputs, outputs, trees=trees, seed=seed)


def _inputs(profiler: CoRunProfiler, model: Model, load: Load, beside: Sequence[Load]) -> Features:
    mine = profiler.profile(load).features
    if model is not Model.DTSPM:
        theirs = profiler.profile(beside[0]).features
        return theirs + mine if model is Model.SGSPM else mine + theirs
    shared = sum(other.gpus for other in beside)
    weighted = [(other.gpus, profiler.profile(other).features) for other in beside]
    mean = tuple(
        math.fsum(gpus * features[number] for gpus, features in weighted) / shared
        for number in range(len(mine))
    )
    return (*mine, *mean, load.gpus, shared)
