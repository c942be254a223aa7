from __future__ import annotations

import math
import statistics
from dataclasses import replace

import pytest

from controller.policies.scheduling import BadSpec, Submission
from controller.policies.scheduling.beliefs import Lengths, Profiler, Profiles, Spread, Told
from controller.policies.scheduling.policy import JobState
from controller.policies.scheduling.speed import Interleaved
from controller.policies.scheduling.weave import Weave
from controller.simulator import simulate
from controller.simulator.generate import generate
from controller.vocabulary import Cluster

STAGES = (0.5, 0.25, 0.125, 0.0)


def job(number: int, model: str = "resnet18", stages_s: tuple[float, ...] = STAGES) -> JobState:
    return JobState(Submission(f"j{number}", 0.0, 1, 100.0, 1.0, stages_s, model=model), number, 1.0, 0.0)


def test_profiles_of_like_jobs_come_nearer_to_the_truth() -> None:
    profiles = Profiles(Profiler(0.5, seed=1))
    off = []
    for number in range(200):
        one = job(number)
        like, _ = profiles.measure(one)
        off.append(math.dist(profiles.of(one.spec, like).stages_s, STAGES))
    assert statistics.fmean(off[-20:]) < 0.1 * off[0]
    assert max(off[-20:]) < 0.03


def test_exact_profiles_are_believed_as_they_are_at_once() -> None:
    profiles = Profiles(Profiler())
    for number in range(3):
        one = job(number)
        like, changed = profiles.measure(one)
        assert not changed
        assert profiles.of(one.spec, like).stages_s == STAGES


def test_jobs_without_a_model_are_alike_only_if_measured_so() -> None:
    profiles = Profiles(Profiler())
    other = (0.0, 0.0, 1.0, 0.0)
    kinds = {profiles.measure(job(n, "", stages))[0] for n, stages in enumerate([STAGES, other, STAGES])}
    assert len(kinds) == 2


def test_the_spread_of_told_durations_is_that_of_their_error() -> None:
    spread = Spread()
    assert spread.value == 0.0
    told = Told(0.5, seed=3)
    for number in range(500):
        one = job(number)
        spread.tell(one, told.remaining_s(one, 0.0))
        spread.end(one, one.spec.iterations * one.alone_s)
    assert spread.value == pytest.approx(0.5, abs=0.05)


def test_a_constant_factor_is_no_spread() -> None:
    spread = Spread()
    for number in range(20):
        spread.tell(job(number), 300.0)
        spread.end(job(number), 600.0)
    spread.tell(job(20), 300.0)
    spread.end(job(20), 0.0)
    spread.tell(job(21), math.inf)
    spread.end(job(21), 600.0)
    assert spread.count == 20, "stopped for good, or never to end: they say nothing"
    assert spread.value == pytest.approx(0.0, abs=1e-9)
    assert spread.around_zero == pytest.approx(math.log(2))


def ends(error: float, **options: float) -> list[float]:
    cluster = Cluster.uniform(1, 4)
    jobs = [
        replace(spec, deadline_s=None) for spec in generate(60, cluster, load=2, seed=3, longest_s=20_000)
    ]
    policy = Weave(Interleaved(), told=Told(error), **options)  # type: ignore[arg-type]
    return [record.finish_s for record in simulate(jobs, cluster, policy, Interleaved(), verify=True).jobs]


def test_what_is_told_falsely_is_no_longer_foreseen_from() -> None:
    assert ends(0.0, trust=0.25) == ends(0.0, trust=100.0)
    assert ends(0.5, trust=0.25) != ends(0.5, trust=100.0)


def test_a_negative_trust_is_refused() -> None:
    with pytest.raises(BadSpec, match=r"a trust of -1; it must be at least 0"):
        Weave(Interleaved(), trust=-1)


def test_what_a_job_runs_on_is_the_median_of_what_ended_jobs_ran_on() -> None:
    lengths = Lengths()
    assert lengths.left_s(0.0, 5.0) == 5.0
    for duration_s in (10.0, 20.0, 30.0, 1000.0):
        lengths.end(JobState(Submission("j", 0.0, 1, duration_s), 0, 1.0, 0.0))
    assert lengths.left_s(0.0, 5.0) == 20.0  # of 5, 10, 20, 30 and 1000
    assert lengths.left_s(15.0, 5.0) == 15.0  # of 20, 30, 30 and 1000, after 15
    assert lengths.left_s(40.0, 5.0) == 960.0  # of 80 and 1000, after 40
    assert lengths.left_s(2000.0, 5.0) == 2000.0
