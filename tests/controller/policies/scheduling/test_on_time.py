"""Deadlines: `on-time`, as late as they allow and the shortest jobs until then, and `edf`."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import pytest

from controller.policies.family import SimulationConfig
from controller.policies.scheduling import BadSpec, Group, Submission, View
from controller.policies.scheduling.deadlines import UNSEEN, OnTime, edf
from controller.policies.scheduling.policy import JobState
from controller.policies.scheduling.ranked import EXACT, DurationEstimates
from controller.policies.scheduling.speed import ExclusiveSpeed
from controller.simulator import measure, simulate
from controller.simulator.generate import generate
from controller.simulator.runs import make
from controller.simulator.traces import read
from controller.simulator.traces.neutral import write
from controller.vocabulary import Cluster

ONE, TWO = Cluster.uniform(1, 1), Cluster.uniform(1, 2)


def spec(name: str, duration_s: float, deadline_s: float | None = None, gpus: int = 2) -> Submission:
    return Submission(name, 0.0, gpus, duration_s, deadline_s=deadline_s)


SEEN_S = 1e-4
"""How long a job took that ended as had been told, before all others arrived."""


def ends(*jobs: Submission, seen: bool = True, estimates: DurationEstimates = EXACT) -> dict[str, float]:
    first = [spec("seen", SEEN_S)] if seen else []
    later = [replace(job, arrival_s=job.arrival_s + SEEN_S) for job in jobs]
    policy = OnTime(estimates, learns=False)
    result = simulate([*first, *later], TWO, policy, ExclusiveSpeed(), verify=True)
    return {job.spec.name: round(job.finish_s, 3) for job in result.jobs if job.spec.name != "seen"}


@pytest.mark.parametrize(
    ("jobs", "expected"),
    [
        pytest.param(
            # earliest deadline first ends `due` at 10, and `short` at 14 instead of 4
            *([spec("due", 10, 40), spec("short", 4)], {"short": 4.0, "due": 14.0}),
            id="a deadline that leaves time lets shorter jobs pass and is met",
        ),
        pytest.param(
            # it needs half of the GPUs until 30 from 10 on, when the other has done half of its work
            *([spec("due", 10, 30), spec("other", 9.5)], {"other": 9.5, "due": 19.5}),
            id="a waiting job is started before its deadline demands it if there is room",
        ),
        pytest.param(
            *([spec("due", 40, 100), spec("other", 39)], {"due": 60.0, "other": 79.0}),
            id="a waiting job is started when its deadline demands it",
        ),
        pytest.param(
            [spec("hopeless", 10, 5), spec("due", 10, 20), spec("any", 4)],
            {"due": 10.0, "any": 14.0, "hopeless": 24.0},
            id="jobs that are late in any case do not go first",
        ),
        pytest.param(
            # each alone has time, but both need 20 of the 38 s until the later is due; then there is time
            [spec("one", 10, 36), spec("two", 10, 38), spec("short", 4)],
            {"one": 10.0, "short": 14.0, "two": 24.0},
            id="jobs with deadlines become urgent together when all of them need the GPUs",
        ),
        pytest.param(
            # 8 starts of 2 s leave 24 of 40 s
            [replace(job, restart_s=2.0) for job in (spec("due", 10, 40), spec("short", 4))],
            {"due": 12.0, "short": 18.0},
            id="a deadline leaves time for the starts of a job that is stopped",
        ),
    ],
)
def test_jobs_go_first_when_their_deadlines_demand_it(
    jobs: list[Submission], expected: dict[str, float]
) -> None:
    assert ends(*jobs) == expected


def test_before_a_job_has_ended_deadlines_go_first_at_once() -> None:
    assert ends(spec("due", 10, 40), spec("short", 4), seen=False) == {"due": 10.0, "short": 14.0}


def test_a_deadline_is_given_up_only_if_ended_jobs_lasted_as_told() -> None:
    """`due` has 20 s, takes 10, and is told to take 30; `seen` was told right, or twice as long."""
    jobs = spec("due", 10, 20), spec("any", 15)
    assert ends(*jobs, estimates=_said(due=3.0)) == {"any": 15.0, "due": 25.0}
    assert ends(*jobs, estimates=_said(due=3.0, seen=2.0)) == {"due": 10.0, "any": 25.0}


def test_the_error_of_told_durations_is_that_of_jobs_that_were_completed() -> None:
    """Starts are no part of what a job lasted, and one that was stopped for good says nothing."""
    policy = OnTime()
    jobs = [JobState(spec(name, 100, gpus=1), order, 1.0, 0.0) for order, name in enumerate("ab")]
    groups = [Group((job,), (job.order,)) for job in jobs]
    for job, group in zip(jobs, groups, strict=True):
        job.launch(0.0, group, 1.0, 30.0)
    policy.decide(View(0.0, TWO, {job.spec.name: job for job in jobs}, jobs, [], groups))
    assert policy.urgency.error == UNSEEN
    jobs[0].finish(40.0, completed=False)
    policy.decide(View(40.0, TWO, {"b": jobs[1]}, [], jobs[:1], groups[1:]))
    assert policy.urgency.error == UNSEEN
    jobs[1].finish(130.0, completed=True)
    policy.decide(View(130.0, TWO, {}, [], jobs[1:], []))
    assert policy.urgency.error == pytest.approx(0.0)


@pytest.mark.parametrize(("ended", "error"), [(1, 1.38), (3, 0.228), (10, 0.143)])
def test_few_jobs_that_lasted_as_told_may_have_done_so_by_luck(ended: int, error: float) -> None:
    """All lasted exp(0.1) times as long: the error is 0.1 times what few jobs leave likely."""
    policy = OnTime()
    jobs = [JobState(spec(str(order), 100, gpus=1), order, 1.0, 0.0) for order in range(ended)]
    policy.decide(View(0.0, TWO, {job.spec.name: job for job in jobs}, jobs, [], []))
    for job in jobs:
        job.launch(0.0, Group((job,), (0,)), math.exp(0.1), 0.0)
        job.finish(100 * math.exp(0.1))
    policy.decide(View(200.0, TWO, {}, [], jobs, []))
    assert policy.urgency.error == pytest.approx(error, rel=0.01)


def _said(**factors: float) -> DurationEstimates:
    """Return durations as they are told that are this many times too long, by names of jobs."""
    estimates = DurationEstimates(1.0)
    for name in ("seen", "due", "any"):
        estimates._factors[name] = factors.get(name, 1.0)
    return estimates


def test_how_much_jobs_slow_each_other_down_is_learnt_from_those_that_run() -> None:
    policy = OnTime()
    jobs = [JobState(spec(name, 1000, gpus=1), order, 1.0, 0.0) for order, name in enumerate("ab")]
    groups = [Group((job,), (job.order,)) for job in jobs]
    for job, group in zip(jobs, groups, strict=True):
        job.launch(0.0, group, 1.5, 0.0)  # alone 1 s: half a second more for half of the GPUs
    for now_s in range(60):
        policy.decide(View(float(now_s), TWO, {job.spec.name: job for job in jobs}, [], [], groups))
    assert abs(policy.urgency.slower - 1.0) < 1e-3


def test_as_many_deadlines_as_edf_and_others_sooner() -> None:
    cluster = Cluster.uniform(2, 8)
    met, times_s = [], []
    for name in ("edf", "on-time"):
        found = [
            measure(make(name, SimulationConfig(cluster)).run(jobs, cluster, verify=True))
            for jobs in (generate(80, cluster, load=2.0, seed=seed, longest_s=7200) for seed in range(3))
        ]
        met.append(sum(each.deadlines_met for each in found))
        times_s.append(sum(each.avg_jct_s for each in found))
    assert met[1] >= 0.98 * met[0]
    assert times_s[1] < 0.9 * times_s[0]


def test_earliest_deadline_first() -> None:
    specs = [
        Submission("a", 0, 1, 100, deadline_s=900),
        Submission("b", 0, 1, 300, deadline_s=500),
        Submission("c", 0, 1, 1),
    ]
    result = simulate(specs, ONE, edf(), ExclusiveSpeed())
    assert {job.spec.name: job.finish_s for job in result.jobs} == {"b": 300, "a": 400, "c": 401}


def test_deadlines_are_kept_in_traces_and_counted(tmp_path: Path) -> None:
    specs = [Submission("a", 0, 1, 100, deadline_s=150.5), Submission("b", 0, 1, 100, deadline_s=150.0)]
    write(tmp_path / "t.csv", specs)
    assert read(tmp_path / "t.csv") == specs
    result = simulate(specs, ONE, edf(), ExclusiveSpeed())
    assert sorted(job.in_time for job in result.jobs) == [False, True]
    with pytest.raises(BadSpec, match="deadline_s is 0; it must be positive"):
        Submission("a", 0, 1, 1, deadline_s=0)
