from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from controller.policies.scheduling.synergy.allocators import (
    FreeShares,
    SharePlan,
    drf,
    greedy,
    proportional,
    tetris,
    top_up,
    tune,
)
from controller.policies.scheduling.synergy.demand import (
    BadDemand,
    Demand,
    Sensitivity,
    Servers,
    ServerShape,
    ShareOption,
    demand,
)
from controller.policies.scheduling.synergy.family import tune_and_top_up
from tests.controller.policies.scheduling.synergy.cases import (
    CACHING,
    HUNGRY,
    LEAN,
    MODEST,
    SHAPE,
    check_capacity,
    job,
    queues,
)

FEW = Sensitivity.build([1, 4], [5], [[1], [2]])

Allocator = Callable[[Sequence[Demand], Servers], SharePlan]
ALL: list[Allocator] = [proportional, greedy, tune, drf, tetris]


def tuned_on_empty_servers(jobs: Sequence[Demand], servers: Servers) -> SharePlan:
    return tune(jobs, servers, spread=True)


def tuned_and_topped_up(jobs: Sequence[Demand], servers: Servers) -> SharePlan:
    return top_up(tune(jobs, servers), servers)


@pytest.mark.parametrize("allocate", [*ALL, tuned_and_topped_up, tuned_on_empty_servers, tune_and_top_up])
@settings(deadline=None)
@given(queues(), st.integers(1, 4))
def test_no_server_gives_more_than_it_has(allocate: Allocator, jobs: list[Demand], servers: int) -> None:
    plan = allocate(jobs, Servers.equal(servers, SHAPE))
    check_capacity(plan, servers, SHAPE)
    assert sorted([g.demand.job for g in plan.grants] + [d.job for d in plan.waiting]) == list(
        range(len(jobs))
    )


@pytest.mark.parametrize("allocate", [proportional, tune, tuned_on_empty_servers, tune_and_top_up])
@settings(deadline=None)
@given(queues(), st.integers(1, 4))
def test_no_gpu_idles_while_a_job_could_have_it(
    allocate: Allocator, jobs: list[Demand], servers: int
) -> None:
    plan = allocate(jobs, Servers.equal(servers, SHAPE))
    free = servers * SHAPE.gpus - sum(g.demand.gpus for g in plan.grants)
    assert all(d.gpus > free for d in plan.waiting)


@settings(deadline=None)
@given(queues(), st.integers(1, 4))
def test_tune_is_never_worse_than_proportional_for_any_job(jobs: list[Demand], servers: int) -> None:
    tuned, topped = (
        tune(jobs, Servers.equal(servers, SHAPE)),
        tuned_and_topped_up(jobs, Servers.equal(servers, SHAPE)),
    )
    best = tune_and_top_up(jobs, Servers.equal(servers, SHAPE))
    assert all(g.option.speed >= 1 for g in (*tuned.grants, *best.grants))
    assert best.throughput >= tuned.throughput - 1e-9
    assert tuned.throughput >= proportional(jobs, Servers.equal(servers, SHAPE)).throughput
    for before, after in zip(tuned.grants, topped.grants, strict=True):
        assert after.demand is before.demand
        assert after.option.speed >= before.option.speed


@settings(deadline=None)
@given(queues())
def test_top_up_leaves_no_step_untaken(jobs: list[Demand]) -> None:
    plan = tuned_and_topped_up(jobs, Servers.equal(2, SHAPE))
    free = [[float(SHAPE.cpus), float(SHAPE.memory_gb)] for _ in range(2)]
    for grant in plan.grants:
        for server, gpus in grant.split:
            free[server][0] -= gpus * grant.option.cpus
            free[server][1] -= gpus * grant.option.memory_gb
    for grant in plan.grants:
        for option in grant.demand.options:
            if option.speed > grant.option.speed:
                assert any(
                    gpus * (option.cpus - grant.option.cpus) > free[server][0] - 1e-5
                    or gpus * (option.memory_gb - grant.option.memory_gb) > free[server][1] - 1e-5
                    for server, gpus in grant.split
                )


@pytest.mark.parametrize("allocate", ALL)
def test_nothing_to_do_is_a_plan_too(allocate: Allocator) -> None:
    assert allocate([], Servers.equal(2, SHAPE)) == SharePlan((), ())


@pytest.mark.parametrize("allocate", ALL)
def test_a_cluster_of_no_servers_is_refused(allocate: Allocator) -> None:
    with pytest.raises(BadDemand, match="0 servers"):
        allocate([job("a", HUNGRY)], Servers.equal(0, SHAPE))


def speeds(plan: SharePlan) -> dict[object, float]:
    return {name: option.speed for name, option in plan.options().items()}


PEERS = {"few": FEW, "many": HUNGRY, "l": LEAN, "m": LEAN}


@pytest.mark.parametrize(
    ("allocate", "wanted", "cpus", "expected"),
    [
        pytest.param(
            *(greedy, dict.fromkeys("abcd", HUNGRY), 12, {"a": 2, "b": 2}), id="greedy leaves GPUs idle"
        ),
        pytest.param(
            *(tune, dict.fromkeys("abcd", HUNGRY), 12, dict.fromkeys("abcd", 1)), id="where tune falls back"
        ),
        pytest.param(
            *(tune, {**dict.fromkeys("mno", MODEST), "h": HUNGRY}, 12, {"m": 1, "n": 1, "o": 1, "h": 2}),
            id="tune gives modest jobs' CPUs to hungry ones",
        ),
        pytest.param(tune, PEERS, 12, {"few": 2, "many": 2, "l": 1, "m": 1}, id="all have what they want"),
        pytest.param(
            *(tune, PEERS, 11, {"few": 2, "many": 1, "l": 1, "m": 1}),
            id="of its peers the one with most CPUs falls back first",
        ),
    ],
)
def test_jobs_of_one_gpu_are_as_fast_as_their_shares_let_them(
    allocate: Allocator, wanted: dict[str, Sensitivity], cpus: int, expected: dict[str, float]
) -> None:
    shape = replace(SHAPE, cpus=cpus)
    jobs = [demand(name, 1, matrix, shape) for name, matrix in wanted.items()]
    assert speeds(allocate(jobs, Servers.equal(1, shape))) == expected


