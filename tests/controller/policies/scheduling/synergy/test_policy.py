"""Synergy's policies in the simulator."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.replicas.steps import SteppedRun
from benchmarks.replicas.synergy.rules import RoundSpeed, replica_demands, replica_policy
from controller.policies.family import SimulationConfig
from controller.policies.registry import complete_jobs
from controller.policies.scheduling import BadSpec, Decision, Group, JobState, Submission, View
from controller.policies.scheduling.synergy.allocators import tune
from controller.policies.scheduling.synergy.demand import ModelProfile, Servers, demand
from controller.policies.scheduling.synergy.family import ALLOCATORS, synergy
from controller.policies.scheduling.synergy.policy import (
    RANKS,
    ShareSpeed,
    SynergyPolicy,
    demands_by_matrix,
    servers_of,
)
from controller.simulator import measure, simulate
from controller.simulator.generate import generate
from controller.simulator.runs import make
from controller.vocabulary import Cluster, Server
from tests import effort
from tests.controller.policies.scheduling.synergy.cases import CACHING, HUNGRY, MODEST, SHAPE

CLUSTER = Cluster.uniform(2, SHAPE.gpus, cpus=SHAPE.cpus, memory_gb=SHAPE.memory_gb)
MATRICES = {"hungry": HUNGRY, "modest": MODEST, "caching": CACHING}
WANTS = demands_by_matrix(MATRICES, SHAPE)
ROUND_S = 300
PROFILES = {
    "hungry": ModelProfile("hungry", HUNGRY, 1, 0.7, 2.0, 6, 25),
    "modest": ModelProfile("modest", MODEST, 1, 0.7, 1.0, 1, 10),
}


class Checked:
    """Passes on what a policy decides, after adding up what it gives away."""

    def __init__(self, policy: SynergyPolicy) -> None:
        self.name = policy.name
        self.policy = policy

    def decide(self, view: View) -> Decision:
        decision = self.policy.decide(view)
        for number, node in enumerate(view.cluster.servers):
            cpus = memory = 0.0
            for group in decision.groups:
                here = sum(view.cluster.node_of[gpu] == number for gpu in group.gpus) / len(group.gpus)
                cpus += here * group.cpus[0]
                memory += here * group.memory_gb[0]
            assert cpus <= node.cpus + 1e-5
            assert memory <= node.memory_gb + 1e-5
        return decision


@st.composite
def traces(draw: st.DrawFn) -> list[Submission]:
    jobs = draw(
        st.lists(
            st.tuples(
                st.integers(0, 3000),
                st.integers(1, 6),
                st.integers(1, 4000),
                st.sampled_from(sorted(MATRICES)),
            ),
            min_size=1,
            max_size=14,
        )
    )
    return [Submission(str(i), s, g, n, 0.7, model=m) for i, (s, g, n, m) in enumerate(jobs)]


@pytest.mark.parametrize("order", RANKS)
@pytest.mark.parametrize("allocator", [name for name in ALLOCATORS if name != "opt"])
@settings(max_examples=effort.cases(15), deadline=None)
@given(specs=traces())
def test_every_job_ends_and_nothing_is_given_twice(
    order: str, allocator: str, specs: list[Submission]
) -> None:
    policy = Checked(synergy(order, allocator, WANTS))
    result = simulate(specs, CLUSTER, policy, ShareSpeed(WANTS), interval_s=ROUND_S, verify=True)
    assert len(result.jobs) == len(specs)
    for job in result.jobs:
        fastest = job.spec.duration_s / WANTS(job.spec).ideal.speed
        assert job.attained_s >= fastest * (1 - 1e-9)
        if allocator in ("tune", "tune+top-up"):  # never slower than the fair share
            assert job.attained_s <= job.spec.duration_s * (1 + 1e-9)
        if allocator == "proportional":
            assert job.attained_s == pytest.approx(job.spec.duration_s)


@pytest.mark.parametrize("mode", ["fair", "greedy", "tune"])
@pytest.mark.parametrize("order", ["fifo", "srtf", "las", "ftf", "drf", "tetris"])
@settings(max_examples=10, deadline=None)
@given(specs=traces())
def test_the_public_rules_end_every_job_at_a_round(order: str, mode: str, specs: list[Submission]) -> None:
    specs = [s for s in specs if s.model in PROFILES and s.gpus in (1, 2, 4)]
    wants = replica_demands(PROFILES, SHAPE)
    speed = RoundSpeed(wants)
    policy = Checked(replica_policy(order, mode, wants, servers=Servers.equal(2, SHAPE)))
    result = SteppedRun(policy, speed, ROUND_S).run(specs, CLUSTER, verify=True)
    assert len(result.jobs) == len(specs)
    for job in result.jobs:
        assert job.finish_s % 300 == 0


def test_opt_is_a_policy_too() -> None:
    pytest.importorskip("scipy")
    specs = [Submission(name, 0, 1, 1000, 1.0, model="hungry") for name in "ab"]
    specs += [Submission(name, 0, 1, 1000, 1.0, model="modest") for name in "cd"]
    cluster = Cluster.uniform(1, 4, cpus=12, memory_gb=100)
    result = simulate(specs, cluster, synergy("fifo", "opt", WANTS), ShareSpeed(WANTS), interval_s=ROUND_S)
    # one hungry job has 6 CPUs, then the other one
    assert sorted(job.jct_s for job in result.jobs) == pytest.approx([500, 800, 1000, 1000])


def test_a_round_holds_whole_iterations_only() -> None:
    wants = replica_demands(PROFILES, SHAPE)
    speed = RoundSpeed(wants)
    # at 0.7 s, 428 iterations fit into a round; at 0.35 s, 857
    specs = [Submission("m", 0, 1, 857, 0.7, model="modest"), Submission("h", 0, 1, 857, 0.7, model="hungry")]
    policy = replica_policy("fifo", "tune", wants, servers=Servers.equal(2, SHAPE))
    jobs = SteppedRun(policy, speed, ROUND_S).run(specs, CLUSTER).jobs
    assert {job.spec.name: job.finish_s for job in jobs} == {"m": 900, "h": 300}


def test_a_job_of_whole_rounds_takes_no_round_more() -> None:
    wants = replica_demands(PROFILES, SHAPE)
    for rounds in (1, 3, 7, 100):
        specs = [Submission("m", 0, 1, 428 * rounds, 0.7, model="modest")]
        policy = replica_policy("srtf", "fair", wants, servers=Servers.equal(2, SHAPE))
        speed = RoundSpeed(wants)
        (ended,) = SteppedRun(policy, speed, ROUND_S).run(specs, CLUSTER).jobs
        assert ended.finish_s == 300 * rounds


def test_an_iteration_longer_than_a_round_is_refused() -> None:
    wants = replica_demands(PROFILES, SHAPE)
    specs = [Submission("slow", 0, 1, 1, 301, model="modest")]
    policy = replica_policy("fifo", "fair", wants, servers=Servers.equal(2, SHAPE))
    with pytest.raises(BadSpec, match="'slow' needs 301 s for an iteration; a round of 300 s holds none"):
        simulate(specs, CLUSTER, policy, RoundSpeed(wants), interval_s=ROUND_S)


def test_a_grant_between_options_counts_as_the_lower_one() -> None:
    speed = ShareSpeed(WANTS)
    job = JobState(Submission("h", 0, 2, 10, 1.0, model="hungry"), 0, 1.0, 0.0)
    assert speed.iteration_s(Group((job,), (0, 1), cpus=(12,), memory_gb=(50,))) == [0.5]
    assert speed.iteration_s(Group((job,), (0, 1), cpus=(11.9,), memory_gb=(50,))) == [1.0]
    assert speed.iteration_s(Group((job,), (0, 1))) == [1.0]
    with pytest.raises(BadSpec, match="2 jobs on one set of GPUs"):
        speed.iteration_s(Group((job, job), (0, 1)))


def test_a_job_that_stays_keeps_its_gpus_and_its_group() -> None:
    policy = synergy("srtf", "tune", WANTS)
    jobs = {
        name: JobState(Submission(name, 0, 1, left, 1.0, model="modest"), order, 1.0, 0.0)
        for order, (name, left) in enumerate((("a", 900), ("b", 500), ("c", 700)))
    }
    first = policy.decide(View(0, CLUSTER, jobs, list(jobs.values()), [], []))
    del jobs["b"]
    second = policy.decide(View(300, CLUSTER, jobs, [], [], first.groups))
    by_job = {group.jobs[0].spec.name: group for group in first.groups}
    assert second.wake_s == 600
    assert [by_job[group.jobs[0].spec.name] is group for group in second.groups] == [True, True]


def test_srtf_with_tune_beats_its_fair_self_and_opt_bounds_it() -> None:
    pytest.importorskip("scipy")
    models = ["hungry", "modest", "modest", "modest"]
    specs = [
        Submission(str(i), 200 * i, 1 + i % 2, 2000 + 700 * (i * 7 % 11), 1.0, model=models[i % 4])
        for i in range(40)
    ]
    jct = {
        name: measure(
            simulate(specs, CLUSTER, synergy("srtf", name, WANTS), ShareSpeed(WANTS), interval_s=ROUND_S)
        ).avg_jct_s
        for name in ("proportional", "tune", "opt")
    }
    assert jct["tune"] < 0.95 * jct["proportional"]
    assert jct["tune"] < 1.1 * jct["opt"]


def test_an_unknown_model_is_named() -> None:
    with pytest.raises(BadSpec, match="trains 'what', which has no sensitivity matrix; there are: hungry"):
        WANTS(Submission("x", 0, 1, 1, model="what"))


UNEQUAL = Cluster(
    (
        Server(gpus=4, cpus=12, memory_gb=100, name="a"),
        Server(gpus=2, cpus=12, memory_gb=100, name="rich"),
        Server(gpus=1, cpus=3, memory_gb=25, name="b"),
    )
)


@pytest.mark.parametrize("allocator", ALLOCATORS)
def test_on_unequal_servers_nobody_gets_what_is_not_there(allocator: str) -> None:
    if allocator == "opt":
        pytest.importorskip("scipy")
    wants = demands_by_matrix(MATRICES, servers_of(UNEQUAL))
    models = ["hungry", "modest", "caching"]
    specs = [Submission(str(i), 90 * i, 1 + i * 3 % 7, 900, 1.0, model=models[i % 3]) for i in range(21)]
    policy = Checked(synergy("srtf", allocator, wants, stay=True))
    result = simulate(specs, UNEQUAL, policy, ShareSpeed(wants), interval_s=ROUND_S, verify=True)
    assert len(result.jobs) == 21


def test_a_job_of_many_gpus_finds_its_ideal_share_on_the_largest_servers() -> None:
    servers = servers_of(UNEQUAL)
    assert servers.most(1) == (12, 100)
    assert servers.most(5) == (12 / 3, 100 / 3)  # three there, two on the rich one
    plan = tune([demand("j", 6, HUNGRY, servers)], servers)
    assert sum(gpus for _, gpus in plan.grants[0].split) == 6


def test_a_restart_costs_and_jobs_stay_where_they_are() -> None:
    cluster = Cluster.uniform(4, 8, cpus=24, memory_gb=500)
    starts, average_s = {}, {}
    for cost, stay in ((0, 0), (1, 0), (1, 1)):
        config = SimulationConfig(cluster, settings=(("restart_scale", 10 * cost), ("stay", stay)))
        jobs = complete_jobs(generate(120, cluster, longest_s=20_000), "synergy", config)
        result = make("synergy:srtf+tune", config).run(jobs, cluster)
        starts[cost, stay] = sum(job.starts for job in result.jobs)
        average_s[cost, stay] = measure(result).avg_jct_s
    assert starts[1, 1] < 0.7 * starts[1, 0]
    assert average_s[0, 0] < average_s[1, 1] < average_s[1, 0]


def test_restarts_longer_than_a_round_are_no_endless_simulation() -> None:
    specs = [Submission(name, 0, 8, 1000, 1.0, model="modest", restart_s=400) for name in "ab"]
    policy, speed = synergy("las", "tune", WANTS), ShareSpeed(WANTS, restart_scale=1.0)
    assert len(simulate(specs, CLUSTER, policy, speed, interval_s=ROUND_S).jobs) == 2
