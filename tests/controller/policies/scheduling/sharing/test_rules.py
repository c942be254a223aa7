"""The parts that decide: interval, priority, layout and packing."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller.policies.scheduling.sharing.packing import (
    MOST,
    Choose,
    Layout,
    Packer,
    best,
    candidates,
    consolidated,
)
from controller.policies.scheduling.sharing.pairs import (
    Load,
)
from controller.policies.scheduling.sharing.policy import Charges
from controller.vocabulary import Cluster
from tests.controller.policies.scheduling.sharing.cases import KINDS, LAW, PAIRS, beside, job


def test_sharing_is_charged_by_the_part_of_a_gpu() -> None:
    layout = Layout(Cluster.uniform(1, 4))
    wide, small, other = job("w", gpus=4), job("s", order=1), job("o", order=2)
    ledgers = [Charges(), Charges(aging=False)]
    layout.add(wide, (0, 1, 2, 3))
    layout.add(small, (2,))
    for ledger in ledgers:
        ledger.open((wide, small, other))
        ledger.charge(layout, 100)
    assert [ledgers[0].priority(j) for j in (wide, small, other)] == [350, 50, 0]
    wide.preemptions = 4
    assert [ledger.priority(wide) for ledger in ledgers] == [70, 350]


def allowed(layout: Layout, gpus: tuple[int, ...]) -> bool:
    """Return whether at most two jobs would share a GPU, the larger one with all GPUs of the smaller."""
    nested = all(
        set(gpus) <= set(there) or set(gpus) >= set(there)
        for there in (layout.places[other.order] for other in layout.others(gpus))
    )
    return nested and all(len(layout.on(gpu)) < MOST for gpu in gpus)


def test_a_gpu_takes_two_jobs_and_the_smaller_lies_within_the_larger() -> None:
    layout = Layout(Cluster.uniform(2, 4))
    layout.add(job("w", gpus=4), (0, 1, 2, 3))
    layout.add(job("a", order=1), (0,))
    layout.add(job("b", order=2, gpus=2), (2, 3))
    for gpus in ((0,), (3, 4), (1, 4), (0, 1, 2, 3), (1, 4, 5, 6)):
        assert not allowed(layout, gpus)
    assert [j.spec.name for j in layout.beside(layout.jobs[0])] == ["a", "b"]
    assert layout.share(layout.jobs[0]) == 2.5
    layout.remove(layout.jobs[0])
    assert layout.free() == [1, 4, 5, 6, 7]
    over = job("d", order=4, gpus=8)
    layout.add(over, tuple(range(8)))
    assert [j.spec.name for j in layout.beside(over)] == ["a", "b"]


@given(st.sets(st.integers(0, 15)), st.integers(1, 16))
def test_gpus_are_consolidated(free: set[int], count: int) -> None:
    cluster = Cluster.uniform(4, 4)
    found = consolidated(sorted(free), count, cluster)
    by_node = [sum(gpu // 4 == node for gpu in free) for node in range(4)]
    if found is None:
        whole, rest = divmod(count, 4) if count > 4 else (0, count)
        left = sorted(by_node, reverse=True)[whole:]
        assert by_node.count(4) < whole or (rest and max(left, default=0) < rest)
    else:
        assert set(found) <= free
        assert len(set(found)) == count
        assert len({gpu // 4 for gpu in found}) == -(-count // 4)


@given(st.lists(st.sampled_from(KINDS), min_size=1, max_size=8), st.sampled_from(KINDS))
def test_best_packing_of_singles_has_the_largest_sum_of_speeds(hosts: list[str], kind: str) -> None:
    layout = Layout(Cluster.uniform(1, len(hosts)))
    for number, host in enumerate(hosts):
        layout.add(job(host, host, order=number), (number,))
    new = job("new", kind, order=99)
    found = Packer(LAW, least_gain=0.0, least_speed=0.5).find(new, layout)
    speeds = [(PAIRS.beside(kind, host), PAIRS.beside(host, kind)) for host in hosts]
    sums = [a + b for a, b in speeds if min(a, b) >= 0.5 and a + b > 1]
    if found is None:
        assert not sums
    else:
        assert found.gain + 1 == pytest.approx(max(sums))


def test_gains_count_every_gpu_and_everybody_who_is_touched() -> None:
    layout = Layout(Cluster.uniform(1, 4))
    wide, small, new = job("w", "memory", gpus=4), job("s", "light", order=1), job("n", "host", order=2)
    layout.add(wide, (0, 1, 2, 3))
    layout.add(small, (0,))
    packing = Packer(LAW, least_gain=0.0).find(new, layout)
    assert packing is not None
    assert packing.gpus[0] != 0
    before = beside(LAW, "memory", 4, ("light", 1))
    after = beside(LAW, "memory", 4, ("light", 1), ("host", 1))
    assert packing.gain == pytest.approx(beside(LAW, "host", 1, ("memory", 4)) + 4 * (after - before))
    assert Packer(LAW, mixed=False, least_gain=0.0).find(new, layout) is None


def test_a_large_job_goes_over_small_ones_and_free_gpus() -> None:
    layout = Layout(Cluster.uniform(2, 4))
    for order, gpu in enumerate((0, 1, 2)):
        layout.add(job(f"s{order}", "light", order=order), (gpu,))
    layout.add(job("full", "rude", order=5, gpus=4), (4, 5, 6, 7))
    layout.add(job("x", "light", order=6), (4,))
    wide = job("wide", "host", order=9, gpus=4)
    found = Packer(LAW).find(wide, layout)
    assert found is not None
    assert sorted(found.gpus) == [0, 1, 2, 3]
    assert [j.spec.name for j in found.beside] == ["s0", "s1", "s2"]
    half = Packer(LAW).find(job("half", "host", order=10, gpus=2), layout)
    assert half is not None
    assert 3 in half.gpus  # the free one
    layout.remove(layout.jobs[6])
    layout.remove(layout.jobs[5])
    both = Packer(LAW).find(job("both", "host", order=11, gpus=8), layout)
    assert both is not None
    assert sorted(both.gpus) == list(range(8))


@given(
    st.lists(st.tuples(st.sampled_from(KINDS), st.sampled_from([1, 1, 2, 3, 4, 8])), max_size=20),
    st.sampled_from([best, random.Random(0).choice]),
)
def test_whatever_is_found_is_allowed(loads: list[tuple[str, int]], choose: Choose) -> None:
    layout = Layout(Cluster.uniform(2, 4))
    packer = Packer(LAW, choose=choose, least_gain=0.0, least_speed=0.3)
    for order, (kind, gpus) in enumerate(loads):
        new = job(str(order), kind, order=order, gpus=gpus)
        for place, others in candidates(new, layout, lambda large, small: 0.0):
            assert allowed(layout, place)
            assert others
            assert list(others) == layout.others(place)
        found = packer.find(new, layout)
        free = consolidated(layout.free(), gpus, layout.cluster)
        if free is not None:
            layout.add(new, free)
        elif found is not None:
            assert allowed(layout, found.gpus)
            layout.add(new, found.gpus)
            assert found.speed >= 0.3
            for other in (new, *found.beside):
                there = [Load(j.spec.model, j.spec.gpus) for j in layout.beside(other)]
                assert LAW.speed(Load(other.spec.model, other.spec.gpus), there) >= 0.3
