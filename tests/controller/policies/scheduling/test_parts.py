""" """

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.replicas.muri.family import POLICIES
from controller.policies.scheduling import BadSpec, Group, JobState, Submission, View
from controller.policies.scheduling.muri import place
from controller.policies.scheduling.options import PaperOptions
from controller.policies.scheduling.placement import FreeGpuCounts, FreeGpus
from controller.policies.scheduling.ranked import WaitingJobs, choose_by_rank, profile
from controller.policies.scheduling.sharing.packing import consolidated
from controller.simulator import measure
from controller.simulator.engine import count_held_gpus as gpus_given
from controller.simulator.generate import generate
from controller.vocabulary import Cluster, Server


def job(order: int, gpus: int = 1) -> JobState:
    return JobState(Submission(f"j{order}", 0, gpus, 10), order, 1.0, 0.0)


def racks(*sizes: tuple[int, str]) -> Cluster:
    return Cluster(tuple(Server(gpus=gpus, name=f"n{n}", rack=rack) for n, (gpus, rack) in enumerate(sizes)))


def nodes_of(cluster: Cluster, place: tuple[int, ...] | None) -> list[int]:
    assert place is not None
    return sorted({cluster.node_of[gpu] for gpu in place})


def test_a_job_of_several_servers_stays_in_one_rack_of_two() -> None:
    cluster = racks((8, "a"), (8, "a"), (8, "b"), (8, "b"))
    slots, counts = FreeGpus(cluster), FreeGpuCounts(cluster)
    assert nodes_of(cluster, slots.allocate(4)) == [0]
    assert nodes_of(cluster, slots.allocate(16)) == [2, 3]  # not 1 and 2, which are free, too
    assert all(counts.allocate(gpus) for gpus in (4, 16))
    assert nodes_of(cluster, slots.allocate(12)) == [0, 1]
    assert counts.allocate(12)
    assert slots.free == counts.free == 0


def test_a_job_that_no_rack_holds_goes_across_racks() -> None:
    cluster = racks((8, "a"), (8, "b"), (4, "a"), (8, "b"))
    assert nodes_of(cluster, FreeGpus(cluster).allocate(20)) == [0, 1, 2]
    assert nodes_of(cluster, FreeGpus(cluster).allocate(28)) == [0, 1, 2, 3]
    assert nodes_of(cluster, FreeGpus(cluster).allocate(12)) == [0, 2]
    assert nodes_of(cluster, FreeGpus(cluster).allocate(16)) == [1, 3]


def test_sharing_prefers_one_rack_too() -> None:
    cluster = racks((4, "a"), (4, "b"), (4, "a"), (4, "b"))
    assert nodes_of(cluster, consolidated(range(16), 8, cluster)) == [0, 2]
    assert nodes_of(cluster, consolidated(range(1, 16), 8, cluster)) == [1, 3]


EQUAL = [(8, "")] * 4


