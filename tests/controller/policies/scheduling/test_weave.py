"""What is foreseen of a decision, beside what comes of it."""

from __future__ import annotations

import math
import os
import statistics
from dataclasses import replace
from pathlib import Path

import pytest

from controller.policies.family import SimulationConfig
from controller.policies.scheduling import BadSpec, Decision, Submission, View
from controller.policies.scheduling.options import PaperOptions
from controller.policies.scheduling.policy import JobState
from controller.policies.scheduling.ranked import DurationEstimates, EstimateError
from controller.policies.scheduling.speed import InterleavedSpeed
from controller.policies.scheduling.weave import RoundLengthening, Weave
from controller.simulator import measure, simulate
from controller.simulator.generate import generate
from controller.simulator.runs import make
from controller.simulator.traces import read
from controller.vocabulary import Cluster
from tests.controller.core.driver import Deciding

STAGES = (0.5, 0.25, 0.125, 0.0)


def job(number: int, model: str = "resnet18", stages_s: tuple[float, ...] = STAGES) -> JobState:
    return JobState(Submission(f"j{number}", 0.0, 1, 100.0, 1.0, stages_s, model=model), number, 1.0, 0.0)


def test_the_spread_of_told_durations_is_that_of_their_error() -> None:
    spread = EstimateError()
    assert spread.value == 0.0
    told = DurationEstimates(0.5, seed=3)
    for number in range(500):
        one = job(number)
        spread.expect(one, told.remaining_s(one, 0.0))
        spread.compare(one, one.spec.iterations * one.alone_s)
    assert spread.value == pytest.approx(0.5, abs=0.05)


def test_a_constant_factor_is_no_spread() -> None:
    spread = EstimateError()
    for number in range(20):
        spread.expect(job(number), 300.0)
        spread.compare(job(number), 600.0)
    spread.expect(job(20), 300.0)
    spread.compare(job(20), 0.0)
    spread.expect(job(21), math.inf)
    spread.compare(job(21), 600.0)
    assert spread.count == 20, "stopped for good, or never to end: they say nothing"
    assert spread.value == pytest.approx(0.0, abs=1e-9)
    assert spread.around_zero == pytest.approx(math.log(2))


ONE = Cluster.uniform(1, 1)
LOADS, COMPUTES = (1.0, 0.0, 0.0, 0.0), (0.0, 0.0, 1.0, 0.0)


def spec(id: str, duration_s: float, stages_s: tuple[float, ...], gpus: int = 1) -> Submission:
    return Submission(id, 0.0, gpus, duration_s, 1.0, stages_s, restart_s=0.1)


class Watched(Weave):
    """Keeps the first decision."""

    first: list[tuple[str, ...]] | None = None

    def decide(self, view: View) -> Decision:
        decision = super().decide(view)
        if self.first is None:
            self.first = [tuple(job.spec.name for job in group.jobs) for group in decision.groups]
        return decision


def first(jobs: list[Submission], cluster: Cluster = ONE) -> list[tuple[str, ...]]:
    speed = InterleavedSpeed()
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


def test_jobs_without_a_profile_are_refused() -> None:
    with pytest.raises(BadSpec, match="job 'a' has 0 stage times"):
        first([Submission("a", 0, 1, 10)])


def average_s(name: str, **settings: float) -> float:
    cluster = Cluster.uniform(1, 4)
    jobs = generate(60, cluster, load=2, seed=3, longest_s=20_000)
    config = SimulationConfig(cluster, settings=tuple(settings.items()))
    return measure(make(name, config).run(jobs, cluster)).avg_jct_s


@pytest.mark.parametrize("name", ["muri-s", "weave-s"])
@pytest.mark.parametrize("error", ["noise", "estimate_error"])
def test_errors_of_profiles_and_durations_are_told_to_both(name: str, error: str) -> None:
    assert average_s(name, **{error: 0.9}) != average_s(name)
    assert average_s(name, **{error: 0.0}) == average_s(name)


def test_an_error_is_a_factor_of_each_job_that_stays_and_has_no_bias() -> None:
    told = DurationEstimates(0.5, seed=1)
    cluster = Cluster.uniform(1, 1)
    asked: list[float] = []

    class Asks(Weave):
        def decide(self, view: View) -> Decision:
            asked.extend(told.remaining_s(job, view.now_s) for job in view.arrived)
            return super().decide(view)

    jobs = [spec(f"j{number}", 100, COMPUTES) for number in range(400)]
    simulate(jobs, cluster, Asks(InterleavedSpeed()), InterleavedSpeed())
    assert statistics.fmean(math.log(left_s / 100) for left_s in asked) == pytest.approx(0, abs=0.05)
    assert statistics.stdev(math.log(left_s / 100) for left_s in asked) == pytest.approx(0.5, abs=0.05)
    with pytest.raises(BadSpec, match="setting estimate_error=-1: want 0 to 5"):
        PaperOptions(estimate_error=-1.0)


