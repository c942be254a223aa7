import subprocess
import sys

import pytest

from controller.policies.scheduling.lucid.measured import make_pairs, make_usages
from controller.policies.scheduling.lucid.usage import (
    BadSample,
    Size,
    Usage,
    accuracy,
    grow,
    held_out_accuracy,
    sizes_from_pairs,
)
from tests.extras import needs

pytestmark = needs("sklearn")


def samples(seed: int = 0) -> tuple[list[tuple[Usage, Size]], list[str]]:
    usages = make_usages(24, seed=seed)
    sizes = sizes_from_pairs(make_pairs(usages, seed=seed))
    return [(usages[c], sizes[c]) for c in usages], [c.model for c in usages]


def test_a_configuration_is_classed_by_what_it_does_to_others() -> None:
    pairs = [("quiet", "loud", 0.6, 1.0), ("quiet", "quiet", 0.99, 0.97), ("loud", "loud", 0.7, 0.7)]
    assert sizes_from_pairs(pairs) == {"quiet": Size.TINY, "loud": Size.JUMBO}
    with pytest.raises(BadSample, match="speeds 0 and 1 of a and b"):
        sizes_from_pairs([("a", "b", 0, 1)])


def test_all_classes_can_be_learned_and_told_on_unseen_models() -> None:
    cases, models = samples()
    assert {size for _, size in cases} == set(Size)
    assert accuracy(grow(cases), cases) > 0.8
    assert held_out_accuracy(cases, models) > 0.7
    most_common = max(sum(s is size for _, s in cases) for size in Size) / len(cases)
    assert held_out_accuracy(cases, models) > most_common


def test_pruning_makes_smaller_trees_and_no_price_is_too_high() -> None:
    cases, _ = samples()
    leaves = [grow(cases, prune=price).leaves for price in (0.0, 0.005, 0.02, 1.0)]
    assert leaves == sorted(leaves, reverse=True)
    assert leaves[0] > leaves[2] > leaves[3] == 1
    assert grow(cases).leaves < leaves[0]


def test_the_same_samples_and_seed_give_the_same_tree() -> None:
    cases, _ = samples()
    assert grow(cases, seed=3) == grow(cases, seed=3)


def test_held_out_accuracy_never_trains_on_the_group_that_it_asks() -> None:
    cases, models = samples()
    seen: list[set[Usage]] = []

    def fit(inside):
        seen.append({usage for usage, _ in inside})
        return grow(inside, prune=0.01)

    held_out_accuracy(cases, models, folds=4, fit=fit)
    assert len(seen) == 4
    for inside in seen:
        models_inside = {m for (usage, _), m in zip(cases, models, strict=True) if usage in inside}
        models_outside = {m for (usage, _), m in zip(cases, models, strict=True) if usage not in inside}
        assert not models_inside & models_outside


def test_too_little_to_learn_from_is_refused() -> None:
    cases, _ = samples()
    with pytest.raises(BadSample, match="1 samples to train on"):
        grow(cases[:1])
    with pytest.raises(BadSample, match="a leaf's price of -1"):
        grow(cases, prune=-1)
    with pytest.raises(BadSample, match="5 folds of 1 groups"):
        held_out_accuracy(cases, ["one"] * len(cases))


def test_without_sklearn_a_stored_tree_still_works() -> None:
    code = """
import sys
for name in ("sklearn", "interpret", "rapidfuzz"):
    sys.modules[name] = None
from controller.policies.scheduling import ExtraMissing
from controller.policies.scheduling.lucid.usage import PackingTree
from controller.policies.scheduling.lucid.usage import Size
from controller.policies.scheduling.lucid.usage import Usage
from controller.policies.scheduling.lucid.usage import grow
from controller.policies.scheduling.lucid.estimates import train_durations
from tests.controller.policies.scheduling.lucid.made_up import make_history
usage = Usage(10, 10, 1000)
assert PackingTree.from_dict({"counts": [3, 1, 0]}).predict(usage) is Size.TINY
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