@given(
    st.just(EQUAL)
    | st.lists(st.tuples(st.sampled_from([2, 4, 8]), st.sampled_from("ab")), min_size=1, max_size=6),
    st.lists(st.integers(1, 24), max_size=40),
)
def test_counts_and_slots_agree_and_never_take_a_gpu_twice(
    servers: list[tuple[int, str]], sizes: list[int]
) -> None:
    cluster = racks(*servers)
    slots, counts = FreeGpus(cluster), FreeGpuCounts(cluster)
    taken: list[int] = []
    for size in sizes:
        place = slots.allocate(size)
        assert counts.allocate(size) == (place is not None)
        if place is not None:
            assert len(place) == size
            assert servers != EQUAL or len(nodes_of(cluster, place)) == -(-size // 8)
            taken += place
        assert len(taken) == len(set(taken)) == cluster.gpus - slots.free
        assert slots.free == counts.free


def test_all_servers_are_in_racks_or_none() -> None:
    with pytest.raises(BadSpec, match="server 'n1' is in no rack, but others are"):
        racks((8, "a"), (8, ""))


def test_what_is_given_back_can_be_taken_again() -> None:
    slots = FreeGpus(Cluster.uniform(2, 4))
    first, second = slots.allocate(3), slots.allocate(2)
    assert (first, second) == ((0, 1, 2), (4, 5))
    assert first is not None
    slots.release(first)
    assert slots.allocate(4) == (0, 1, 2, 3)
    slots.reserve([6])
    assert slots.allocate(1) == (7,)
    assert slots.allocate(1) is None


def test_scattered_gpus_come_from_the_emptiest_nodes() -> None:
    slots = FreeGpus(Cluster.uniform(2, 4))
    slots.reserve([0, 1])
    assert slots.allocate_scattered(5) == (4, 5, 6, 7, 2)
    assert slots.allocate_scattered(2) is None


@given(st.lists(st.tuples(st.integers(0, 5), st.sampled_from([1, 2, 4])), max_size=30), st.integers(0, 12))
def test_a_walk_chooses_what_going_through_everything_would(
    entries: list[tuple[int, int]], free: int
) -> None:
    waiting = WaitingJobs()
    ranked = []
    for order, (rank, gpus) in enumerate(entries):
        one = job(order, gpus)
        waiting.add(one, rank)
        ranked.append((rank, order, one))
    room, expected = free, []
    refused: set[int] = set()
    for _, _, one in sorted(ranked):
        if one.spec.gpus <= room and one.spec.gpus not in refused:
            room -= one.spec.gpus
            expected.append(one)
        else:
            refused.add(one.spec.gpus)
    left = free

    def fits(gpus: int) -> bool:
        nonlocal left
        if gpus > left:
            return False
        left -= gpus
        return True

    chosen, started = choose_by_rank(waiting, (), fits)
    assert chosen == expected
    for size, count in started.items():
        waiting.drop_first(size, count)
    assert {*waiting} == {one for _, _, one in ranked} - {*expected}
    assert len(waiting) == len(entries) - len(expected)


def test_three_stages_become_four() -> None:
    loader = Submission("a", 0, 1, 1, stages_s=(3.0, 2.0, 1.0), model="resnet18")
    agent = Submission("b", 0, 1, 1, stages_s=(3.0, 2.0, 1.0), model="a2c")
    assert profile(loader) == (3.0, 0.0, 2.0, 1.0)
    assert profile(agent) == (0.0, 3.0, 2.0, 1.0)
    with pytest.raises(BadSpec, match="job 'c' has 0 stage times"):
        profile(Submission("c", 0, 1, 1))


@pytest.mark.parametrize(
    ("make", "complaint"),
    [
        (lambda: PaperOptions(members=5), "setting members=5: want 1 to 4"),
        (lambda: PaperOptions(noise=1.0), "setting noise=1: want 0 to 0.99"),
        (lambda: Submission("a", 0, 0, 1), "at least 1"),
        (lambda: Submission("a", -1, 1, 1), "arrival_s"),
        (lambda: Submission("a", 0, 1, 0), "iterations"),
        (lambda: Submission("a", 0, 1, 1, stages_s=(0.0, 0.0)), "all stage times are 0"),
        (lambda: Cluster(()), "at least one server"),
        (lambda: Server(gpus=0), "0 GPUs"),
    ],
)
def test_options_out_of_range_are_refused(make: object, complaint: str) -> None:
    assert callable(make)
    with pytest.raises(BadSpec, match=complaint):
        make()


def test_a_restart_is_paid_once() -> None:
    one = job(0)
    one.launch(0.0, Group((one,), (0,)), 1.0, 2.0)
    for now_s in (4.0, 8.0):
        one.settle(now_s)
    assert one.iterations_left(8.0) == 10 - 6
    assert one.attained_s(8.0) == 8.0


def test_a_group_goes_on_without_a_member() -> None:
    a, b = job(0), job(1)
    pair = Group((a, b), (3,), cpus=(1.0, 2.0), memory_gb=(5.0, 6.0), fused=True, reason="why")
    rest = pair.without(a)
    assert rest is not None
    assert (rest.jobs, rest.gpus, rest.cpus, rest.memory_gb) == ((b,), (3,), (2.0,), (6.0,))
    assert (rest.fused, rest.reason) == (True, "why")
    assert rest.without(b) is None


def view(cluster: Cluster, *groups: Group) -> View:
    jobs = {job.spec.name: job for group in groups for job in group.jobs}
    return View(0.0, cluster, jobs, (), (), groups)


def test_who_runs_together_stays_and_the_others_get_what_is_free() -> None:
    a, b, c = job(0), job(1), job(2)
    old = Group((a, b), (2,), fused=True)
    kept, fresh = place([Group((b, a), (), fused=True), Group((c,), ())], view(Cluster.uniform(1, 4), old))
    assert kept is old
    assert (fresh.jobs, fresh.gpus) == ((c,), (0,))


def test_a_host_stays_when_a_guest_comes_unless_they_are_to_be_fused() -> None:
    host, guest = job(0), job(1)
    now = view(Cluster.uniform(1, 4), Group((host,), (3,)))
    (packed,) = place([Group((host, guest), ())], now)
    (fused,) = place([Group((host, guest), (), fused=True)], now)
    assert (packed.jobs, packed.gpus) == ((host, guest), (3,))
    assert (fused.jobs, fused.gpus) == ((host, guest), (0,))


def test_partners_that_part_do_not_both_stay() -> None:
    a, b = job(0), job(1)
    one, other = place([Group((b,), ()), Group((a,), ())], view(Cluster.uniform(1, 4), Group((a, b), (2,))))
    assert (one.gpus, other.gpus) == ((2,), (0,))


def test_all_move_if_the_holes_are_too_small() -> None:
    small, large = job(0), job(1, 4)
    now = view(Cluster.uniform(2, 4), Group((job(2),), (4,)), Group((small,), (0,)))
    moved = place([Group((now.groups[0].jobs[0],), ()), Group((small,), ()), Group((large,), ())], now)
    assert [group.gpus for group in moved] == [(4,), (5,), (0, 1, 2, 3)]


def test_the_less_important_is_left_out() -> None:
    groups = place([Group((job(0, 4),), ()), Group((job(1),), ())], view(Cluster.uniform(1, 4)))
    assert [group.jobs[0].order for group in groups] == [0]


def test_a_gpu_that_groups_share_counts_once() -> None:
    a, b, c = job(0), job(1), job(2)
    assert gpus_given([Group((a,), (0, 1)), Group((b,), (2, 3))]) == 4
    assert gpus_given([Group((a,), (0, 1), neighbours=(b,)), Group((b,), (1, 2), neighbours=(a,))]) == 3
    assert gpus_given([Group((a, b, c), (0, 1), fused=True)]) == 2
    assert gpus_given([]) == 0


def test_no_more_gpus_are_given_than_there_are() -> None:
    cluster = Cluster.uniform(2, 4)
    jobs = generate(80, cluster, load=2, seed=3, three_stages=True)
    result = POLICIES["antman"][1]({}).run(jobs, cluster, detail=True)
    assert result.curves is not None
    assert max(result.curves.gpus) <= cluster.gpus
    assert 0.5 < measure(result).gpu_busy <= 1
