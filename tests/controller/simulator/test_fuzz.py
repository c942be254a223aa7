"""A slice of `python -m benchmarks.schedulers.schedule_fuzz`, and what it has found, by name."""

from __future__ import annotations

import itertools
import math

import pytest

from benchmarks import replicas
from benchmarks.replicas.muri.family import POLICIES as REPLICAS
from benchmarks.schedulers.schedule_fuzz import Case, across_racks, draw, failure, wrong
from controller.policies.family import SimulationConfig
from controller.policies.registry import family, known
from controller.policies.scheduling import Decision, Group, JobState, Stuck, Submission, View
from controller.policies.scheduling import baselines as b
from controller.policies.scheduling.speed import ExclusiveSpeed
from controller.simulator import simulate
from controller.simulator.engine import DECISIONS
from controller.simulator.runs import make
from controller.vocabulary import Cluster, Server
from tests.controller.core.driver import Deciding

PLAIN = [name for name in known() if not family(name)]
PLAIN += map(replicas.full_name, replicas.known("muri-replica"))
STAGES = {"gpu": (0.0, 0.0, 1.0, 0.0), "mixed": (0.2, 0.2, 0.4, 0.2)}


def test_small_clusters_jobs_policies_and_costs_come_out_right() -> None:
    found = [(str(case), said) for case in (draw(n, PLAIN) for n in range(200)) if (said := failure(case))]
    assert found == []


@pytest.mark.parametrize("stages", STAGES.values(), ids=STAGES)
@pytest.mark.parametrize("name", ["las", "2d-las", "themis", "muri-l", "weave-s"])
def test_starts_that_take_as_long_as_a_time_slice_leave_time_to_work(
    name: str, stages: tuple[float, ...]
) -> None:
    jobs = [Submission(id, 0, 1, 1000, stages_s=stages, restart_s=400) for id in "ab"]
    cluster = Cluster.uniform(1, 1)
    result = make(name, SimulationConfig(cluster)).run(jobs, cluster, verify=True)
    assert len(result.jobs) == 2
    # at least half of the time is work, and two jobs interleave or take turns
    assert result.end_s <= 2 * (1000 + 1000) + 2 * 400


@pytest.mark.parametrize("slice_s", [360.0, 400.0, 400.0 + 1e-4])
def test_a_simulation_that_gets_nowhere_ends_and_names_policy_time_and_jobs(slice_s: float) -> None:
    turns = itertools.count(1)

    def take_turns(view: View) -> Decision:
        """Whatever a start costs."""
        jobs = list(view.jobs.values())
        return Decision([Group((jobs[next(turns) % len(jobs)],), (0,))], view.now_s + slice_s)

    jobs = [Submission(id, 0, 1, 1000, restart_s=400) for id in "ab"]
    said = r"slices makes no progress: asked 2,000 times from [\d,]+ s to [\d,]+ s, while 2 jobs wait: a, b"
    with pytest.raises(Stuck, match=said):
        simulate(jobs, Cluster.uniform(1, 1), Deciding(take_turns, "slices"), ExclusiveSpeed())


def test_steps_that_shrink_are_no_progress() -> None:
    def halve(view: View) -> Decision:
        next_s = view.now_s + max((10.0 - view.now_s) / 2, math.ulp(10.0))
        return Decision([Group(tuple(view.jobs.values()), (0,))], next_s)

    with pytest.raises(Stuck, match="zeno makes no progress"):
        simulate(
            [Submission("a", 0, 1, 1000)], Cluster.uniform(1, 1), Deciding(halve, "zeno"), ExclusiveSpeed()
        )


def test_a_long_job_among_many_questions_is_progress() -> None:
    jobs = [Submission("a", 0, 1, 20.0 * DECISIONS), Submission("b", 0, 1, 20.0 * DECISIONS)]
    result = simulate(jobs, Cluster.uniform(1, 1), b.las(quantum_s=4.0), ExclusiveSpeed())
    assert result.decisions > 9 * DECISIONS
    assert result.end_s == 40.0 * DECISIONS


@pytest.mark.parametrize("sizes", [(8, 4, 4), (8, 6, 6), (4, 2, 2)])
@pytest.mark.parametrize("name", [name for name in PLAIN if not name.endswith("antman")])
def test_unequal_servers_hold_a_job_of_all_their_gpus(name: str, sizes: tuple[int, ...]) -> None:
    cluster = Cluster(tuple(Server(gpus=size, name=f"n{number}") for number, size in enumerate(sizes)))
    stages = (0.4, 0.4, 0.2) if family(name) else (0.2, 0.2, 0.4, 0.2)
    jobs = [
        Submission("small", 0, 1, 100, stages_s=stages),
        Submission("all", 1, cluster.gpus, 100, stages_s=stages),
        Submission("large", 2, cluster.gpus - 1, 100, stages_s=stages),
        Submission("other", 3, sizes[-1], 100, stages_s=stages),
    ]
    result = make(name, SimulationConfig(cluster)).run(jobs, cluster, verify=True)
    assert len(result.jobs) == 4


def test_antman_says_that_its_jobs_hold_what_the_others_need() -> None:
    jobs = [
        Submission(id, at_s, gpus, seconds, stages_s=(0.3, 0.4, 0.3))
        for id, at_s, gpus, seconds in (("a", 0, 3, 73), ("b", 1, 3, 67), ("c", 3, 7, 73), ("d", 4, 5, 17))
    ]
    with pytest.raises(Stuck, match=r"deadlock at 74 s: .* as in the original \(held: c 3 of 7, d 1 of 5\)"):
        REPLICAS["antman"][1]({}).run(jobs, Cluster.uniform(2, 4))


def test_the_fuzz_sees_a_job_forgotten_and_work_lost() -> None:
    cluster = Cluster.uniform(1, 1)
    jobs = [Submission("a", 0, 1, 100), Submission("b", 0, 1, 100)]
    case = Case(0, "fifo", SimulationConfig(cluster), jobs)
    result = simulate(jobs, cluster, b.fifo(), ExclusiveSpeed())
    assert not list(wrong(case, result, exclusive=True))
    forgotten = simulate(jobs[:1], cluster, b.fifo(), ExclusiveSpeed())
    assert "jobs ended" in next(wrong(case, forgotten, exclusive=True))
    costly = Case(0, "fifo", SimulationConfig(cluster), [Submission("a", 0, 1, 100, restart_s=9)])
    paid = simulate(costly.jobs, cluster, b.fifo(), ExclusiveSpeed(restart_scale=0))
    assert "held GPUs 100 s, not 109" in next(wrong(costly, paid, exclusive=True))


def test_a_job_that_starts_across_racks_beside_an_idle_one_is_found() -> None:
    cluster = Cluster(tuple(Server(gpus=2, rack=rack) for rack in "rsrs"))
    job = JobState(Submission("large", 0, 4, 100), 0, 1.0, 0.0)
    view = View(0.0, cluster, {job.spec.name: job}, (), (), ())
    assert len([*across_racks(Decision([Group((job,), (0, 1, 2, 3))]), view)]) == 2  # either has room
    assert [*across_racks(Decision([Group((job,), (0, 1, 4, 5))]), view)] == []
