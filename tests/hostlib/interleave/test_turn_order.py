"""Order of turns: no two jobs on one resource, barriers between slots, and nobody waits for ever."""

from __future__ import annotations

import heapq

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller.policies.grouping.rounds import best, round_s
from hostlib.interleave.stages import STAGES, GroupError, Stage
from hostlib.interleave.turn_order import Member, TurnOrder

A0, A1, B0 = Member("a", 0), Member("a", 1), Member("b", 0)


def test_two_jobs_overlap_from_the_offset_on() -> None:
    """Figure 4's group: when one computes the other preprocesses, and the other way round."""
    turns = TurnOrder({"a": 0, "b": 2}, {"a": 1, "b": 1})
    assert turns.ask(A0, "storage") == []  # until all are there
    assert turns.ask(B0, "storage") == [A0]  # b's turn at storage comes two slots later
    turns.done(A0)
    assert turns.ask(A0, "cpu") == [A0]
    turns.done(A0)
    assert turns.ask(A0, "gpu") == [A0, B0]
    turns.done(B0)
    assert turns.ask(B0, "cpu") == []  # the barrier: a still computes
    turns.done(A0)
    assert turns.ask(A0, "network") == [A0, B0]


def test_a_slot_needs_all_ranks() -> None:
    turns = TurnOrder({"a": 0, "b": 1}, {"a": 2, "b": 1})
    assert turns.ask(B0, "storage") == []
    assert turns.ask(A1, "storage") == []
    assert turns.behind() == [A0]
    assert turns.ask(A0, "storage") == [A0, A1]
    turns.done(A0)
    assert turns.ask(A0, "cpu") == []
    assert turns.behind() == [A1]
    turns.done(A1)
    assert turns.ask(A1, "cpu") == [A0, A1]


def test_a_job_alone_takes_no_turns() -> None:
    turns = TurnOrder({"a": 2}, {"a": 2})
    assert turns.ask(A0, "storage") == [A0]
    turns.done(A0)
    assert turns.ask(A0, "cpu") == [A0]
    assert turns.ask(A1, "storage") == [A1]
    assert turns.behind() == []


def test_a_job_that_leaves_is_missed_by_nobody() -> None:
    turns = TurnOrder({"a": 0, "b": 1}, {"a": 1, "b": 1})
    turns.ask(A0, "storage")
    assert turns.leave(B0) == [A0]
    assert turns.leave(B0) == []  # again
    turns.lose(B0, "its process ended")
    assert turns.broken is None


def test_a_lost_member_breaks_the_group_and_the_first_reason_stays() -> None:
    turns = TurnOrder({"a": 0, "b": 1}, {"a": 1, "b": 1})
    turns.ask(A0, "storage")
    turns.lose(B0, "killed by SIGKILL")
    turns.lose(A0, "closed the connection")
    assert turns.broken == "job b, rank 0: killed by SIGKILL"
    assert turns.ask(B0, "storage") == []


def test_ranks_of_a_job_at_different_stages_break_the_group() -> None:
    turns = TurnOrder({"a": 0, "b": 1}, {"a": 2, "b": 1})
    turns.ask(A0, "cpu")
    turns.ask(B0, "gpu")
    assert turns.ask(A1, "network") == []
    assert turns.broken is not None
    assert "job a, rank 1 waits for stage network, rank 0 for cpu" in turns.broken


@pytest.mark.parametrize(
    ("offsets", "ranks", "message"),
    [
        ({}, {}, "want the same"),
        ({"a": 0}, {"b": 1}, "want the same"),
        ({"a": 1, "b": 1}, {"a": 1, "b": 1}, "a different one for each job, in 0..3"),
        ({"a": 4}, {"a": 1}, "a different one for each job, in 0..3"),
        ({"a": 0}, {"a": 0}, "job a has 0 ranks"),
    ],
)
def test_impossible_groups_are_refused(offsets: dict[str, int], ranks: dict[str, int], message: str) -> None:
    with pytest.raises(GroupError, match=message):
        TurnOrder(offsets, ranks)


def test_messages_out_of_turn_are_refused() -> None:
    turns = TurnOrder({"a": 0}, {"a": 1})
    with pytest.raises(GroupError, match="job a, rank 0 ends a stage, but it has not reached its next stage"):
        turns.done(A0)
    turns.ask(A0, "gpu")
    with pytest.raises(GroupError, match="asks for its turn at cpu, but it carries out a stage"):
        turns.ask(A0, "cpu")
    with pytest.raises(GroupError, match=r"job z, rank 9 asks .* is not in the group"):
        turns.ask(Member("z", 9), "cpu")


