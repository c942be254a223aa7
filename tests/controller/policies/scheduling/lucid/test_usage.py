"""The packing tree that schedules has not seen what it schedules."""

from __future__ import annotations

import math
import subprocess
import sys

import pytest

from controller.policies.family import SimulationConfig
from controller.policies.scheduling.lucid.estimates import bucket_names
from controller.policies.scheduling.lucid.family import make_pairs, make_usages, measurements, packing_tree
from controller.policies.scheduling.lucid.usage import (
    BadSample,
    GpuUsage,
    Leaf,
    PackingTree,
    Size,
    Split,
    grow,
    size_of,
    sizes_from_pairs,
)
from controller.vocabulary import Cluster
from tests.controller.policies.scheduling.lucid.made_up import accuracy, held_out_accuracy
from tests.extras import needs

TREE = PackingTree(Split(0, 30.0, Leaf((9, 1, 0)), Split(2, 4000.0, Leaf((1, 6, 1)), Leaf((0, 0, 8)))))


def usage(gpu: float = 50, memory: float = 30, memory_mb: float = 3000, mixed: bool = False) -> GpuUsage:
    return GpuUsage(gpu, memory, memory_mb, mixed)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ((-1, 0, 0), "gpu_util is -1; it can be 0 to 100"),
        ((0, 101, 0), "memory_util is 101; it can be 0 to 100"),
        ((0, 0, -5), "memory_mb is -5; it can be 0 or more"),
        ((math.nan, 0, 0), "gpu_util is nan"),
        ((0, 0, math.inf), "memory_mb is inf"),
    ],
)
def test_impossible_usage_is_refused(values: tuple[float, float, float], message: str) -> None:
    with pytest.raises(BadSample, match=message):
        GpuUsage(*values)


def test_sizes_have_the_published_thresholds() -> None:
    assert [size_of(v) for v in (1.1, 0.95, 0.949, 0.85, 0.849)] == [
        Size.TINY,
        Size.TINY,
        Size.MEDIUM,
        Size.MEDIUM,
        Size.JUMBO,
    ]


def test_a_prediction_is_the_majority_at_the_end_of_its_path() -> None:
    assert TREE.predict(usage(gpu=30)) is Size.TINY
    assert TREE.predict(usage(gpu=31, memory_mb=4000)) is Size.MEDIUM
    assert TREE.predict(usage(gpu=31, memory_mb=4001)) is Size.JUMBO
    assert Leaf((2, 2, 0)).size is Size.MEDIUM  # the safe side


def test_an_explanation_is_the_path_with_the_values() -> None:
    assert TREE.explain(usage(gpu=80, memory_mb=9000)) == [
        "GPU utilisation in % > 30 (it is 80)",
        "memory in MB > 4000 (it is 9000)",
        "Jumbo: 100% of 8 samples like this one",
    ]


def test_leaves_are_counted() -> None:
    assert TREE.leaves == 3


learning = needs("sklearn")


def samples(seed: int = 0) -> tuple[list[tuple[GpuUsage, Size]], list[str]]:
    usages = make_usages(24, seed=seed)
    sizes = sizes_from_pairs(make_pairs(usages, seed=seed))
    return [(usages[c], sizes[c]) for c in usages], [c.model for c in usages]


@learning
def test_a_configuration_is_classed_by_what_it_does_to_others() -> None:
    pairs = [("quiet", "loud", 0.6, 1.0), ("quiet", "quiet", 0.99, 0.97), ("loud", "loud", 0.7, 0.7)]
    assert sizes_from_pairs(pairs) == {"quiet": Size.TINY, "loud": Size.JUMBO}


@learning
def test_all_classes_can_be_learned_and_told_on_unseen_models() -> None:
    cases, models = samples()
    assert {size for _, size in cases} == set(Size)
    assert accuracy(grow(cases), cases) > 0.8
    assert held_out_accuracy(cases, models) > 0.7
    most_common = max(sum(s is size for _, s in cases) for size in Size) / len(cases)
    assert held_out_accuracy(cases, models) > most_common


