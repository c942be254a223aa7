"""Every sum exact and every run ends, whatever is lost, doubled, evicted, forgotten or restarted."""

from __future__ import annotations

import dataclasses

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hostlib import wire
from hostlib.fallback.core import FallbackCore
from tests import effort
from tests.hostlib.fallback.packets import TREES
from tests.hostlib.fallback.world import Make, Plan, World

plans = st.builds(
    Plan,
    tree=st.sampled_from([tree for name, tree in TREES.items() if name != "star of 32"]),
    seed=st.integers(0, 2**32),
    window=st.sampled_from([1, 2, 6, 12]),
    loss=st.sampled_from([0.0, 0.05, 0.3]),
    duplicate=st.sampled_from([0.0, 0.2]),
    slots=st.sampled_from([0.0, 0.5, 0.9]),
    evict=st.sampled_from([0.0, 0.1]),
    restarts=st.sampled_from([0.0, 0.001, 0.01]),
    capacity=st.sampled_from([7, 8, 12, 1000]),
    overflows=st.sampled_from([0.0, 0.3]),
    wraps=st.booleans(),
    window_known=st.booleans(),
)


@settings(max_examples=effort.cases(150), deadline=None)
@given(plans)
def test_every_sum_is_exact_and_every_run_ends(plan: Plan) -> None:
    world = World(plan, FallbackCore)
    world.run()
    assert world.most_pieces <= plan.capacity


@pytest.mark.parametrize("tree", ["star of 3", "two racks"])
def test_a_run_through_each_core(make_core: Make, tree: str) -> None:
    World(Plan(TREES[tree], seed=3, restarts=0.003), make_core).run()


@pytest.mark.parametrize("name", TREES)
def test_the_server_alone_sums_when_no_switch_has_room(name: str) -> None:
    plan = Plan(TREES[name], seed=1, loss=0, duplicate=0, slots=0, overflows=0)
    world = World(plan, FallbackCore)
    world.run()
    counters = world.core.statistics()[7]
    assert counters["results"] == plan.psns
    assert counters["merged"] == counters["packets"] == plan.psns * plan.tree.size


def test_a_server_that_restarts_all_the_time_does_not_keep_a_job_from_ending() -> None:
    world = World(Plan(TREES["two racks"], seed=2, restarts=0.05), FallbackCore)
    world.run()
    assert world.restarts > 10


def test_memory_for_a_single_packet_is_enough() -> None:
    for seed in range(20):
        plan = Plan(TREES["star of 3"], seed=seed, capacity=3, slots=0.1, window=10)
        world = World(plan, FallbackCore)
        world.run()
        assert world.most_pieces <= 3
        assert world.core.statistics()[7]["forgotten"] + world.core.statistics()[7]["no_room"] > 0


def test_a_straggler_is_waited_for_without_a_flood_of_reminders() -> None:
    plan = Plan(TREES["star of 3"], seed=4, loss=0, absent_us=2_000_000, slots=0, overflows=0)
    world = World(plan, FallbackCore)
    world.run()
    reminders = world.statistics[str(wire.KIND_REMINDER)]
    assert 0 < reminders < plan.window * (2_000_000 / 20_000 + 20)


def test_stranded_sums_are_pulled_long_before_anybody_times_out() -> None:
    """Two of three contributions stay in a switch, the third went by: the reminder brings them together."""
    plan = Plan(TREES["star of 3"], seed=5, loss=0, duplicate=0, evict=0, slots=0.5, overflows=0)
    world = World(dataclasses.replace(plan, psns=100), FallbackCore)
    world.run()
    assert world.statistics[str(wire.KIND_REMINDER)] > 0
    assert world.now < 100 * 1_000_000  # a time-out each would be 500 ms