def test_tune_makes_only_as_many_fall_back_as_it_takes() -> None:
    jobs = [job("h", HUNGRY), job("i", HUNGRY), job("m", MODEST)]  # 6 + 6 CPUs of 12; one is needed
    plan = tune(jobs, Servers.equal(1, SHAPE))
    assert sorted(speeds(plan).values()) == [1, 1, 2]


def test_tune_lets_jobs_on_one_server_fall_back_before_those_on_two() -> None:
    shape = ServerShape(gpus=8, cpus=29, memory_gb=80)
    spread = demand("spread", 10, Sensitivity.build([2, 5], [5], [[1], [2]]), shape)
    singles = [demand(name, 1, Sensitivity.build([2, 4], [5], [[1], [2]]), shape) for name in "abc"]
    # 4 CPUs are left on each server, one for a and one for b; c needs 2 beside one of them and the large job
    plan = tune([spread, *singles], Servers.equal(2, shape))
    assert speeds(plan) == {"spread": 2, "a": 1, "b": 2, "c": 1}


def test_large_jobs_are_placed_first_and_stay_whole() -> None:
    jobs = [job("two", MODEST, gpus=2), job("three", MODEST, gpus=3), job("other", MODEST, gpus=3)]
    parts = {g.demand.job: len(g.split) for g in tune(jobs, Servers.equal(2, SHAPE)).grants}
    assert parts == {"two": 2, "three": 1, "other": 1}


def test_spreading_puts_hungry_jobs_beside_modest_ones() -> None:
    jobs = [job(f"h{i}", HUNGRY) for i in range(2)] + [job(f"m{i}", MODEST) for i in range(6)]
    assert (
        tune(jobs, Servers.equal(2, SHAPE)).throughput == 8 + 1
    )  # both on one server, where one has to fall back
    assert tune(jobs, Servers.equal(2, SHAPE), spread=True).throughput == 8 + 2
    assert tune_and_top_up(jobs, Servers.equal(2, SHAPE)).throughput == 8 + 2


def test_a_job_goes_to_the_fullest_server_that_has_its_share() -> None:
    jobs = [job("big", HUNGRY, gpus=3), job("small", MODEST)]
    assert [g.split for g in tune(jobs, Servers.equal(2, SHAPE)).grants] == [((0, 3),), ((0, 1),)]


def test_a_job_too_large_for_a_server_takes_the_fewest() -> None:
    plan = tune([job("x", MODEST, gpus=6), job("y", MODEST, gpus=2)], Servers.equal(3, SHAPE))
    assert [len(g.split) for g in plan.grants] == [2, 1]


def test_top_up_fills_the_gap_between_fair_and_ideal() -> None:
    lean = [job(name, LEAN) for name in "mn"]
    steps = [job("c", CACHING), job("d", CACHING)]  # 75 GB each would be ideal, 100 there are
    plan = tune([*steps, *lean], Servers.equal(1, SHAPE))
    assert sorted(speeds(plan).values()) == [1, 1, 1, 1]
    assert sorted(speeds(top_up(plan, Servers.equal(1, SHAPE))).values()) == [1, 1, 1, 2]


def test_what_a_fleet_could_not_find_it_finds_when_it_is_given_back() -> None:
    fleet = FreeShares(Servers.equal(1, SHAPE))
    wants, share = job("a", MODEST), ShareOption(6, 25, 1.0)
    fleet.allocate(((0, 1),), ShareOption(9, 25, 1.0))
    assert fleet.find(wants, share) is None
    fleet.release(((0, 1),), ShareOption(9, 25, 1.0))
    assert fleet.find(wants, share) == ((0, 1),)
    assert fleet.free(0) == (4, 12, 100)


def test_drf_serves_the_tenant_with_the_least() -> None:
    jobs = [demand(f"a{i}", 1, MODEST, SHAPE, tenant="a") for i in range(4)]
    jobs += [demand(f"b{i}", 1, MODEST, SHAPE, tenant="b") for i in range(2)]
    assert [g.demand.job for g in drf(jobs, Servers.equal(1, SHAPE)).grants] == ["a0", "b0", "a1", "b1"]


def test_drf_without_tenants_takes_small_shares_first() -> None:
    jobs = [job("hungry", HUNGRY), job("modest", MODEST), job("caching", CACHING)]
    assert [g.demand.job for g in drf(jobs, Servers.equal(2, SHAPE)).grants] == [
        "modest",
        "hungry",
        "caching",
    ]


def test_tetris_prefers_short_jobs_and_good_fits() -> None:
    short, long = (demand(n, 4, MODEST, SHAPE, remaining_s=s) for n, s in (("short", 10), ("long", 1000)))
    plan = tetris([long, short], Servers.equal(1, SHAPE))
    assert [g.demand.job for g in plan.grants] == ["short"]
    assert plan.waiting == (long,)
    wide = tetris([job("one", MODEST), job("four", MODEST, gpus=4)], Servers.equal(1, SHAPE))
    assert [g.demand.job for g in wide.grants] == ["four"]