@learning
def test_pruning_makes_smaller_trees_and_no_price_is_too_high() -> None:
    cases, _ = samples()
    leaves = [grow(cases, prune=price).leaves for price in (0.0, 0.005, 0.02, 1.0)]
    assert leaves == sorted(leaves, reverse=True)
    assert leaves[0] > leaves[2] > leaves[3] == 1


@learning
def test_too_little_to_learn_from_is_refused() -> None:
    cases, _ = samples()
    with pytest.raises(BadSample, match="1 samples to train on"):
        grow(cases[:1])


@learning
def test_without_sklearn_a_tree_still_works() -> None:
    code = """
import sys
for name in ("sklearn", "interpret", "rapidfuzz"):
    sys.modules[name] = None
from controller.policies.scheduling import ExtraMissing
from controller.policies.scheduling.lucid.usage import Leaf, PackingTree
from controller.policies.scheduling.lucid.usage import Size
from controller.policies.scheduling.lucid.usage import GpuUsage
from controller.policies.scheduling.lucid.usage import grow
from controller.policies.scheduling.lucid.estimates import train_durations
from tests.controller.policies.scheduling.lucid.made_up import make_history
usage = GpuUsage(10, 10, 1000)
assert PackingTree(Leaf((3, 1, 0))).predict(usage) is Size.TINY
for attempt in (lambda: grow([(usage, Size.TINY)] * 5), lambda: train_durations(*make_history(30))):
    try:
        attempt()
    except ExtraMissing as error:
        print(error)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == [
        "training the packing analyser needs scikit-learn: pip install 'ina[schedulers]'",
        "training an additive model needs interpret-core: pip install 'ina[schedulers]'",
    ]


CONFIG = SimulationConfig(Cluster.uniform(1, 8))


def test_a_job_is_classed_by_a_tree_that_never_saw_its_configuration() -> None:
    usages, pairs = measurements(CONFIG)
    sizes = sizes_from_pairs(pairs)
    for mine in list(usages)[:3]:
        others = [(usages[c], sizes[c]) for c in usages if c in sizes and usages[c] != usages[mine]]
        assert packing_tree(CONFIG, usages[mine]) == grow(others, prune=0.02, seed=CONFIG.seed)
    assert any(packing_tree(CONFIG, usage) != packing_tree(CONFIG) for usage in usages.values())


def test_similar_names_share_a_bucket() -> None:
    pytest.importorskip("sklearn")
    names = [f"resnet50-imagenet-run{i}" for i in range(6)] + [f"rl-ppo-lunar{i}" for i in range(6)]
    buckets = bucket_names(names, most_common=0)
    assert len({buckets.bucket(n) for n in names[:6]}) == 1
    assert len({buckets.bucket(n) for n in names[6:]}) == 1
    assert buckets.bucket(names[0]) != buckets.bucket(names[6])


def test_an_unseen_name_joins_the_nearest_or_nobody() -> None:
    pytest.importorskip("sklearn")
    buckets = bucket_names([f"resnet50-v{i}" for i in range(5)] + ["bert-squad"], most_common=0)
    assert buckets.bucket("resnet50-v77") == buckets.bucket("resnet50-v1")
    assert buckets.bucket("zzz") == -1


def test_common_names_stand_for_themselves_and_need_no_extra() -> None:
    buckets = bucket_names(["b", "a", "b", "c"], most_common=3)
    assert buckets.exemplars == ("b", "a", "c")
    assert [buckets.bucket(n) for n in "abc"] == [1, 0, 2]


def test_names_that_nothing_tells_apart_are_one_bucket() -> None:
    pytest.importorskip("sklearn")
    buckets = bucket_names(["ab", "ac", "ad"], most_common=0)
    assert {buckets.bucket(n) for n in ("ab", "ac", "ad")} == {0}
