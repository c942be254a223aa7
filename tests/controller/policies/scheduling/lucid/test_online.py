""" """

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

import pytest

from controller.policies.scheduling import BadSpec, Decision, JobState, Policy, Submission, View
from controller.policies.scheduling.lucid.estimates import (
    AHEAD,
    INTERVAL_S,
    Arrivals,
    OnlineLucid,
    UpdateEngine,
)
from controller.policies.scheduling.lucid.family import tune_settings
from controller.policies.scheduling.lucid.policy import LucidOptions, Sharing
from controller.policies.scheduling.lucid.usage import BadSample, GpuUsage, Size
from controller.policies.scheduling.speed import ExclusiveSpeed
from controller.simulator import SimulationResult, measure, simulate
from controller.vocabulary import Cluster
from tests.controller.core.driver import Deciding
from tests.controller.policies.scheduling.lucid.made_up import make_counts, make_history
from tests.extras import needs

learning = needs("interpret")

HOUR_S, DAY_S = 3600.0, 86_400.0
USAGE = GpuUsage(90.0, 60.0, 8000.0, False)


def habits(count: int, *, gap_s: float) -> list[Submission]:
    """Jobs of users who submit the same few jobs again and again."""
    jobs, durations_s = make_history(count, seed=1)
    return [
        Submission(str(n), n * gap_s, job.gpus, duration_s, 1.0, user=job.user, extra={"jobname": job.name})
        for n, (job, duration_s) in enumerate(zip(jobs, durations_s, strict=True))
    ]


PARTS = {"measure": lambda job: USAGE, "analyse": lambda usage: Size.JUMBO}


def lucid(*, profiler_nodes: int = 0, **options: Any) -> OnlineLucid:
    return OnlineLucid(LucidOptions(gpu_memory_mb=24_000, profiler_nodes=profiler_nodes, **options), **PARTS)


def run(specs: list[Submission], policy: Policy, nodes: int = 2) -> SimulationResult:
    return simulate(specs, Cluster.uniform(nodes, 8), policy, ExclusiveSpeed(), verify=True)


def explained(policy: OnlineLucid, specs: list[Submission]) -> list[list[str]]:
    """Return what a policy says of each job that is there, after each of its decisions."""
    said: list[list[str]] = []

    def decide(view: View) -> Decision:
        decision = policy.decide(view)
        said.extend(map(policy.explain, view.jobs.values()))
        return decision

    run(specs, Deciding(decide))
    return said


@learning
def test_what_is_learned_shortens_completion_times() -> None:
    specs = habits(250, gap_s=600.0)
    means_only = measure(run(specs, lucid(minimum=10_000)))
    learned = measure(run(specs, lucid(minimum=40, period_s=12 * HOUR_S)))
    assert learned.avg_jct_s < 0.9 * means_only.avg_jct_s


@learning
def test_jobs_of_more_gpus_can_be_expected_to_run_no_shorter() -> None:
    def shapes(*, monotone: bool) -> list[bool]:
        policy = lucid(minimum=40, period_s=DAY_S, monotone=monotone)
        falling: list[bool] = []

        def decide(view: View) -> Decision:
            model = policy._durations.model(view.now_s)
            if model is not None:
                scores = [score for _, score in model.model.shape("gpus")]
                falling.append(any(b < a - 1e-9 for a, b in pairwise(scores)))
            return policy.decide(view)

        run(habits(80, gap_s=600.0), Deciding(decide))
        return falling

    assert any(shapes(monotone=False))
    found = shapes(monotone=True)
    assert found
    assert not any(found)


@learning
def test_a_profiled_job_is_estimated_with_its_usage() -> None:
    policy = lucid(minimum=20, period_s=4 * HOUR_S, profiler_nodes=1, profile_s=60.0)
    said = {line for job in explained(policy, habits(40, gap_s=900.0)) for line in job}
    assert any(line.startswith("gpu_util = None") for line in said)
    assert any(line.startswith(f"gpu_util = {USAGE.gpu_util}") for line in said)


@learning
def test_a_prediction_is_explained() -> None:
    said = explained(lucid(minimum=30, period_s=12 * HOUR_S), habits(120, gap_s=600.0))
    assert said[0][0].startswith("Jumbo; expected to run 3600 s")
    assert any(line.startswith("user = ") for line in said[-1])
    assert said[-1][-1].startswith("together: ")


