"""Which job ends next, however often jobs were started anew in between."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from controller.policies.family import SimulationConfig
from controller.policies.scheduling import (
    BadDecision,
    BadSpec,
    Decision,
    Group,
    JobState,
    Policy,
    Stuck,
    Submission,
    View,
)
from controller.policies.scheduling import baselines as b
from controller.policies.scheduling.speed import ExclusiveSpeed
from controller.policies.scheduling.tiresias import Tiresias
from controller.simulator import measure, simulate
from controller.simulator.clusters import read_cluster
from controller.simulator.engine import ROOM, EndQueue
from controller.simulator.generate import generate
from controller.simulator.runs import make
from controller.vocabulary import Cluster, Server
from tests.controller.core.driver import Deciding
from tests.controller.simulator.commands import schedule


def test_what_restarts_have_outdated_neither_comes_out_nor_piles_up() -> None:
    rng = random.Random(3)
    specs = [Submission(f"j{number}", 0.0, 1, iterations=100) for number in range(20)]
    jobs = [JobState(spec, number, 1.0, 0.0) for number, spec in enumerate(specs)]
    ends = EndQueue()
    for step in range(2_000):
        job = rng.choice(jobs)
        job.launch(float(step), Group((job,), (0,)), rng.uniform(1e3, 1e6), 1.0)
        ends.push(job)
        assert ends.next_s() == min(one.end_s() for one in jobs if one.group is not None)
        assert len(ends) <= 2 * len(jobs) + ROOM
    for expected in sorted(jobs, key=lambda one: (one.end_s(), one.order)):
        assert ends.pop() == [expected]
        expected.finish(2_000.0)
    assert not ends


ONE = Cluster.uniform(1, 1)


def spec(id: str, submit_s: float, duration_s: float, gpus: int = 1, restart_s: float = 0.0) -> Submission:
    return Submission(id, submit_s, gpus, duration_s, restart_s=restart_s)


def ends(
    jobs: list[Submission], policy: Policy, cluster: Cluster = ONE, interval_s: float = 0.0
) -> dict[str, float]:
    result = simulate(jobs, cluster, policy, ExclusiveSpeed(), interval_s=interval_s, verify=True)
    served_s = sum(job.attained_s * job.spec.gpus for job in result.jobs)
    assert interval_s or result.gpu_integral == pytest.approx(served_s), "GPUs are given for work alone"
    return {job.spec.name: job.finish_s for job in result.jobs}


def test_fifo_on_one_server_is_lindleys_recursion() -> None:
    jobs = generate(200, ONE, load=0.9, seed=4)
    free_s, expected = 0.0, {}
    for job in jobs:
        free_s = max(free_s, job.arrival_s) + job.duration_s + job.restart_s
        expected[job.name] = free_s
    assert ends(jobs, b.fifo()) == pytest.approx(expected)


BIG = [spec("a", 0, 10, 1), spec("big", 1, 10, 2), spec("b", 2, 5, 1)]


@pytest.mark.parametrize(
    ("jobs", "policy", "gpus", "interval_s", "expected"),
    [
        pytest.param(
            # 5 s of start, 5 s of work, then 10 s of the other, then again 5 s of start and the other 95 s
            *([spec("long", 0, 100, restart_s=5), spec("short", 10, 10)], b.srtf, 1, 0),
            {"short": 20, "long": 120},
            id="srtf preempts and pays for restarts",
        ),
        pytest.param(
            *([spec("a", 0, 100), spec("b", 0, 100)], partial(b.las, quantum_s=10), 1, 0),
            {"a": 190, "b": 200},
            id="las takes turns",
        ),
        pytest.param(
            *([spec("a", 0, 100), spec("b", 1, 20)], partial(Tiresias, (50.0,)), 1, 0),
            {"b": 70, "a": 120},
            id="tiresias lets a long job sink",
        ),
        pytest.param(BIG, b.fifo, 2, 0, {"a": 10, "big": 20, "b": 25}, id="strict fifo does not overtake"),
        pytest.param(
            *(BIG, partial(b.fifo, backfill=True), 2, 0),
            {"b": 7, "a": 10, "big": 20},
            id="backfill overtakes",
        ),
        pytest.param(
            *([spec("a", 1, 10), spec("b", 2, 10)], b.fifo, 1, 60),
            {"a": 70, "b": 130},
            id="an interval delays decisions and nothing else",
        ),
    ],
)
def test_jobs_end_when_their_policy_lets_them(
    jobs: list[Submission],
    policy: Callable[[], Policy],
    gpus: int,
    interval_s: float,
    expected: dict[str, float],
) -> None:
    assert ends(jobs, policy(), Cluster.uniform(1, gpus), interval_s) == expected


def asked_s(jobs: list[Submission], wake_s: float, interval_s: float = 0.0) -> list[float]:
    """Return when a policy is asked that serves first come, first served and asks to be woken once."""
    asked: list[float] = []
    policy = b.fifo()

    def decide(view: View) -> Decision:
        asked.append(view.now_s)
        return Decision(policy.decide(view).groups, wake_s if view.now_s < wake_s else None)

    ends(jobs, Deciding(decide), interval_s=interval_s)
    return asked


def test_a_wish_to_be_woken_is_granted_at_the_next_interval() -> None:
    assert asked_s([spec("a", 0, 10)], 5.5, interval_s=1)[:2] == [0.0, 6.0]
    # nor does an end and an arrival at one time hide it
    assert asked_s([spec("a", 0, 10), spec("b", 10, 5)], 5.0)[:3] == [0.0, 5.0, 10.0]


def test_moving_a_job_costs_a_restart_and_staying_does_not() -> None:
    def move(view: View) -> Decision:
        if not view.jobs:
            return Decision([])
        gpu = 0 if view.now_s < 10 else 1
        return Decision([Group((view.jobs["a"],), (gpu,))], view.now_s + 5 if view.now_s < 40 else None)

    found = ends([spec("a", 0, 100, restart_s=3)], Deciding(move), Cluster.uniform(1, 2))
    assert found == {"a": 106}


@pytest.mark.parametrize(
    ("answer", "complaint"),
    [
        (lambda v: Decision([Group((v.jobs["a"],), (0,)), Group((v.jobs["b"],), (0,))]), "GPU 0 goes to"),
        (lambda v: Decision([Group((v.jobs["a"],), (0,)), Group((v.jobs["a"],), (1,))]), "runs twice"),
        (lambda v: Decision([Group((v.jobs["a"],), (0, 1))]), "needs 1 GPU, got 2"),
        (lambda v: Decision([Group((v.jobs["a"],), (2,))]), "the cluster has 2"),
        (lambda v: Decision([Group((), (0,))]), "there is no job in the group"),
        (lambda v: Decision([Group((v.jobs["a"],), (0,), cpus=(5.0,))]), "5 of 4 CPUs"),
        (lambda v: Decision([], wake_s=v.now_s), "woken"),
    ],
)
def test_impossible_decisions_are_refused(answer: Callable[[View], Decision], complaint: str) -> None:
    cluster = Cluster((Server(gpus=2, cpus=4),))
    with pytest.raises(BadDecision, match=complaint):
        simulate([spec("a", 0, 1), spec("b", 0, 1)], cluster, Deciding(answer), ExclusiveSpeed(), verify=True)


def test_a_policy_that_starves_a_job_is_named() -> None:
    with pytest.raises(Stuck, match=r"deciding runs nothing .* 1 jobs wait: a"):
        simulate([spec("a", 0, 1)], ONE, Deciding(lambda view: Decision([])), ExclusiveSpeed())


@pytest.mark.parametrize("interval_s", [-1.0, float("inf"), float("nan")])
def test_intervals_that_cannot_be_are_refused(interval_s: float) -> None:
    with pytest.raises(BadSpec, match="an interval of"):
        simulate([], ONE, b.fifo(), ExclusiveSpeed(), interval_s=interval_s)


@pytest.mark.parametrize(
    ("call", "why"),
    [
        (
            lambda: simulate([spec("a", 0, 1, 2)], ONE, b.fifo(), ExclusiveSpeed()),
            "asks for 2 GPUs; the cluster has 1",
        ),
        (
            lambda: simulate([spec("a", 0, 1), spec("a", 0, 1)], ONE, b.fifo(), ExclusiveSpeed()),
            "two jobs are called 'a'",
        ),
        (
            lambda: make("fifo", SimulationConfig(CLUSTER)).run([Submission("j", 0, 1, 10)], CLUSTER),
            "'j' is of virtual cluster ''; the cluster is divided into x, y",
        ),
        (
            lambda: make("fifo", SimulationConfig(CLUSTER)).run([Submission("j", 0, 3, 10, vc="y")], CLUSTER),
            "'j' asks for 3 GPUs; the cluster has 2",
        ),
        (
            lambda: Cluster((CLUSTER.servers[0], replace(CLUSTER.servers[1], vc=""))),
            "server 'b' is in no virtual cluster, but others are",
        ),
    ],
)
def test_jobs_that_cannot_be_are_refused(call: Callable[[], object], why: str) -> None:
    with pytest.raises(BadSpec, match=why):
        call()


def test_no_job_is_no_work() -> None:
    metrics = measure(simulate([], ONE, b.fifo(), ExclusiveSpeed()))
    assert (metrics.jobs, metrics.avg_jct_s, metrics.makespan_s) == (0, 0, 0)


# ---------------------------------------------------------------------------
# Clusters that are divided into virtual clusters.


CLUSTER = Cluster(
    (Server(gpus=4, name="a", vc="x"), Server(gpus=2, name="b", vc="y"), Server(gpus=4, name="c", vc="x"))
)


@pytest.mark.parametrize("policy", ["srsf", "muri-s", "las"])
def test_each_virtual_cluster_is_as_if_it_were_alone(policy: str) -> None:
    specs = generate(40, CLUSTER, longest_s=3000, load=2)
    config = SimulationConfig(CLUSTER)
    whole = make(policy, config).run(specs, CLUSTER, detail=True, verify=True)
    ends = {job.spec.name: job.finish_s for job in whole.jobs}
    assert len(ends) == 40
    for vc in "xy":
        part = CLUSTER.part(vc)
        mine = [spec for spec in specs if spec.vc == vc]
        alone = make(policy, SimulationConfig(part)).run(mine, part)
        assert {job.spec.name: job.finish_s for job in alone.jobs} == {
            spec.name: ends[spec.name] for spec in mine
        }
    assert whole.curves is not None
    assert max(whole.curves.gpus) <= CLUSTER.gpus


def test_virtual_clusters_come_from_the_file_of_servers(write_file: Callable[[str, str], Path]) -> None:
    path = write_file("servers.csv", "gpus,vc,count\n4,x,2\n2,y,1\n")
    assert [(node.gpus, node.vc) for node in read_cluster(path).servers] == [(4, "x"), (4, "x"), (2, "y")]
    ran = schedule(
        "simulate", "--generate", 20, "--cluster", path, "--policy", "srsf,tiresias", "--json",
        "--processes", 1,
    )  # fmt: skip
    assert ran.code == 0
    assert [metrics["jobs"] for metrics in ran.json["metrics"].values()] == [20, 20]
    jobs = write_file("jobs.csv", "name,arrival_s,duration_s,gpus,vc\n1,0,10,1,x\n")
    ran = schedule("plan", "--jobs", jobs, "--cluster", path, "--policy", "srsf")
    assert ran.code == 2
    assert "2 virtual clusters; give the servers of one" in ran.complaint


def test_a_file_says_which_racks_servers_stand_in(write_file: Callable[[str, str], Path]) -> None:
    path = write_file("racks.csv", "gpus,rack,count\n4,a,2\n4,b,2\n")
    assert read_cluster(path).racks == (frozenset({0, 1}), frozenset({2, 3}))
