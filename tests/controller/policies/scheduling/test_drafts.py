from __future__ import annotations

from controller.policies.scheduling import Group, JobState, Submission, View
from controller.policies.scheduling.drafts import Draft, place
from controller.vocabulary import Cluster


def job(order: int, gpus: int = 1) -> JobState:
    return JobState(Submission(f"j{order}", 0, gpus, 10), order, 1.0, 0.0)


def view(cluster: Cluster, *groups: Group) -> View:
    jobs = {job.spec.name: job for group in groups for job in group.jobs}
    return View(0.0, cluster, jobs, (), (), groups)


def test_who_runs_together_stays_and_the_others_get_what_is_free() -> None:
    a, b, c = job(0), job(1), job(2)
    old = Group((a, b), (2,), fused=True)
    kept, fresh = place([Draft((b, a), fused=True), Draft((c,))], view(Cluster.uniform(1, 4), old))
    assert kept is old
    assert (fresh.jobs, fresh.gpus) == ((c,), (0,))


def test_a_host_stays_when_a_guest_comes_unless_they_are_to_be_fused() -> None:
    host, guest = job(0), job(1)
    now = view(Cluster.uniform(1, 4), Group((host,), (3,)))
    (packed,) = place([Draft((host, guest))], now)
    (fused,) = place([Draft((host, guest), fused=True)], now)
    assert (packed.jobs, packed.gpus) == ((host, guest), (3,))
    assert (fused.jobs, fused.gpus) == ((host, guest), (0,))


def test_partners_that_part_do_not_both_stay() -> None:
    a, b = job(0), job(1)
    one, other = place([Draft((b,)), Draft((a,))], view(Cluster.uniform(1, 4), Group((a, b), (2,))))
    assert (one.gpus, other.gpus) == ((2,), (0,))


def test_all_move_if_the_holes_are_too_small() -> None:
    small, large = job(0), job(1, 4)
    now = view(Cluster.uniform(2, 4), Group((job(2),), (4,)), Group((small,), (0,)))
    moved = place([Draft((now.groups[0].jobs[0],)), Draft((small,)), Draft((large,))], now)
    assert [group.gpus for group in moved] == [(4,), (5,), (0, 1, 2, 3)]


def test_the_less_important_is_left_out() -> None:
    groups = place([Draft((job(0, 4),)), Draft((job(1),))], view(Cluster.uniform(1, 4)))
    assert [group.jobs[0].order for group in groups] == [0]
