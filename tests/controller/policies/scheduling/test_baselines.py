"""Themis."""

from __future__ import annotations

import pytest

from controller.policies.scheduling import Submission, baselines
from controller.policies.scheduling.speed import ExclusiveSpeed
from controller.policies.scheduling.themis import Themis
from controller.simulator import measure, simulate
from controller.vocabulary import Cluster

ONE = Cluster.uniform(1, 1)


def ends(jobs: list[Submission], policy: Themis, cluster: Cluster = ONE) -> dict[str, float]:
    result = simulate(jobs, cluster, policy, ExclusiveSpeed(), verify=True)
    return {job.spec.name: job.finish_s for job in result.jobs}


@pytest.mark.parametrize(
    ("jobs", "expected"),
    [
        ([Submission("a", 0, 1, 200), Submission("b", 0, 1, 200)], {"a": 300, "b": 400}),
        # at 50 the lease has 50 s to go; at 100 "short" is far behind its fair share, "long" is not
        ([Submission("long", 0, 1, 1000), Submission("short", 50, 1, 10)], {"short": 110, "long": 1010}),
    ],
    ids=["equals take turns", "who has waited longest for its size wins"],
)
def test_leases_are_kept_to_their_end(jobs: list[Submission], expected: dict[str, float]) -> None:
    assert ends(jobs, Themis(lease_s=100)) == expected


def test_no_gpu_idles_that_somebody_can_use() -> None:
    jobs = [Submission("a", 0, 1, 100), Submission("big", 0, 2, 100), Submission("b", 0, 1, 100)]
    assert sorted(ends(jobs, Themis(lease_s=1000), Cluster.uniform(1, 2)).values()) == [100, 100, 200]


def test_it_is_fairer_than_shortest_first() -> None:
    jobs = [Submission(f"j{n}", n * 50.0, 1, 100.0 * (1 + n % 9)) for n in range(60)]
    fair = measure(simulate(jobs, Cluster.uniform(1, 4), Themis(lease_s=60), ExclusiveSpeed()))
    srsf = measure(simulate(jobs, Cluster.uniform(1, 4), baselines.srsf(), ExclusiveSpeed()))
    assert fair.p99_slowdown < srsf.p99_slowdown
    assert fair.avg_jct_s > srsf.avg_jct_s
