from __future__ import annotations

import copy
import gc
import itertools
import pickle
import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from controller.policies.grouping.efficiency import best
from controller.policies.grouping.worth import Item, Rounds, group_by_worth
from tests import effort
from tests.twins import worth as twin


class Case:
    """Random jobs of a few kinds; rounds as they interleave."""

    def __init__(self, seed: int, jobs: int, sizes: Sequence[int] = (1,), members: int = 4) -> None:
        rng = random.Random(seed)
        self.stages = [tuple(rng.random() for _ in range(4)) for _ in range(5)]
        self.asked: list[tuple[int, ...]] = []
        kinds = [rng.randrange(5) for _ in range(jobs)]
        self.items = [
            Item(kind, rng.choice(sizes), sum(self.stages[kind]), rng.uniform(0.1, 3)) for kind in kinds
        ]
        self.rounds = Rounds(self.length_s, members)

    def length_s(self, kinds: tuple[int, ...]) -> float:
        self.asked.append(kinds)
        return best([self.stages[kind] for kind in kinds]).round_s

    def worth(self, groups: Sequence[Sequence[int]]) -> float:
        return sum(
            sum(self.items[job].weight * self.items[job].alone_s for job in group)
            / best([self.stages[self.items[job].kind] for job in group]).round_s
            for group in groups
        )


def partitions(jobs: Sequence[int], groups: int) -> Iterator[list[list[int]]]:
    for labels in itertools.product(range(-1, groups), repeat=len(jobs)):
        found = [
            [job for job, label in zip(jobs, labels, strict=True) if label == group]
            for group in range(groups)
        ]
        yield [group for group in found if group]


@given(st.integers(0, 10**6), st.integers(1, 30), st.integers(1, 20), st.integers(1, 4))
def test_groups_fit_and_nobody_is_in_two(seed: int, jobs: int, gpus: int, members: int) -> None:
    case = Case(seed, jobs, (1, 2, 4), members)
    groups = group_by_worth(case.items, case.rounds, gpus)
    inside = [job for group in groups for job in group]
    assert len(inside) == len({*inside})
    assert sum(case.items[group[0]].gpus for group in groups) <= gpus
    for group in groups:
        assert len({case.items[job].gpus for job in group}) == 1
        assert len(group) <= members
    assert len(case.asked) == len({*case.asked})  # no round is computed twice
    plain = group_by_worth(case.items, case.rounds, gpus, improve=False)
    assert case.worth(groups) >= case.worth(plain) * (1 - 1e-9)


@settings(deadline=None, max_examples=effort.cases(200))
@given(
    st.integers(0, 10**6),
    st.integers(1, 60),
    st.integers(0, 24),
    st.integers(1, 4),
    st.booleans(),
    st.booleans(),
)
def test_groups_are_those_of_the_twin(
    seed: int, jobs: int, gpus: int, members: int, improve: bool, alike: bool
) -> None:
    case, other = (Case(seed, jobs, (1, 2, 4), members) for _ in range(2))
    items = [replace(item, weight=1.0) for item in case.items] if alike else case.items
    theirs = twin.Rounds(other.length_s, members)
    for count in (jobs, jobs // 2):  # the second time most lengths are known
        some = items[:count]
        found = group_by_worth(some, case.rounds, gpus, improve=improve)
        assert found == [*map(tuple, twin.group_by_worth(some, theirs, gpus, improve=improve))]
        assert len(case.rounds) == len(theirs)


def test_many_more_lengths_than_are_asked_for_at_a_time() -> None:
    rng = random.Random(2)
    stages = [tuple(rng.random() for _ in range(4)) for _ in range(150)]
    items = [Item(kind, 1, sum(stages[kind]), rng.uniform(1, 2)) for kind in range(150)]

    def length_s(kinds: tuple[int, ...]) -> float:
        return best([stages[kind] for kind in kinds]).round_s

    mine, theirs = Rounds(length_s, 4), twin.Rounds(length_s, 4)
    assert group_by_worth(items, mine, 30) == twin.group_by_worth(items, theirs, 30)
    assert len(mine) == len(theirs)


@pytest.mark.parametrize("again", [copy.deepcopy, lambda case: pickle.loads(pickle.dumps(case))])
def test_a_copy_goes_on_alone(again: Callable[[Case], Case]) -> None:
    case = Case(3, 30)
    groups = group_by_worth(case.items, case.rounds, 8)
    other = again(case)
    asked = len(other.asked)
    del case  # and what it has in C
    gc.collect()
    assert group_by_worth(other.items, other.rounds, 8) == groups
    assert len(other.asked) == asked  # the lengths are known


def test_nearly_the_best_of_all_groupings() -> None:
    ratios = []
    for seed in range(40):
        case = Case(seed, 5)
        gpus = 1 + seed % 2
        optimum = max(
            case.worth(groups)
            for groups in partitions(range(5), gpus)
            if all(len(group) <= 4 for group in groups)
        )
        ratios.append(case.worth(group_by_worth(case.items, case.rounds, gpus)) / optimum)
    assert max(ratios) <= 1 + 1e-9
    assert sum(ratios) / len(ratios) > 0.99
    assert min(ratios) > 0.9


def test_all_stay_alone_if_they_fit() -> None:
    case = Case(1, 6, (1, 2))
    needed = sum(item.gpus for item in case.items)
    assert group_by_worth(case.items, case.rounds, needed) == [(job,) for job in range(6)]
    assert group_by_worth([], case.rounds, 4) == []


def test_an_exchange_finds_partners_that_fit_each_other() -> None:
    loads, computes = (1.0, 0.0, 0.0, 0.0), (0.0, 0.0, 1.0, 0.0)
    rounds = twin.Rounds(lambda kinds: best([(loads, computes)[kind] for kind in kinds]).round_s, 2)
    items = [Item(kind, 1, 1.0, 1.0) for kind in (0, 0, 1, 1)]
    found = twin.exchange([[0, 1], [2, 3]], [], items, rounds)
    assert {frozenset(items[job].kind for job in group) for group in found} == {frozenset({0, 1})}


def test_who_is_outside_takes_the_place_of_who_is_worth_less() -> None:
    rounds = twin.Rounds(lambda kinds: float(len(kinds)), 1)
    items = [Item(0, 1, 1.0, weight) for weight in (1.0, 2.0, 3.0)]
    assert twin.exchange([[0], [1]], [2], items, rounds) == [(2,), (1,)]


@given(
    st.lists(
        st.tuples(st.sampled_from([1, 2, 3, 4, 8]), st.lists(st.floats(0, 9), min_size=1, max_size=5)),
        min_size=1,
        max_size=3,
    ),
    st.integers(1, 16),
)
def test_shares_are_the_best_of_all(classes: list[tuple[int, list[float]]], gpus: int) -> None:
    sizes = [size for size, _ in classes]
    worths = [np.cumsum([0.0, *values]) for _, values in classes]
    counts = twin.share(worths, sizes, gpus)
    assert sum(count * size for count, size in zip(counts, sizes, strict=True)) <= gpus
    best_of_all = max(
        sum(float(worth[count]) for worth, count in zip(worths, combination, strict=True))
        for combination in itertools.product(*(range(len(worth)) for worth in worths))
        if sum(count * size for count, size in zip(combination, sizes, strict=True)) <= gpus
    )
    found = sum(float(worth[count]) for worth, count in zip(worths, counts, strict=True))
    assert found == pytest.approx(best_of_all)
