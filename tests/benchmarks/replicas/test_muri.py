"""What is particular to the event loop of Muri's public simulator, on cases worked out by hand."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from benchmarks.replicas.muri.loop import MuriRun, RestartedJob
from benchmarks.replicas.muri.muri import MuriReplica
from benchmarks.replicas.muri.ranked import srtf
from controller.policies.family import SimulationConfig
from controller.policies.scheduling import BadDecision, BadSpec, Decision, Group, Stuck, Submission, View
from controller.policies.scheduling.speed import ExclusiveSpeed
from controller.simulator.runs import make
from controller.vocabulary import Cluster
from tests.controller.core.driver import Deciding

ONE = Cluster.uniform(1, 1)


def spec(id: str, submit_s: float, duration_s: float, restart_s: float = 0.0, gpus: int = 1) -> Submission:
    return Submission(id, submit_s, gpus, duration_s, restart_s=restart_s)


def test_a_start_is_paid_for_again_at_each_event() -> None:
    one = RestartedJob(Submission("a", 0, 1, 10), 0, 1.0, 0.0)
    one.launch(0.0, Group((one,), (0,)), 1.0, 2.0)
    for now_s in (4.0, 8.0):
        one.settle(now_s)
    assert one.iterations_left(8.0) == 10 - 4
    assert one.attained_s(8.0) == 8.0
    assert one.foreseen_end_s() == 8 + 6


def test_jobs_that_others_come_beside_pay_and_their_end_is_foreseen_without_it() -> None:
    specs = [spec("a", 0, 100, restart_s=5), spec("b", 50, 10)]
    result = MuriRun(srtf(), ExclusiveSpeed()).run(specs, Cluster.uniform(1, 2), verify=True)
    ends = {job.spec.name: job.finish_s for job in result.jobs}
    # until 50 `a` has done 45, until 60 another 5: 50 are left, and end at 110 although a start costs 5
    assert ends == {"b": 60, "a": 110}


def test_an_end_and_an_arrival_that_are_close_are_one_event() -> None:
    asked_s, first = [], srtf()

    def decide(view: View) -> Decision:
        asked_s.append(view.now_s)
        return first.decide(view)

    MuriRun(Deciding(decide), ExclusiveSpeed(), same_time_s=1e-4).run(
        [spec("a", 0, 10), spec("b", 10.00005, 5)], ONE
    )
    assert asked_s == [0, 10.00005, 15.00005]


@pytest.mark.parametrize("name", ["muri-s", "muri-l", "weave-s"])
def test_no_job_of_less_than_a_millisecond_ends_before_its_work_is_done(name: str) -> None:
    """Ends within 0.1 ms of an arrival were moved to it: jobs of 0.01 ms took a hundredth of that."""
    stages = (2e-6, 5e-6, 3e-6)
    jobs = [
        Submission(f"j{n}", n * 7e-6, 1 + n % 2, 1 + n % 5, sum(stages), stages, model="vgg16")
        for n in range(30)
    ]
    cluster = Cluster.uniform(1, 4)
    result = make(f"benchmarks.replicas.muri:{name}", SimulationConfig(cluster)).run(
        jobs, cluster, verify=True
    )
    assert min(job.slowdown for job in result.jobs) > 1 - 2e-3


@pytest.mark.parametrize(
    ("decide", "error", "complaint"),
    [
        (lambda view: Decision([]), Stuck, "deciding runs nothing"),
        (
            lambda view: Decision([Group((view.jobs["a"],), (0,))] * 2),
            BadDecision,
            "deciding runs job 'a' twice",
        ),
        (
            lambda view: Decision([], reset=list(view.jobs.values())),
            BadDecision,
            "takes jobs' progress away",
        ),
    ],
)
def test_impossible_decisions_are_refused(
    decide: Callable[[View], Decision], error: type[Exception], complaint: str
) -> None:
    with pytest.raises(error, match=complaint):
        MuriRun(Deciding(decide), ExclusiveSpeed()).run([spec("a", 0, 1)], ONE)


def test_options_out_of_range_are_refused() -> None:
    with pytest.raises(BadSpec, match="groups of 0 jobs"):
        MuriReplica(members=0)