def arrivals(counts: list[int]) -> Arrivals:
    found = Arrivals(LucidOptions(), lambda job: 1)
    for interval, count in enumerate(counts):
        for number in range(count):
            submit_s = (interval + number / (count + 1)) * INTERVAL_S
            found.count(JobState(Submission(f"{interval}-{number}", submit_s, 1, 1), 0, 1.0, submit_s))
    return found


@learning
def test_arrivals_are_counted_by_interval() -> None:
    seen = arrivals([2, 0, 0, 5, 1])
    assert seen.latest(4 * 600 + 1) == 5
    assert seen.latest(5 * 600) == 1
    assert seen.latest(7 * 600) == 0
    assert seen.forecast(7 * 600) == []


@learning
def test_a_gap_of_centuries_is_refused() -> None:
    with pytest.raises(BadSpec, match=r"arrivals until 1e\+10 s: at most 1,048,576 intervals"):
        arrivals([1]).latest(1e10)


@learning
def test_after_two_days_arrivals_are_expected() -> None:
    counts = [round(count) for count in make_counts(3, seed=2)]
    expected = arrivals(counts).forecast(3 * DAY_S)
    assert len(expected) == AHEAD
    assert all(0 <= count <= max(counts) for count in expected)


@learning
def test_sharing_ends_when_nothing_comes_and_gpus_are_idle() -> None:
    seen: list[Sharing] = []

    class Watched(OnlineLucid):
        def _sharing(self, now_s: float, idle: float) -> Sharing:
            seen.append(super()._sharing(now_s, idle))
            return seen[-1]

    policy = Watched(LucidOptions(profiler_nodes=0), **{**PARTS, "analyse": lambda usage: Size.TINY})
    quiet = habits(40, gap_s=2 * HOUR_S)
    run(quiet, policy)
    assert seen[0] is Sharing.DEFAULT
    assert Sharing.OFF in seen


CHOICES = {"limit": [50, 100, 200], "nodes": [1, 2, 3]}


def bowl(settings: Mapping[str, float]) -> float:
    return (settings["limit"] - 100) ** 2 + 1000 * (settings["nodes"] - 3) ** 2 + 10


def test_the_descent_finds_the_bottom_and_replays_nothing_twice() -> None:
    asked: list[Mapping[str, float]] = []

    def replay(settings: Mapping[str, float]) -> float:
        asked.append(dict(settings))
        return bowl(settings)

    found = tune_settings(CHOICES, {"limit": 200, "nodes": 1, "other": 7}, replay)
    assert found.best.settings == {"limit": 100, "nodes": 3, "other": 7}
    assert found.best.cost == 10
    assert len(asked) == len(found.trials)
    assert all(asked.count(s) == 1 for s in asked)
    assert found.trials[0].settings == {"limit": 200, "nodes": 1, "other": 7}


def test_settings_in_use_stay_unless_it_pays() -> None:
    found = tune_settings({"x": [1, 2]}, {"x": 1}, lambda s: {1: 100.0, 2: 99.0}[s["x"]], min_gain=0.05)
    assert found.best.settings == {"x": 1}


def test_a_gain_of_the_whole_cost_is_refused() -> None:
    with pytest.raises(BadSpec, match="a minimal gain of 1"):
        tune_settings({"x": [1]}, {"x": 1}, bowl, min_gain=1)


def mean(samples: Sequence[float]) -> float:
    return sum(samples) / len(samples)


def test_models_are_trained_once_in_a_period_on_the_latest_samples() -> None:
    engine = UpdateEngine(mean, period_s=100, window=4, minimum=2)
    engine.observe(1)
    assert engine.model(0) is None
    engine.observe(3)
    assert engine.model(0) == 2
    engine.observe(8)
    assert engine.model(50) == 2  # not due yet
    assert engine.model(100) == 4
    assert engine.model(500) == 4
    for value in (10, 10, 10, 10):
        engine.observe(value)
    assert engine.model(600) == 10  # the window has moved on


def test_a_failed_training_leaves_the_model_in_use() -> None:
    def train(samples: Sequence[float]) -> float:
        if max(samples) > 9:
            raise BadSample("too large")
        return mean(samples)

    engine = UpdateEngine(train, period_s=10, minimum=1)
    engine.observe(2)
    assert engine.model(0) == 2
    engine.observe(10)
    assert engine.model(20) == 2
