from __future__ import annotations

from benchmarks.replicas.muri.family import POLICIES
from controller.policies.scheduling import Group, JobState, Submission
from controller.simulator import measure
from controller.simulator.generate import generate
from controller.simulator.record import given
from controller.vocabulary import Cluster


def job(order: int) -> JobState:
    return JobState(Submission(f"j{order}", 0, 2, 10), order, 1.0, 0.0)


def test_a_gpu_that_groups_share_counts_once() -> None:
    a, b, c = job(0), job(1), job(2)
    assert given([Group((a,), (0, 1)), Group((b,), (2, 3))]) == 4
    assert given([Group((a,), (0, 1), neighbours=(b,)), Group((b,), (1, 2), neighbours=(a,))]) == 3
    assert given([Group((a, b, c), (0, 1), fused=True)]) == 2
    assert given([]) == 0


def test_no_more_gpus_are_given_than_there_are() -> None:
    cluster = Cluster.uniform(2, 4)
    jobs = generate(80, cluster, load=2, seed=3, three_stages=True)
    result = POLICIES["antman"][1]({}).run(jobs, cluster, detail=True)
    assert result.curves is not None
    assert max(result.curves.gpus) <= cluster.gpus
    assert 0.5 < measure(result).gpu_busy <= 1