SIXTEEN = Cluster.uniform(2, 8)


@pytest.mark.parametrize("seed", range(5, 8))
def test_short_jobs_with_wrong_durations_end_as_soon_as_with_srsf(seed: int) -> None:
    """Groups of greatest worth were taken whatever their restarts cost: the mean was 14 % above SRSF's."""
    jobs = [
        replace(job, gpus=1, arrival_s=job.arrival_s / 4)
        for job in generate(80, SIXTEEN, load=2, seed=seed, shortest_s=30, longest_s=600)
    ]
    weave, srsf = (
        measure(make(name, SimulationConfig(SIXTEEN, seed=seed, settings=settings)).run(jobs, SIXTEEN))
        for name, settings in (
            ("weave-s", (("noise", 0.5), ("estimate_error", 0.5))),
            ("srsf", (("estimate_error", 0.5),)),
        )
    )
    assert weave.avg_jct_s < 1.03 * srsf.avg_jct_s
    assert weave.avg_slowdown < 1.03 * srsf.avg_slowdown


def test_how_much_longer_rounds_are_is_learnt_from_groups_that_run() -> None:
    longer = RoundLengthening()
    assert longer.factor(2) == 1.0
    assert longer.learn([(2, 1.3), (2, 1.32)])
    assert longer.factor(2) == pytest.approx(1.31)
    assert not longer.learn([(2, 1.31)])
    assert longer.factor(3) == 1.0


def test_groups_that_do_not_pay_as_measured_are_given_up() -> None:
    # predicted: 1.8 s of work in rounds of 1 s; as measured, rounds are twice as long, and alone is better
    stages = (0.9, 0.0, 0.1, 0.0), (0.1, 0.0, 0.8, 0.1)
    jobs = [spec(f"{kind}{number}", 1000, stages[kind]) for kind in (0, 1) for number in range(4)]
    jobs.append(replace(jobs[0], name="late", arrival_s=10.0))  # when it comes, a pair is seen running
    measured = InterleavedSpeed(contention=(1.0, 2.0, 3.0, 4.0))

    class InPairs(Weave):
        members = 2

    policy = InPairs(InterleavedSpeed(contention=(1.0,) * 4))
    sizes: list[int] = []

    def watched(view: View) -> Decision:
        decision = policy.decide(view)
        sizes.append(max((len(group.jobs) for group in decision.groups), default=0))
        return decision

    simulate(jobs, ONE, Deciding(watched), measured, verify=True)
    assert sizes[0] == 2
    assert len(sizes) > 5
    assert 2 not in sizes[1:]


def test_a_weight_of_short_jobs_is_good_for_their_slowdown() -> None:
    cluster = Cluster.uniform(2, 4)
    jobs = generate(100, cluster, load=2, seed=5)
    slowdowns = [
        measure(make("weave-s", SimulationConfig(cluster, settings=(("short", short),))).run(jobs, cluster))
        for short in (0.0, 0.8)
    ]
    assert slowdowns[1].avg_slowdown < slowdowns[0].avg_slowdown


@pytest.mark.slow
@pytest.mark.skipif("INA_TRACES" not in os.environ, reason="INA_TRACES names no folder with muri/trace3.csv")
@pytest.mark.parametrize("rules", ["", "benchmarks.replicas.muri:"])
@pytest.mark.parametrize("trace", ["trace3", "trace3_pr", "job_type_2", "job_type_3"])
def test_average_and_slowdown_are_better_than_muris(trace: str, rules: str) -> None:
    cluster = Cluster.uniform(8, 8)
    jobs = read(Path(os.environ["INA_TRACES"]) / "muri" / f"{trace}.csv", cluster)
    ours, theirs = (
        measure(make(rules + name, SimulationConfig(cluster)).run(jobs, cluster))
        for name in ("weave-s", "muri-s")
    )
    assert ours.avg_jct_s < theirs.avg_jct_s
    # where all jobs come at once short ones pay: the page of results says so
    assert ours.avg_slowdown < (1.4 if trace == "trace3_pr" else 1.0) * theirs.avg_slowdown
