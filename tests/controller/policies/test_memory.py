"""Memory policies: formulas, no slot granted twice, memory that stays in one piece."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from controller.errors import BadSpec
from controller.policies.memory.deadline import LEAST_IN_FLIGHT, WASTE, arrange, deadline, deadline_lazy
from controller.policies.memory.policy import (
    MemoryDivision,
    MemoryProblem,
    check,
    demand,
    explain,
    rate_of,
    slots_for,
)
from controller.policies.memory.regions import SlotStatus
from controller.policies.registry import MEMORIES
from controller.vocabulary import Job, Region, Switch, fabrics
from tests import effort

FABRIC = fabrics.leaf_spine(2, 3, 2, fabrics.Parts(slots=512, gpus=4))
SERVERS = [server.name for server in FABRIC.servers]


def job(name: str = "a", **more: object) -> Job:
    known = {"workers": 2, "layers_bytes": (12_500_000,), "iterations": 100, "compute_s": 0.09}
    known |= {"servers": ("h1", "h2")}
    return Job(name=name, **{**known, **more})  # type: ignore[arg-type]


@given(
    left_s=st.floats(0.001, 10),
    compute_s=st.floats(0, 1),
    size=st.integers(1, 10**9),
    rtt_s=st.floats(1e-6, 1e-2),
)
def test_slots_are_those_of_the_articles_formula(
    left_s: float, compute_s: float, size: int, rtt_s: float
) -> None:
    one = job(
        layers_bytes=(size,), compute_s=compute_s, deadline_s=left_s, iterations=1, overlap=0.7, hold_s=1.0
    )
    switch = Switch("s1", 1 << 20, 64, rtt_s)
    need = demand(one, now_s=0, link_bps=1e18, reading="article")
    if left_s <= compute_s:
        assert not need.feasible
    else:
        slots = size / (left_s - compute_s) * rtt_s / 256
        assert slots_for(one, switch, need.rate_bps, "article") == pytest.approx(
            max(1, math.ceil(slots)), rel=1e-9, abs=1
        )


@given(overlap=st.floats(0, 1), hold_s=st.floats(1e-5, 1e-3), left_s=st.floats(0.1, 1))
def test_with_measured_slots_the_deadline_is_met_and_with_one_fewer_missed(
    overlap: float, hold_s: float, left_s: float
) -> None:
    one = job(overlap=overlap, hold_s=hold_s, deadline_s=left_s, iterations=1)
    switch = Switch("s1", 1 << 30)
    need = demand(one, now_s=0, link_bps=1e18)
    slots = slots_for(one, switch, need.rate_bps)
    assert one.iteration_at_s(rate_of(one, switch, slots)) <= left_s * (1 + 1e-9)
    if slots > 1:
        assert one.iteration_at_s(rate_of(one, switch, slots - 1)) > left_s * (1 - 1e-9)


def test_an_exclusive_region_is_a_power_of_two_with_two_slots_for_each_packet() -> None:
    switch = Switch("s1", 8192)
    shared = slots_for(job(), switch, 10e9)
    assert slots_for(job(mode="exclusive"), switch, 10e9) == 256 >= 2 * shared


def test_the_most_urgent_are_granted_and_the_rest_share_what_remains() -> None:
    rack = fabrics.star(2, fabrics.Parts(slots=200))
    jobs = (job("late", deadline_s=10.5), job("soon", deadline_s=10), job("free"), job("never", deadline_s=9))
    division = check(q := MemoryProblem(jobs, rack), deadline(q))
    assert division.standing == {
        "late": SlotStatus.GRANTED,
        "soon": SlotStatus.GRANTED,
        "free": SlotStatus.SHARED,
        "never": SlotStatus.ENDED,
    }
    assert division.regions["soon"]["s1"] == Region(0, 98)
    assert division.regions["free"]["s1"].end == 200
    assert not division.regions["never"]
    assert division.demands["never"].estimate_s == pytest.approx(100 * 0.091)
    tight = MemoryProblem(jobs, fabrics.star(2, fabrics.Parts(slots=120)))
    assert deadline(tight).standing["late"] is SlotStatus.SHARED


def test_windows_keep_within_grants_and_within_equal_parts_of_what_is_shared() -> None:
    """Whoever sent more would only load the fallback server. `shared` bounds nobody."""
    rack = fabrics.star(2, fabrics.Parts(slots=200))
    jobs = (job("soon", deadline_s=10), job("free"), job("other"), job("never", deadline_s=9))
    division = check(q := MemoryProblem(jobs, rack), deadline(q))
    assert division.in_flight("soon") == division.regions["soon"]["s1"].size == 98
    assert division.in_flight("free") == division.in_flight("other") == (200 - 98) // 2
    assert division.in_flight("never") == 0
    few = MemoryProblem(jobs, fabrics.star(2, fabrics.Parts(slots=100)))
    assert deadline(few).in_flight("free") == LEAST_IN_FLIGHT
    parted = MemoryProblem(jobs[:3], rack)
    assert {MEMORIES["static"](parted).in_flight(each.name) for each in jobs[:3]} == {66, 67}
    assert MEMORIES["shared"](parted).in_flight("free") == 0
    with pytest.raises(BadSpec, match=r"parts\['free'\] is 0, must be 1 or more"):
        check(q, replace(division, parts={"free": 0}))


def test_no_job_is_granted_more_slots_than_its_window_has_packets() -> None:
    switch = Switch("s1", 8192)
    assert slots_for(job(hold_s=1.0), switch, 10e9) > 128
    assert slots_for(job(hold_s=1.0, window=128), switch, 10e9) == 128
    bound = job(hold_s=1e-3, window=128)
    assert rate_of(bound, switch, 400) == rate_of(bound, switch, 128) > rate_of(bound, switch, 127)


def test_lazily_only_deadlines_that_an_equal_part_does_not_do_for_are_granted() -> None:
    jobs = (job("late", deadline_s=10.5), job("soon", deadline_s=10), job("free"), job("never", deadline_s=9))
    slots = {"late": 66, "soon": 98}  # as their deadlines need

    def granted(total: int) -> set[str]:
        q = MemoryProblem(jobs, fabrics.star(2, fabrics.Parts(slots=total)))
        division = check(q, deadline_lazy(q))
        assert division.standing["never"] is SlotStatus.ENDED
        found = {name for name, standing in division.standing.items() if standing is SlotStatus.GRANTED}
        assert all(division.regions[name]["s1"].size == slots[name] for name in found)
        return found

    assert granted(3 * 98) == set()  # the parts of three jobs do
    assert granted(3 * 98 - 1) == {"soon"}  # and what it leaves does for the two others
    assert granted(98 + 2 * 66) == {"soon"}
    assert granted(98 + 2 * 66 - 1) == {"soon", "late"}


@st.composite
def questions(draw: st.DrawFn) -> MemoryProblem:
    jobs = []
    for number in range(draw(st.integers(1, 12))):
        servers = tuple(draw(st.lists(st.sampled_from(SERVERS), min_size=1, max_size=4)))
        jobs.append(
            job(
                f"j{number}",
                workers=len(servers),
                servers=servers,
                deadline_s=draw(st.none() | st.floats(9, 14)),
                arrival_s=draw(st.floats(0, 1)),
                hold_s=draw(st.none() | st.floats(1e-5, 1e-4)),
                overlap=draw(st.sampled_from([0.0, 0.5])),
            )
        )
    return MemoryProblem(tuple(jobs), FABRIC)


@settings(max_examples=effort.cases(60))
@given(questions(), st.sampled_from(sorted(MEMORIES)), st.data())
def test_no_slot_is_granted_twice_from_period_to_period(
    q: MemoryProblem, name: str, data: st.DataObject
) -> None:
    division = check(q, MEMORIES[name](q))
    stay = data.draw(st.sets(st.sampled_from(q.jobs)))
    left = tuple(job for job in q.jobs if job in stay)
    again = replace(q, jobs=left, now_s=1.0, held=division.regions)
    after = check(again, MEMORIES[name](again))
    for one in left:
        assert all(line for line in explain(again, after, one))


@settings(max_examples=effort.cases(200))
@given(st.data())
def test_memory_stays_in_one_piece(data: st.DataObject) -> None:
    held: dict[str, Region] = {}
    for period in range(6):
        names = data.draw(st.sets(st.sampled_from("abcdefgh")))
        sizes: dict[str, int] = {}
        for name in sorted(names):
            kept = held[name].size if name in held else 0
            left = 100 - sum(sizes.values())
            size = kept if kept and data.draw(st.booleans()) else data.draw(st.integers(1, 40))
            if size <= left:
                sizes[name] = size
        placed, rest = arrange(100, sizes, held)
        assert {name: region.size for name, region in placed.items()} == sizes, period
        slots = [slot for region in (*placed.values(), rest) for slot in range(region.offset, region.end)]
        assert len(slots) == len(set(slots))
        assert all(0 <= slot < 100 for slot in slots)
        free = 100 - sum(sizes.values())
        assert rest.size >= free * (1 - WASTE)
        held = placed


def test_a_job_whose_need_has_not_changed_stays_where_it_is() -> None:
    placed, rest = arrange(
        100, {"b": 10, "c": 5}, {"a": Region(0, 4), "b": Region(4, 10), "c": Region(14, 5)}
    )
    assert placed == {"b": Region(4, 10), "c": Region(14, 5)}
    assert rest == Region(19, 81)


def test_of_jobs_that_shared_a_region_one_keeps_it_and_the_others_move() -> None:
    """All of them once kept it, if they were granted just its size: their slots were granted twice."""
    held = dict.fromkeys("ab", Region(50, 50))
    placed, _ = arrange(100, {"a": 50, "b": 50}, held)
    assert placed == {"a": Region(50, 50), "b": Region(0, 50)}


def test_who_cannot_meet_a_deadline_is_ended_and_leaves_the_slots_to_others() -> None:
    q = MemoryProblem(
        (job("late", deadline_s=1.0), job("due", deadline_s=100.0), job("other")), fabrics.star(2)
    )
    kept, earliest = (MEMORIES[name](q) for name in ("preemptive", "earliest"))
    assert kept.standing["late"] is SlotStatus.GRANTED
    assert earliest.standing == {
        "late": SlotStatus.ENDED,
        "due": SlotStatus.GRANTED,
        "other": SlotStatus.SHARED,
    }
    assert earliest.regions["due"] == kept.regions["late"]
    assert earliest.regions["due"]["s1"].size > MEMORIES["deadline"](q).regions["due"]["s1"].size


def test_exclusive_jobs_are_not_to_share() -> None:
    q = MemoryProblem((job(mode="exclusive"),), fabrics.star(2))
    assert MEMORIES["static"](q).regions["a"]["s1"].size == 8192
    for name in ("shared", "deadline"):
        with pytest.raises(BadSpec, match="'a' is exclusive, and this policy shares slots"):
            MEMORIES[name](q)


def test_answers_of_policies_from_outside_are_looked_at() -> None:
    q = MemoryProblem((job("a"), job("b")), fabrics.star(2, fabrics.Parts(slots=10)))
    own = dict.fromkeys("ab", SlotStatus.GRANTED)
    for regions, said in (
        ((Region(0, 6), Region(5, 3)), "grants slots of 's1' twice: to 'a' and 'b'"),
        ((Region(0, 6), Region(6, 5)), "gives 'b' Region"),
    ):
        with pytest.raises(BadSpec, match=said):
            check(q, MemoryDivision({"a": {"s1": regions[0]}, "b": {"s1": regions[1]}}, own))
    with pytest.raises(BadSpec, match="want a standing and regions for each job"):
        check(q, MemoryDivision({}, own))
