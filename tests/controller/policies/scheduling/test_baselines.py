""" """

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller.policies.scheduling import Decision, Group, JobState, Submission, View, baselines
from controller.policies.scheduling.gandiva import Gandiva, progress
from controller.policies.scheduling.gittins import Gittins, distribution, gittins_index
from controller.policies.scheduling.speed import Exclusive, Interleaved
from controller.policies.scheduling.themis import Themis
from controller.simulator import Result, measure, simulate
from controller.vocabulary import Cluster

ONE = Cluster.uniform(1, 1)
LOADER, TRAINER = (9.0, 0.0, 1.0, 0.0), (1.0, 0.0, 9.0, 0.0)


def spec(id: str, stages_s: tuple[float, ...], submit_s: float = 0.0) -> Submission:
    return Submission(id, submit_s, 1, 100, 10.0, stages_s, model=f"m{stages_s[0]}")


class Watched(Gandiva):
    """Keeps what ran at each decision."""

    def __init__(self, *, pack: bool = True, quantum_s: float = 100.0) -> None:
        super().__init__(quantum_s=quantum_s)
        self._packs = pack
        self.ran: list[list[tuple[str, ...]]] = []

    def _guests(self, hosts: list[JobState], waiting: list[JobState]) -> dict[int, JobState]:
        return super()._guests(hosts, waiting) if self._packs else {}

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
    result = simulate(jobs, Cluster.uniform(2, 2), Watched(pack=False, quantum_s=1e5), Exclusive())
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


def ends(jobs: list[Submission], policy: Themis, cluster: Cluster = ONE) -> dict[str, float]:
    result = simulate(jobs, cluster, policy, Exclusive(), verify=True)
    return {job.spec.name: job.finish_s for job in result.jobs}


def test_leases_go_round_among_equals() -> None:
    found = ends([Submission("a", 0, 1, 200), Submission("b", 0, 1, 200)], Themis(lease_s=100))
    assert found == {"a": 300, "b": 400}


def test_who_has_waited_longest_for_its_size_wins_and_leases_are_kept() -> None:
    # at 50 the lease has 50 s to go; at 100 the short one is far behind its fair share, the long one is not
    found = ends([Submission("long", 0, 1, 1000), Submission("short", 50, 1, 10)], Themis(lease_s=100))
    assert found == {"short": 110, "long": 1010}


def test_no_gpu_idles_that_somebody_can_use() -> None:
    jobs = [Submission("a", 0, 1, 100), Submission("big", 0, 2, 100), Submission("b", 0, 1, 100)]
    assert sorted(ends(jobs, Themis(lease_s=1000), Cluster.uniform(1, 2)).values()) == [100, 100, 200]


def test_it_is_fairer_than_shortest_first() -> None:
    jobs = [Submission(f"j{n}", n * 50.0, 1, 100.0 * (1 + n % 9)) for n in range(60)]
    fair = measure(simulate(jobs, Cluster.uniform(1, 4), Themis(lease_s=60), Exclusive()))
    srsf = measure(simulate(jobs, Cluster.uniform(1, 4), baselines.srsf(), Exclusive()))
    assert fair.p99_slowdown < srsf.p99_slowdown
    assert fair.avg_jct_s > srsf.avg_jct_s


sizes_seen = st.lists(st.integers(1, 50), min_size=1, max_size=12)


@given(sizes_seen, st.integers(0, 60))
def test_the_index_is_the_best_ratio_over_all_ways_to_stop(sizes: list[int], attained: int) -> None:
    found = gittins_index(*distribution(sizes, ()), float(attained))
    alive = [size - attained for size in sizes if size > attained]
    ratios = [
        sum(need <= d for need in alive) / sum(min(need, d) for need in alive) for d in range(1, 51) if alive
    ]
    assert found == pytest.approx(max(ratios, default=0.0))


@given(sizes_seen, sizes_seen)
def test_without_others_the_estimate_is_what_was_seen_and_others_make_sizes_larger(
    ended: list[int], going: list[int]
) -> None:
    sizes, shares = distribution(ended, ())
    assert shares == pytest.approx([ended.count(size) / len(ended) for size in sizes])
    _, censored = distribution(ended, going)
    assert (np.cumsum(censored) <= np.cumsum(shares) + 1e-12).all()


def test_what_may_end_soon_goes_first() -> None:
    """Half of the jobs take 100 s: one that is beyond that yields to one that is not."""
    jobs = [Submission("long", 0, 1, 5000), Submission("short", 200, 1, 100)]
    known = simulate(jobs, Cluster.uniform(1, 1), Gittins([100, 5000]), Exclusive(), verify=True)
    assert {job.spec.name: job.finish_s for job in known.jobs} == {"short": 300, "long": 5100}


def test_it_learns_from_jobs_that_end() -> None:
    many = [Submission(f"s{number}", number * 200.0, 1, 100) for number in range(40)]
    jobs = [
        *many,
        Submission("long", 8000, 1, 50000),
        *(Submission(f"t{n}", 9000.0 + n, 1, 100) for n in range(5)),
    ]
    result = simulate(jobs, Cluster.uniform(1, 1), Gittins(), Exclusive(), verify=True)
    finish_s = {job.spec.name: job.finish_s for job in result.jobs}
    assert max(finish_s[f"t{number}"] for number in range(5)) < 10000 < finish_s["long"]