@st.composite
def groups(draw: st.DrawFn) -> tuple[dict[str, int], dict[str, int], dict[str, list[Stage]]]:
    """Jobs with offsets, ranks, and the stages of each, some of which leave stages out."""
    names = "abcd"[: draw(st.integers(1, 4))]
    offsets = dict(zip(names, draw(st.permutations(range(4))), strict=False))
    ranks = {name: draw(st.integers(1, 3)) for name in names}
    used = {name: draw(st.sets(st.sampled_from(STAGES), min_size=1)) for name in names}
    rounds = {name: draw(st.integers(0, 4)) for name in names}
    work = {name: [stage for stage in STAGES if stage in used[name]] * rounds[name] for name in names}
    return offsets, ranks, work


@given(groups(), st.randoms(use_true_random=False))
def test_every_job_ends_and_no_resource_is_ever_two_jobs(group, random) -> None:  # type: ignore[no-untyped-def]
    offsets, ranks, work = group
    turns = TurnOrder(offsets, ranks)
    left = {member: list(work[member.job]) for member in turns.members}
    ready = sorted(left)  # free to act
    working: dict[Member, Stage] = {}
    while ready or working:
        member = random.choice(sorted([*ready, *working]))
        if member in working:
            turns.done(member)
            del working[member]
            ready.append(member)
            continue
        ready.remove(member)
        if left[member]:
            going = turns.ask(member, left[member][0])
        else:
            going = turns.leave(member)
            del left[member]
        several = len({each.job for each in left}) > 1
        if going and several:
            assert not working, "a slot began before the last one had ended"
            assert all(sum(each.job == job for each in going) in (0, ranks[job]) for job in ranks)
        for each in going:
            working[each] = left[each].pop(0)
        for stage in STAGES:
            assert len({each.job for each, at in working.items() if at == stage}) <= 1
    assert not left
    assert turns.broken is None


def ends(stages: dict[str, tuple[int, ...]], offsets: dict[str, int], rounds: int) -> dict[str, list[int]]:
    """Return when each job ends each of its iterations, on a clock on which nothing else takes time."""
    turns = TurnOrder(offsets, dict.fromkeys(offsets, 1))
    count = dict.fromkeys(offsets, 0)  # stages done
    found: dict[str, list[int]] = {job: [] for job in offsets}
    working: list[tuple[int, str]] = []
    now = 0

    def begin(going: list[Member]) -> None:
        for member in going:
            heapq.heappush(working, (now + stages[member.job][count[member.job] % 4], member.job))

    for job in offsets:
        begin(turns.ask(Member(job, 0), STAGES[0]))
    while working:
        now, job = heapq.heappop(working)
        turns.done(Member(job, 0))
        count[job] += 1
        if count[job] % 4 == 0:
            found[job].append(now)
        if count[job] == 4 * rounds:
            begin(turns.leave(Member(job, 0)))
        else:
            begin(turns.ask(Member(job, 0), STAGES[count[job] % 4]))
    return found


def test_the_papers_two_jobs_need_one_round_for_what_took_two() -> None:
    """Figure 4, group 1: A is as long on one resource as B on the other; gamma is 1 over these two."""
    found = ends({"a": (2, 0, 1, 0), "b": (1, 0, 2, 0)}, {"a": 0, "b": 2}, 4)
    assert {end - begin for begin, end in zip(found["a"][1:-1], found["a"][2:], strict=True)} == {3}


stage_times = st.tuples(*[st.integers(0, 9)] * 4).filter(any)


@given(st.lists(stage_times, min_size=1, max_size=4), st.permutations(range(4)))
def test_a_round_lasts_as_long_as_equation_3_says(jobs: list[tuple[int, ...]], turns: list[int]) -> None:
    for offsets in (turns[: len(jobs)], best(jobs).offsets):
        names = "abcd"[: len(jobs)]
        found = ends(dict(zip(names, jobs, strict=True)), dict(zip(names, offsets, strict=True)), rounds=5)
        for times in found.values():
            # all take part in these: a job begins up to one round after the first and ends as much after it
            assert times[3] - times[2] == times[2] - times[1] == round_s(jobs, offsets)
