from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.replicas.steps import SteppedRun
from benchmarks.replicas.synergy.rules import (
    RoundSpeed,
    replica_demand,
    replica_demands,
    replica_greedy,
    replica_grid,
    replica_opt,
    replica_policy,
    replica_proportional,
    replica_tune,
)
from controller.policies.scheduling import BadSpec, Submission
from controller.policies.scheduling.synergy.demand import (
    BadDemand,
    Demand,
    Infeasible,
    ModelProfile,
    Sensitivity,
    Servers,
    ServerShape,
    ShareOption,
)
from controller.vocabulary import Cluster
from tests.controller.policies.scheduling.synergy.cases import HUNGRY, MODEST, SHAPE, check_capacity

GRID = Sensitivity.build([1], [10], [[1]])


def profile(cpus: float, memory_gb: float, speedup: float) -> ModelProfile:
    return ModelProfile("net", GRID, 1, 0.5, speedup, cpus, memory_gb)


def demand(name: object, cpus: float, memory_gb: float, speedup: float = 2.0, gpus: int = 1) -> Demand:
    spec = Submission(str(name), 0, gpus, 100, 0.5)
    return replica_demand(spec, profile(cpus, memory_gb, speedup), SHAPE)


def test_ideal_shares_are_cut_to_a_server_and_the_speed_follows_the_cpus() -> None:
    assert demand("a", 6, 25).ideal == ShareOption(6, 25, 2.0)
    assert demand("a", 6, 25, gpus=2).ideal == ShareOption(6, 25, 2.0)
    # three GPUs want 18 of 12 CPUs; fair are 9; so a third of the way from 1 to 2
    assert demand("a", 6, 25, gpus=3).ideal == ShareOption(4, 25, pytest.approx(4 / 3))
    assert demand("a", 6, 25, gpus=4).ideal == ShareOption(3, 25, 1.0)
    assert demand("a", 6, 25, gpus=8).ideal == ShareOption(3, 25, 1.0)
    # memory is cut too, but only CPUs count for the speed
    assert demand("a", 6, 75, gpus=2).ideal == ShareOption(6, 50, 2.0)


def test_a_job_within_its_fair_share_cannot_fall_back() -> None:
    modest = demand("m", 1, 10, 1.0)
    assert modest.floor is modest.ideal
    assert demand("h", 1, 50).floor == ShareOption(3, 25, 1.0)


def test_a_cut_without_a_line_to_follow_leaves_the_fair_speed() -> None:
    assert demand("a", 3, 75, gpus=2).ideal == ShareOption(3, 50, 1.0)


def test_gpus_are_the_first_that_have_the_share() -> None:
    plan = replica_greedy(
        [demand("a", 6, 25), demand("b", 6, 25), demand("c", 6, 25)], Servers.equal(2, SHAPE)
    )
    assert [g.split for g in plan.grants] == [((0, 1),), ((0, 1),), ((1, 1),)]
    spread = replica_greedy([demand("a", 6, 25), demand("w", 5, 10, gpus=2)], Servers.equal(2, SHAPE))
    assert spread.grants[1].split == ((0, 1), (1, 1))  # not consolidated


def test_greedy_passes_over_what_does_not_fit_and_proportional_never_does() -> None:
    jobs = [demand(i, 12, 25) for i in range(3)]
    assert len(replica_greedy(jobs, Servers.equal(2, SHAPE)).grants) == 2
    assert len(replica_proportional(jobs, Servers.equal(2, SHAPE)).grants) == 3
    assert all(g.option.speed == 1 for g in replica_proportional(jobs, Servers.equal(2, SHAPE)).grants)


def test_tune_falls_back_itself_before_its_neighbours_do() -> None:
    jobs = [demand("a", 6, 25), demand("b", 4, 25), demand("c", 6, 25)]  # 2 of 12 CPUs are left for c
    speeds = [g.option.speed for g in replica_tune(jobs, Servers.equal(1, SHAPE)).grants]
    assert speeds == [1.0, 2.0, 1.0]  # c wants 3; a has most above its fair share


def test_neighbours_fall_back_until_the_need_is_covered() -> None:
    # 4 + 4 + 4 CPUs of 12; the fourth wants 1: one neighbour is enough
    jobs = [demand(i, 4, 10) for i in range(3)] + [demand("m", 1, 10, 1.0)]
    assert [g.option.speed for g in replica_tune(jobs, Servers.equal(1, SHAPE)).grants] == [
        1.0,
        2.0,
        2.0,
        1.0,
    ]
    # the fourth wants 3: all three have to
    jobs = [demand(i, 4, 10) for i in range(3)] + [demand("m", 3, 10, 1.0)]
    assert [g.option.speed for g in replica_tune(jobs, Servers.equal(1, SHAPE)).grants] == [
        1.0,
        1.0,
        1.0,
        1.0,
    ]


@st.composite
def queues(draw: st.DrawFn) -> list[Demand]:
    kinds = [(1, 5, 1.0), (6, 25, 2.0), (12, 50, 3.0), (4, 25, 1.2), (6, 75, 2.5)]
    picks = draw(st.lists(st.tuples(st.sampled_from(kinds), st.sampled_from([1, 1, 1, 2, 4])), max_size=16))
    return [demand(i, *kind, gpus=gpus) for i, (kind, gpus) in enumerate(picks)]


