from __future__ import annotations

import itertools
import random
from collections.abc import Iterator, Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller.policies.grouping.rounds import Item, Rounds, best, group_by_worth, share


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


def test_not_far_from_the_best_of_all_groupings() -> None:
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
    assert sum(ratios) / len(ratios) > 0.9
    assert min(ratios) > 0.6


def test_all_stay_alone_if_they_fit() -> None:
    case = Case(1, 6, (1, 2))
    needed = sum(item.gpus for item in case.items)
    assert group_by_worth(case.items, case.rounds, needed) == [[job] for job in range(6)]
    assert group_by_worth([], case.rounds, 4) == []


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
    counts = share([*zip(sizes, worths, strict=True)], gpus)
    assert sum(count * size for count, size in zip(counts, sizes, strict=True)) <= gpus
    best_of_all = max(
        sum(float(worth[count]) for worth, count in zip(worths, combination, strict=True))
        for combination in itertools.product(*(range(len(worth)) for worth in worths))
        if sum(count * size for count, size in zip(combination, sizes, strict=True)) <= gpus
    )
    found = sum(float(worth[count]) for worth, count in zip(worths, counts, strict=True))
    assert found == pytest.approx(best_of_all)
