from __future__ import annotations

import pytest

from controller.policies.scheduling import BadSpec, Decision, Group, JobState, Submission, View
from controller.policies.scheduling.gandiva import Gandiva, progress
from controller.policies.scheduling.speed import Exclusive, Interleaved
from controller.simulator import Result, simulate
from controller.vocabulary import Cluster

ONE = Cluster.uniform(1, 1)
LOADER, TRAINER = (9.0, 0.0, 1.0, 0.0), (1.0, 0.0, 9.0, 0.0)


def spec(id: str, stages_s: tuple[float, ...], submit_s: float = 0.0) -> Submission:
    return Submission(id, submit_s, 1, 100, 10.0, stages_s, model=f"m{stages_s[0]}")


class Watched(Gandiva):
    """Keeps what ran at each decision."""

    def __init__(self, *, pack: bool = True) -> None:
        super().__init__(quantum_s=100, pack=pack)
        self.ran: list[list[tuple[str, ...]]] = []

    def decide(self, view: View) -> Decision:
        decision = super().decide(view)
        self.ran.append([tuple(job.spec.name for job in group.jobs) for group in decision.groups])
        return decision


def run(jobs: list[Submission], policy: Gandiva, cluster: Cluster = ONE) -> Result:
    return simulate(jobs, cluster, policy, Interleaved(), verify=True)


def test_jobs_take_turns() -> None:
    policy = Watched(pack=False)
    result = simulate([Submission(id, 0, 1, 200) for id in "abc"], ONE, policy, Exclusive(), verify=True)
    assert policy.ran[:6] == [[("a",)], [("b",)], [("c",)], [("a",)], [("b",)], [("c",)]]
    assert [job.finish_s for job in result.jobs] == [400, 500, 600]


def test_a_pair_that_pays_stays_together() -> None:
    policy = Watched()
    result = run([spec("a", LOADER), spec("b", TRAINER)], policy)
    assert [len(groups[0]) for groups in policy.ran if groups] == [2, 2]
    assert max(job.finish_s for job in result.jobs) < 2000  # in turn


def test_a_pair_that_does_not_pay_is_parted_and_not_tried_again() -> None:
    policy = Watched()
    run([spec("a", TRAINER), spec("b", TRAINER)], policy)
    together = [len(groups[0]) for groups in policy.ran if groups]
    assert together == [2, *[1] * (len(together) - 1)]
    assert len(together) > 10


def test_a_guest_does_not_move_its_host() -> None:
    policy = Watched()
    result = run([spec("a", LOADER), spec("b", TRAINER, 50.0)], policy)
    assert next(job.starts for job in result.jobs if job.spec.name == "a") == 1


def test_room_is_made_by_moving() -> None:
    jobs = [Submission(f"s{n}", 0, 1, 100 if n % 2 else 5000) for n in range(4)] + [
        Submission("big", 1, 2, 100)
    ]
    result = simulate(jobs, Cluster.uniform(2, 2), Gandiva(quantum_s=1e5, pack=False), Exclusive())
    assert next(job.finish_s for job in result.jobs if job.spec.name == "big") == 200


def test_progress_is_measured_against_running_alone() -> None:
    class Look(Gandiva):
        seen = 0.0

        def decide(self, view: View) -> Decision:
            self.seen = max([self.seen, *[progress(group) for group in view.groups]])
            return super().decide(view)

    policy = Look(quantum_s=100)
    jobs = [spec("a", LOADER), spec("b", TRAINER)]
    run(jobs, policy)
    together = Interleaved()
    a, b = (JobState(job, 0, job.iteration_s, 0.0) for job in jobs)
    assert policy.seen == pytest.approx(sum(10.0 / s for s in together.iteration_s(Group((a, b), (0,)))))


def test_a_quantum_must_be_positive() -> None:
    with pytest.raises(BadSpec, match="quantum of 0"):
        Gandiva(quantum_s=0)
