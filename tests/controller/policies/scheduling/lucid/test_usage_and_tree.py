import json
import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from controller.policies.scheduling.lucid.usage import (
    FEATURES,
    BadSample,
    Leaf,
    PackingTree,
    Size,
    Split,
    Usage,
    accuracy,
    size_of,
)

TREE = PackingTree(Split(0, 30.0, Leaf((9, 1, 0)), Split(2, 4000.0, Leaf((1, 6, 1)), Leaf((0, 0, 8)))))


def usage(gpu: float = 50, memory: float = 30, memory_mb: float = 3000, mixed: bool = False) -> Usage:
    return Usage(gpu, memory, memory_mb, mixed)


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
        Usage(*values)


def test_sizes_have_the_published_thresholds() -> None:
    assert [size_of(v) for v in (1.1, 0.95, 0.949, 0.85, 0.849)] == [
        Size.TINY,
        Size.TINY,
        Size.MEDIUM,
        Size.MEDIUM,
        Size.JUMBO,
    ]
    assert size_of(0.9, tiny=0.9, medium=0.5) is Size.TINY
    with pytest.raises(BadSample, match="a speed of 0"):
        size_of(0)
    with pytest.raises(BadSample, match=r"thresholds 0.9 and 0.8"):
        size_of(1, tiny=0.8, medium=0.9)


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


def test_importances_follow_the_impurity_removed() -> None:
    found = TREE.importances()
    assert sum(found.values()) == pytest.approx(1)
    assert found["memory utilisation in %"] == found["mixed precision"] == 0
    # by hand: Gini impurity times samples, before minus after
    root = 26 - (10**2 + 7**2 + 9**2) / 26
    below, above = 10 - (81 + 1) / 10, 16 - (1 + 36 + 81) / 16
    leaves = 8 - (1 + 36 + 1) / 8
    removed = root - below - above, above - leaves
    assert found["GPU utilisation in %"] == pytest.approx(removed[0] / sum(removed))
    assert PackingTree(Leaf((1, 0, 0))).importances() == dict.fromkeys(FEATURES, 0.0)


@settings(deadline=None)
@given(st.floats(0, 100), st.floats(0, 100), st.floats(0, 20000), st.booleans())
def test_a_stored_tree_says_the_same(gpu: float, memory: float, memory_mb: float, mixed: bool) -> None:
    again = PackingTree.from_dict(json.loads(json.dumps(TREE.to_dict())))
    assert again == TREE
    case = Usage(gpu, memory, memory_mb, mixed)
    assert again.explain(case) == TREE.explain(case)


@pytest.mark.parametrize(
    "data",
    [
        {},
        {"counts": [1, 2]},
        {"feature": 9, "threshold": 1, "below": {}, "above": {}},
        {"counts": ["a", 1, 2]},
    ],
)
def test_what_is_no_tree_is_refused(data: dict[str, object]) -> None:
    with pytest.raises(BadSample):
        PackingTree.from_dict(data)


def test_accuracy_counts_what_is_right() -> None:
    samples = [(usage(gpu=10), Size.TINY), (usage(gpu=10), Size.JUMBO)]
    assert accuracy(TREE, samples) == 0.5
    with pytest.raises(BadSample, match="no samples"):
        accuracy(TREE, [])


def test_the_drawing_shows_every_question_and_leaf() -> None:
    assert TREE.describe().splitlines() == [
        "GPU utilisation in % <= 30",
        "  Tiny (9, 1, 0)",
        "else",
        "  memory in MB <= 4000",
        "    Medium (1, 6, 1)",
        "  else",
        "    Jumbo (0, 0, 8)",
    ]
    assert TREE.leaves == 3