@pytest.mark.parametrize("allocate", [replica_proportional, replica_greedy, replica_tune])
@settings(deadline=None)
@given(queues(), st.integers(1, 4))
def test_no_server_gives_more_than_it_has(allocate, jobs: list[Demand], servers: int) -> None:
    try:
        plan = allocate(jobs, Servers.equal(servers, SHAPE))
    except Infeasible:
        assert allocate is replica_tune  # as the public simulator, it can run into a corner
        return
    check_capacity(plan, servers, SHAPE)
    assert all(g.option.speed >= 1 for g in plan.grants)
    assert len(plan.grants) + len(plan.waiting) == len(jobs)


@pytest.mark.parametrize(
    ("call", "why"),
    [
        (
            lambda wants: wants(Submission("j", 0, 1, 1, model="other")),
            "trains 'other', which has no profile; there are: net",
        ),
        (
            lambda wants: replica_policy("lifo", "tune", wants, servers=Servers.equal(1, SHAPE)),
            "order 'lifo'; there are fifo, srtf, las",
        ),
        (
            lambda wants: replica_policy("fifo", "best", wants, servers=Servers.equal(1, SHAPE)),
            "mode 'best'; there are fair, greedy, tune, opt",
        ),
        (
            lambda wants: replica_policy("las", "opt", wants, servers=Servers.equal(1, SHAPE)),
            "mode 'opt' with order 'las'; it goes with fifo, srtf",
        ),
    ],
)
def test_unknown_names_are_refused(call: Callable[[Any], object], why: str) -> None:
    wants = replica_demands({"net": profile(6, 25, 2.0)}, SHAPE)
    with pytest.raises(BadSpec, match=why):
        call(wants)


def test_shapes_other_than_eight_gpus_work() -> None:
    shape = ServerShape(gpus=2, cpus=10, memory_gb=20)
    wants = replica_demand(Submission("j", 0, 1, 1), profile(8, 10, 1.5), shape)
    assert wants.floor == ShareOption(5, 10, 1.0)


OPT_PROFILES = {
    "hungry": ModelProfile("hungry", HUNGRY, 1, 0.5, 2.0, 6, 25),
    "modest": ModelProfile("modest", MODEST, 1, 0.5, 1.0, 1, 10),
}


def grid(name: str, model: str, gpus: int = 1) -> Demand:
    return replica_grid(Submission(name, 0, gpus, 100, 0.5, model=model), OPT_PROFILES[model], SHAPE)


def test_opt_sees_the_matrix_and_orders_by_the_ideal_share() -> None:
    hungry = grid("h", "hungry", gpus=3)
    assert hungry.options == (ShareOption(3, 25, 1.0), ShareOption(6, 25, 2.0))  # also beyond one server
    assert hungry.ideal == demand("h", 6, 25, gpus=3).ideal
    assert grid("m", "modest").options == (ShareOption(1, 25, 1.0),)
    above = ModelProfile("big", Sensitivity.build([6], [25], [[1]]), 1, 0.5, 1, 6, 25)
    with pytest.raises(BadDemand, match="the matrix of 'big' begins above the fair share, 3 CPUs and 25 GB"):
        replica_grid(Submission("b", 0, 1, 1), above, SHAPE)


def test_opt_counts_a_job_once_and_asks_no_server() -> None:
    pytest.importorskip("scipy")
    # 24 CPUs: six more than the fair shares of the hungry and one of each modest one: for two GPUs more speed
    jobs = [grid("large", "hungry", gpus=2), grid("small", "hungry"), grid("other", "hungry")]
    jobs += [grid(str(i), "modest") for i in range(4)]
    plan = replica_opt(jobs, Servers.equal(2, SHAPE))
    speeds = {g.demand.job: g.option.speed for g in plan.grants}
    assert speeds == {"large": 1.0, "small": 2.0, "other": 2.0} | dict.fromkeys("0123", 1.0)
    assert [g.split for g in plan.grants][:4] == [((0, 2),), ((0, 1),), ((0, 1),), ((1, 1),)]
    used = sum(g.demand.gpus * g.option.cpus for g in plan.grants if g.split[0][0] == 0)
    assert used == 18  # of 12
    assert replica_opt([], Servers.equal(2, SHAPE)).grants == ()


def test_opt_splits_jobs_over_servers_and_leaves_out_what_finds_no_gpu() -> None:
    pytest.importorskip("scipy")
    plan = replica_opt(
        [grid("a", "modest", 3), grid("b", "modest", 5), grid("c", "modest")], Servers.equal(2, SHAPE)
    )
    assert [g.split for g in plan.grants] == [((0, 3),), ((0, 1), (1, 4))]
    assert [job.job for job in plan.waiting] == ["c"]


def test_srtf_with_opt_goes_by_the_ideal_speed_and_runs_at_the_granted_one() -> None:
    pytest.importorskip("scipy")
    wants = replica_demands(OPT_PROFILES, SHAPE, mode="opt")
    speed = RoundSpeed(wants)
    specs = [
        Submission("m", 0, 2, 2400, 0.5, model="modest"),
        Submission("h", 0, 2, 3600, 0.5, model="hungry"),
    ]
    policy = replica_policy("srtf", "opt", wants, servers=Servers.equal(1, ServerShape(2, 12, 100)))
    cluster = Cluster.uniform(1, 2, cpus=12, memory_gb=100)
    jobs = SteppedRun(policy, speed, 300).run(specs, cluster).jobs
    # 1200 s against 1800 s at half of it: the hungry job is first
    assert {job.spec.name: job.finish_s for job in jobs} == {"h": 900, "m": 2100}
