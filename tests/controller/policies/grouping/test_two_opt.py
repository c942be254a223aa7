from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller.policies.grouping import matching
from controller.policies.grouping.matching import Pairs, match, two_opt
from controller.policies.grouping.quality import rounds_against_exact
from controller.policies.grouping.rounds import weights

FAMILIES = ("uniform", "heavy tails", "one resource", "thirty kinds", "a hundred kinds")


def jobs(family: str, count: int, seed: int = 0) -> list[tuple[float, ...]]:
    rng = np.random.default_rng(seed)
    match family:
        case "uniform":
            stages = rng.random((count, 4))
        case "heavy tails":
            stages = np.exp(1.5 * rng.standard_normal((count, 4)))
        case "one resource":  # all wait for the GPU, some longer than others
            stages = 0.1 * rng.random((count, 4))
            stages[:, 2] = rng.exponential(size=count)
        case _:
            kinds = 30 if family == "thirty kinds" else 100
            share = 1 / np.arange(1, kinds + 1)
            stages = rng.random((kinds, 4))[rng.choice(kinds, count, p=share / share.sum())]
    return [tuple(map(float, row)) for row in stages]


def table_of(count: int, seed: int) -> np.ndarray[tuple[int, int], np.dtype[np.float64]]:
    rng = np.random.default_rng(seed)
    upper = np.triu(rng.integers(0, 4, (count, count)).astype(np.float64), 1)
    return upper + upper.T


@given(st.integers(0, 9), st.integers(0, 10**6), st.data())
def test_no_exchange_of_two_pairs_is_left_that_gains(count: int, seed: int, data: st.DataObject) -> None:
    table = table_of(count, seed)
    nodes = data.draw(st.permutations(range(count)))
    given_pairs = [
        (min(u, v), max(u, v)) for u, v in zip(nodes[::2], nodes[1::2], strict=False) if table[u, v] > 0
    ]
    found = two_opt(table, given_pairs)
    inside = [node for pair in found for node in pair]
    assert len(inside) == len({*inside})
    assert all(table[u, v] > 0 for u, v in found)
    total = sum(table[u, v] for u, v in found)
    assert total >= sum(table[u, v] for u, v in given_pairs)
    units: list[tuple[int, ...]] = [*found, *((node,) for node in range(count) if node not in inside)]
    for one, other in itertools.combinations(units, 2):
        now = sum(table[unit] for unit in (one, other) if len(unit) == 2)
        for order in itertools.permutations((*one, *other)):
            better = sum(table[u, v] for u, v in zip(order[::2], order[1::2], strict=False))
            assert better <= now + 1e-9


@pytest.mark.parametrize("family", FAMILIES)
def test_what_is_lost_in_a_block_is_less_than_half_a_percent(family: str) -> None:
    rounds = rounds_against_exact(jobs(family, 300))
    assert [one.nodes for one in rounds] == [300, 150]
    assert all(-1e-9 <= one.loss < 0.005 for one in rounds)


@pytest.mark.parametrize("family", FAMILIES)
def test_what_many_blocks_lose_is_less_than_half_a_percent(
    family: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(matching, "BLOCK", 100)
    rounds = rounds_against_exact(jobs(family, 400))
    assert all(-1e-9 <= one.loss < 0.005 for one in rounds)


def test_a_fast_matching_is_repeatable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(matching, "BLOCK", 60)

    def once() -> Pairs:
        stages = np.array(jobs("uniform", 250))
        return match(250, weights(stages, [(job,) for job in range(250)], 4))

    assert once() == once()
