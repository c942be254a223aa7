import itertools
import subprocess
import sys

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from controller.policies.scheduling.synergy.allocators import greedy, proportional, tune
from controller.policies.scheduling.synergy.demand import Demand, Infeasible, Servers, ShareOption
from controller.policies.scheduling.synergy.opt import opt, share_out, spread
from tests import effort
from tests.controller.policies.scheduling.synergy.cases import (
    HUNGRY,
    MODEST,
    SHAPE,
    check_capacity,
    job,
    queues,
)
from tests.extras import needs

pytestmark = needs("scipy")


def brute_force(jobs: list[Demand], servers: int) -> float:
    """Try every choice of options within the cluster's CPUs and memory."""
    best = 0.0
    for chosen in itertools.product(*(j.options for j in jobs)):
        cpus = sum(j.gpus * o.cpus for j, o in zip(jobs, chosen, strict=True))
        memory = sum(j.gpus * o.memory_gb for j, o in zip(jobs, chosen, strict=True))
        if cpus <= servers * SHAPE.cpus + 1e-6 and memory <= servers * SHAPE.memory_gb + 1e-6:
            best = max(best, sum(j.gpus * o.speed for j, o in zip(jobs, chosen, strict=True)))
    return best


@settings(max_examples=effort.cases(40), deadline=None)
@given(queues(max_jobs=4, max_gpus=2))
def test_the_first_program_finds_what_trying_everything_finds(jobs: list[Demand]) -> None:
    options, value = share_out(jobs, Servers.equal(2, SHAPE))
    assert value == pytest.approx(brute_force(jobs, 2), rel=1e-6)
    assert value == pytest.approx(sum(j.gpus * o.speed for j, o in zip(jobs, options, strict=True)), rel=1e-6)


@settings(max_examples=effort.cases(40), deadline=None)
@given(queues(), st.integers(1, 4))
def test_opt_bounds_tune_which_bounds_proportional(jobs: list[Demand], servers: int) -> None:
    optimum = opt(jobs, Servers.equal(servers, SHAPE))
    tuned = tune(jobs, Servers.equal(servers, SHAPE))
    check_capacity(optimum.plan, servers, SHAPE)
    assert all(g.option.speed >= 1 for g in optimum.plan.grants)
    assert [g.demand.job for g in optimum.plan.grants] == [g.demand.job for g in tuned.grants]
    assert optimum.bound >= optimum.plan.throughput - 1e-6
    assert optimum.bound >= tuned.throughput - 1e-6
    assert tuned.throughput >= proportional(jobs, Servers.equal(servers, SHAPE)).throughput
    assert optimum.fractional <= 3 * servers


@settings(max_examples=effort.cases(30), deadline=None)
@given(queues(max_jobs=8, max_gpus=2))
def test_opt_bounds_greedy_on_the_jobs_that_greedy_runs(jobs: list[Demand]) -> None:
    plan = greedy(jobs, Servers.equal(2, SHAPE))
    ran = [g.demand for g in plan.grants]
    if ran:
        assert share_out(ran, Servers.equal(2, SHAPE))[1] >= plan.throughput - 1e-6


@settings(max_examples=effort.cases(30), deadline=None)
@given(queues(max_jobs=10, max_gpus=4))
def test_the_second_program_fills_no_server_beyond_its_size(jobs: list[Demand]) -> None:
    jobs = [j for j, _ in zip(jobs, range(4), strict=False)]
    servers = 4
    options, _ = share_out(jobs, Servers.equal(servers, SHAPE))
    parts = spread(jobs, options, Servers.equal(servers, SHAPE))
    assert parts.sum(axis=0) == pytest.approx([1.0] * len(jobs))
    for server in parts:
        for need, cap in (
            ([j.gpus for j in jobs], SHAPE.gpus),
            ([j.gpus * o.cpus for j, o in zip(jobs, options, strict=True)], SHAPE.cpus),
            ([j.gpus * o.memory_gb for j, o in zip(jobs, options, strict=True)], SHAPE.memory_gb),
        ):
            assert server @ need <= cap + 1e-4


def test_opt_trades_what_tune_cannot() -> None:
    jobs = [job("h", HUNGRY), job("i", HUNGRY), job("m", MODEST), job("n", MODEST)]  # 10 CPUs beside m and n
    assert opt(jobs, Servers.equal(1, SHAPE)).plan.throughput == 5
    assert opt(jobs, Servers.equal(1, SHAPE)).bound == 5


def test_jobs_for_more_gpus_than_there_are_wait() -> None:
    jobs = [job("a", HUNGRY, gpus=4), job("b", HUNGRY)]
    assert [d.job for d in opt(jobs, Servers.equal(1, SHAPE)).plan.waiting] == ["b"]


def test_shares_that_do_not_fit_have_no_servers() -> None:
    jobs = [job("a", HUNGRY), job("b", HUNGRY)]
    for share in (ShareOption(7, 10, 1), ShareOption(1, 60, 1)):
        with pytest.raises(Infeasible, match="no servers for the shares of 2 jobs on 1 servers"):
            spread(jobs, [share] * 2, Servers.equal(1, SHAPE))


def test_no_jobs_have_an_optimum_of_nothing() -> None:
    optimum = opt([], Servers.equal(2, SHAPE))
    assert (optimum.bound, optimum.plan.grants) == (0.0, ())


def test_without_scipy_only_opt_fails_and_says_what_to_install() -> None:
    code = """
import sys
sys.modules["scipy"] = None
from controller.policies.scheduling import ExtraMissing
from controller.policies.scheduling.synergy.demand import Servers
from controller.policies.scheduling.synergy.opt import opt
from controller.policies.scheduling.synergy.allocators import tune
from tests.controller.policies.scheduling.synergy.cases import HUNGRY, SHAPE, job
assert tune([job("a", HUNGRY)], Servers.equal(1, SHAPE)).throughput == 2
try:
    opt([job("a", HUNGRY)], Servers.equal(1, SHAPE))
except ExtraMissing as error:
    print(error)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "Synergy-OPT needs scipy: pip install 'ina[schedulers]'"
