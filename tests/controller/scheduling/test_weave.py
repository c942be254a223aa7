from __future__ import annotations

import os
from pathlib import Path

import pytest

from controller.scheduling import BadSpec, Cluster, Decision, JobSpec, View
from controller.scheduling.weave import Weave
from controller.simulator import measure, simulate
from controller.simulator.families.base import SimulationConfig
from controller.simulator.policies import make
from controller.simulator.speed import Interleaved
from controller.simulator.traces import read

ONE = Cluster.uniform(1, 1)
LOADS, COMPUTES = (1.0, 0.0, 0.0, 0.0), (0.0, 0.0, 1.0, 0.0)


def spec(id: str, duration_s: float, stages_s: tuple[float, ...], gpus: int = 1) -> JobSpec:
    return JobSpec(id, 0.0, gpus, duration_s, 1.0, stages_s, restart_s=1.0)


class Watched(Weave):
    """Keeps the first decision."""

    first: list[tuple[str, ...]] | None = None

    def decide(self, view: View) -> Decision:
        decision = super().decide(view)
        if self.first is None:
            self.first = [tuple(job.spec.id for job in group.jobs) for group in decision.groups]
        return decision


def first(jobs: list[JobSpec], cluster: Cluster = ONE) -> list[tuple[str, ...]]:
    speed = Interleaved()
    policy = Watched(speed)
    simulate(jobs, cluster, policy, speed, verify=True)
    assert policy.first is not None
    return policy.first


def test_jobs_that_fit_do_not_share() -> None:
    jobs = [spec("a", 100, LOADS), spec("b", 100, COMPUTES)]
    assert sorted(first(jobs, Cluster.uniform(1, 2))) == [("a",), ("b",)]


def test_jobs_that_do_not_fit_share_if_they_interleave() -> None:
    assert first([spec("a", 100, LOADS), spec("b", 100, COMPUTES)]) == [("a", "b")]
    assert first([spec("a", 100, LOADS), spec("b", 110, LOADS)]) == [("a",)]


def test_each_gets_the_partner_that_suits() -> None:
    jobs = [spec(id, 100 + n, stages) for n, (id, stages) in enumerate(
        [("load1", LOADS), ("load2", LOADS), ("gpu1", COMPUTES), ("gpu2", COMPUTES)]
    )]  # fmt: skip
    pairs = first(jobs, Cluster.uniform(1, 2))
    assert all({job[:3] for job in pair} == {"loa", "gpu"} for pair in pairs)


def test_large_jobs_find_room_and_no_gpu_idles() -> None:
    jobs = [spec("small", 10, LOADS), spec("large", 100, LOADS, 4), spec("other", 1000, LOADS, 3)]
    assert {*first(jobs, Cluster.uniform(1, 4))} == {("small",), ("other",)}


@pytest.mark.parametrize("options", [{"members": 0}, {"power": -1.0}, {"width": 0}])
def test_options_out_of_range_are_refused(options: dict[str, int]) -> None:
    with pytest.raises(BadSpec):
        Weave(Interleaved(), **options)  # type: ignore[arg-type]


def test_jobs_without_a_profile_are_refused() -> None:
    with pytest.raises(BadSpec, match="job 'a' has 0 stage times"):
        first([JobSpec("a", 0, 1, 10)])


@pytest.mark.slow
@pytest.mark.skipif("INA_TRACES" not in os.environ, reason="INA_TRACES names no folder with muri/trace3.csv")
@pytest.mark.parametrize("rules", ["", "muri-replica:"])
@pytest.mark.parametrize("trace", ["trace3", "trace3_pr", "job_type_2", "job_type_3"])
def test_average_and_tail_are_better_than_muris(trace: str, rules: str) -> None:
    cluster = Cluster.uniform(8, 8)
    jobs = read(Path(os.environ["INA_TRACES"]) / "muri" / f"{trace}.csv", cluster)
    ours, theirs = (
        measure(make(rules + name, SimulationConfig(cluster)).run(jobs, cluster))
        for name in ("weave-s", "muri-s")
    )
    assert ours.avg_jct_s < theirs.avg_jct_s
    assert ours.p99_jct_s < theirs.p99_jct_s
