"""Cores of real jobs on a clock of the test's own, with the policies that are simulated, too."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest

from controller.core import Desired, Ended, Submitted
from controller.policies.scheduling import (
    BadDecision,
    BadSpec,
    Decision,
    Group,
    Policy,
    SpeedModel,
    Submission,
    View,
)
from controller.policies.scheduling import baselines as b
from controller.policies.scheduling.muri import Muri
from controller.policies.scheduling.policy import ReportedJob
from controller.policies.scheduling.speed import ExclusiveSpeed, InterleavedSpeed
from controller.simulator import simulate
from controller.simulator.generate import generate
from controller.vocabulary import Cluster
from tests.controller.core.driver import Action, Deciding, Driver, StartRun, StopRun
from tests.controller.core.machine import Room

ONE, TWO = Cluster.uniform(1, 1), Cluster.uniform(1, 2)
EXCLUSIVE = ExclusiveSpeed()


def spec(id: str, iterations: float, gpus: int = 1, stages_s: tuple[float, ...] = ()) -> Submission:
    return Submission(id, 0.0, gpus, iterations, stages_s=stages_s)


def begun(
    policy: Policy, *specs: Submission, cluster: Cluster = ONE, speed: SpeedModel = EXCLUSIVE, **options: Any
) -> Driver:
    """Return a driver to which these jobs were submitted at time 0."""
    live = Driver(cluster, policy, speed, **options)
    for each in specs:
        live.submit(each, 0)
    return live


def grouped_pair(**options: int) -> Driver:
    """Return a driver of jobs a and b, which interleave well on one GPU."""
    one, other = (
        spec(name, 10, stages_s=stages_s) for name, stages_s in (("a", (3, 0, 1, 0)), ("b", (1, 0, 3, 0)))
    )
    return begun(Muri(), one, other, speed=InterleavedSpeed(), **options)


def started(actions: list[Action]) -> list[tuple[str, ...]]:
    return [action.run.jobs for action in actions if isinstance(action, StartRun)]


def stopped(actions: list[Action]) -> list[tuple[str, ...]]:
    return [action.run.jobs for action in actions if isinstance(action, StopRun)]


def events(controller: Driver) -> list[tuple[str, tuple[str, ...]]]:
    return [(entry.event, entry.jobs) for entry in controller.log]


def test_a_shorter_job_takes_over_and_the_other_goes_on_later() -> None:
    live = begun(b.srtf(), spec("long", 100))
    assert started(live.decide(0)) == [("long",)]
    live.progressed("long", 10, 10)
    live.submit(spec("short", 5), 12)
    actions = live.decide(12)
    assert (stopped(actions), started(actions)) == ([("long",)], [("short",)])
    assert isinstance(actions[0], StopRun)
    live.ended("short", 17)
    assert started(live.decide(17)) == [("long",)]
    live.ended("long", 105)
    assert live.decide(105) == []
    assert live.jobs == live.runs == ()
    assert [(job.spec.name, job.finish_s, job.waited_s) for job in live.ended_jobs] == [
        ("short", 17, 0),
        ("long", 105, 5),
    ]
    assert events(live) == [
        ("submitted", ("long",)),
        ("started", ("long",)),
        ("submitted", ("short",)),
        ("stopped", ("long",)),
        ("started", ("short",)),
        ("ended", ("short",)),
        ("started", ("long",)),
        ("ended", ("long",)),
    ]


def test_what_a_job_reports_decides_and_not_what_it_said() -> None:
    """By its word the first has the less to do; but it turns out slow."""
    live = begun(b.srtf(), spec("slow", 100))
    live.decide(0)
    live.progressed("slow", 1, 60)
    live.submit(spec("other", 70), 60)
    actions = live.decide(60)
    assert (stopped(actions), started(actions)) == ([("slow",)], [("other",)])


def test_grouped_jobs_are_one_run_with_their_stage_order_and_the_reason_is_logged() -> None:
    live = grouped_pair()
    (start,) = live.decide(0)
    assert isinstance(start, StartRun)
    assert {*start.run.jobs} == {"a", "b"}
    assert start.run.offsets == (0, 2)
    assert live.log[-1].text == "on GPU 0: 2 interleave, efficiency 0.50"
    live.ended("a", 40)
    assert live.decide(40) == []  # the other goes on in the same processes
    (run,) = live.runs
    assert (run.number, run.jobs, run.offsets) == (start.run.number, ("b",), (2,))


def test_another_member_restarts_a_fused_group() -> None:
    live = grouped_pair()
    live.decide(0)
    live.submit(spec("c", 10, stages_s=(0, 3, 0, 1)), 5)
    actions = live.decide(5)
    assert [{*jobs} for jobs in stopped(actions)] == [{"a", "b"}]
    assert [{*jobs} for jobs in started(actions)] == [{"a", "b", "c"}]


def test_partners_that_are_not_fused_come_and_go_without_a_restart() -> None:
    packed = Deciding(lambda view: Decision([Group((*view.jobs.values(),), (0,))] if view.jobs else []))
    live = begun(packed, spec("a", 10))
    assert started(live.decide(0)) == [("a",)]
    live.submit(spec("b", 10), 1)
    actions = live.decide(1)
    assert (stopped(actions), started(actions)) == ([], [("b",)])
    live.ended("a", 5)
    assert live.decide(5) == []


def test_a_failed_job_is_out_and_those_that_fell_with_it_start_again() -> None:
    live = grouped_pair()
    live.decide(0)
    live.ended("a", 7, "exited with status 3")
    live.interrupted("b", 7, "its group broke")
    assert started(live.decide(7)) == [("b",)]
    assert live.failed == {"a": "exited with status 3"}
    assert ("failed", ("a",)) in events(live)
    assert ("interrupted", ("b",)) in events(live)


def test_an_interval_delays_decisions() -> None:
    live = Driver(ONE, b.fifo(), ExclusiveSpeed(), interval_s=60)
    live.submit(spec("a", 10), 1)
    assert live.next_s == 60
    assert live.decide(59) == []
    assert started(live.decide(60)) == [("a",)]


def test_a_policy_that_wants_to_be_asked_again_is() -> None:
    live = begun(b.las(quantum_s=10), spec("a", 100), spec("b", 100))
    assert started(live.decide(0)) == [("a",)]
    assert live.next_s == 10
    assert live.decide(9.9) == []
    actions = live.decide(10)
    assert (stopped(actions), started(actions)) == ([("a",)], [("b",)])


def test_what_cannot_be_is_refused() -> None:
    live = begun(b.fifo(), spec("a", 10))
    for wrong, why in (
        (spec("a", 10), "two jobs are called 'a'"),
        (spec("big", 10, gpus=2), "job 'big' asks for 2 GPUs; the cluster has 1"),
    ):
        with pytest.raises(BadSpec, match=why):
            live.core.admit(wrong)
        live.submit(wrong, 1)
        assert live.core.refused[wrong.name] == live.log[-1].text == why
        assert (live.log[-1].event, live.log[-1].jobs) == ("refused", (wrong.name,))
    assert live.jobs == ("a",)

    twice = Deciding(lambda view: Decision([Group((job,), (0,)) for job in view.jobs.values()]), "twice")
    wrong = begun(twice, spec("a", 10), spec("b", 10))
    with pytest.raises(BadDecision, match="twice: GPU 0 goes to"):
        wrong.decide(0)


def test_a_policy_that_runs_nothing_is_noticed() -> None:
    lazy = Deciding(lambda view: Decision([], notes=[("a", "not today")]))
    live = begun(lazy, spec("a", 10))
    assert not live.core.stuck
    live.decide(0)
    assert live.core.stuck
    assert (live.log[-1].event, live.log[-1].jobs, live.log[-1].text) == ("note", ("a",), "not today")


def test_a_job_counts_what_is_reported() -> None:
    job = ReportedJob(spec("a", 100), 0, 1.0, 0.0)
    job.launch(0.0, Group((job,), (0,)), 1.0, 5.0)
    job.observe(10, 2)
    assert job.iterations_left(10) == 98
    assert job.iteration_s == 3  # between what was foreseen, 1, and what was seen, 5
    assert job.attained_s(10) == 10
    job.observe(12, 2)  # nothing new: what is foreseen goes on
    assert job.iterations_left(13) == 97
    job.observe(13, 1)  # back to a checkpoint
    assert job.iterations_left(13) == 99
    assert job.iteration_s == 3
    job.observe(14, 100)
    assert 0 < job.iterations_left(14) < 1e-9
    job.halt(14)
    job.observe(15, 3)  # too late
    assert job.attained_s(20) == 14


@pytest.mark.parametrize("make", [b.fifo, b.sjf, b.srtf, b.srsf])
def test_without_surprises_the_live_controller_decides_as_the_simulator(make) -> None:  # type: ignore[no-untyped-def]
    cluster = Cluster.uniform(2, 4)
    specs = [
        Submission(each.name, each.arrival_s, each.gpus, each.iterations, each.iteration_s)
        for each in generate(60, cluster, load=1.5, seed=3)
    ]
    speed = ExclusiveSpeed(restart_scale=0.0)
    expected = {job.spec.name: job.finish_s for job in simulate(specs, cluster, make(), speed).jobs}
    coming = [Submitted(each.arrival_s, each) for each in specs]
    core = Driver(cluster, make(), speed).core
    room = Room(core, coming, 0, mishaps=0.0, paces=(1.0, 1.0), check=check_gpus_are_given_once)
    room.run()
    found = {event.job: event.at_s for event in room.events if isinstance(event, Ended)}
    assert found == pytest.approx(expected, rel=1e-4)


def check_gpus_are_given_once(desired: Desired) -> None:
    given = [gpu for run in desired.runs for gpu in run.gpus]
    assert len({*given}) == len(given)


@dataclass
class Crowd:
    """All jobs on the first GPU, in one group or in a group of their own each."""

    fused: bool
    name: str = "crowd"

    def decide(self, view: View) -> Decision:
        jobs = tuple(view.jobs.values())
        if self.fused:
            return Decision([Group(jobs, (0,), fused=True)] if jobs else [])
        others = {job: tuple(each for each in jobs if each is not job) for job in jobs}
        return Decision([Group((job,), (0,), neighbours=others[job]) for job in jobs])


@pytest.mark.parametrize("fused", [False, True])
def test_a_fifth_job_on_a_gpu_waits_for_room(fused: bool) -> None:
    live = begun(Crowd(fused), *(spec(name, 10) for name in "abcdef"))
    assert sorted(name for jobs in started(live.decide(0)) for name in jobs) == ["a", "b", "c", "d"]
    waits = [(entry.jobs, entry.text) for entry in live.log if entry.event == "waits"]
    assert waits == [((name,), "4 jobs are on its GPUs, which is the maximum") for name in "ef"]
    assert not live.core.stuck
    assert all(len(run.offsets) == len(set(run.offsets)) for run in live.runs)
    live.submit(spec("g", 10), 1)
    assert live.decide(1) == []  # what runs goes on, and those who know that they wait are not told again
    live.ended("b", 5)
    live.decide(5)
    assert sorted(name for run in live.runs for name in run.jobs) == ["a", "c", "d", "e"]
    assert [entry.jobs for entry in live.log if entry.event == "waits"] == [("e",), ("f",), ("g",)]


def test_only_gpus_that_are_full_make_a_job_wait() -> None:
    places = {"a": (0,), "b": (0,), "both": (0, 1), "c": (1,), "d": (1,)}

    def wide(view: View) -> Decision:
        jobs = view.jobs.values()
        return Decision([Group((job,), places[job.spec.name], neighbours=tuple(jobs)) for job in jobs])

    jobs = [spec(name, 10, len(gpus)) for name, gpus in places.items()]
    live = begun(Deciding(wide), *jobs, cluster=TWO, sharing=2)
    assert started(live.decide(0)) == [("a",), ("b",), ("c",), ("d",)]
    live.ended("c", 5)
    assert live.decide(5) == []  # the other GPU is still full
    live.ended("b", 6)
    assert started(live.decide(6)) == [("both",)]


def test_a_failed_job_is_tried_again_as_often_as_asked() -> None:
    live = begun(b.fifo(), spec("a", 10), retries=2)
    for now_s in (0, 5, 10):
        assert started(live.decide(now_s)) == [("a",)]
        live.ended("a", now_s + 4, "exited with status 3")
        assert live.failed == ({"a": "exited with status 3"} if now_s == 10 else {})
    assert live.decide(20) == []
    assert events(live)[1:] == [
        ("started", ("a",)),
        ("retried", ("a",)),
        ("started", ("a",)),
        ("retried", ("a",)),
        ("started", ("a",)),
        ("failed", ("a",)),
    ]
    assert live.log[2].text == "exited with status 3; retry 1 of 2"
    assert live.jobs == live.runs == ()


def test_a_retry_leaves_partners_and_progress_alone() -> None:
    live = grouped_pair(retries=1)
    live.decide(0)
    live.progressed("a", 4, 6)
    live.ended("a", 7, "exited with status 3")
    live.interrupted("b", 7, "its group broke")
    assert {*started(live.decide(7))[0]} == {"a", "b"}
    live.ended("b", 9)
    live.ended("a", 12)
    assert [(job.spec.name, job.starts) for job in live.ended_jobs] == [("b", 2), ("a", 2)]
    assert live.failed == {}


@pytest.mark.parametrize("wrong", [{"sharing": 0}, {"retries": -1}])
def test_options_of_the_live_controller_out_of_range(wrong: dict[str, int]) -> None:
    with pytest.raises(BadSpec):
        Driver(ONE, b.fifo(), ExclusiveSpeed(), **wrong)
