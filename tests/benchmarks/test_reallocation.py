"""What the comparison of memory policies on real links runs, and what it makes of it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks.service import reallocation_page
from benchmarks.service.ablations import AsTold, Once
from benchmarks.service.mixes import HOLD_S, RATE_BPS, SCARCE, cluster, link_s, mix
from benchmarks.service.reallocation import Row, read
from controller.memory.deadline import deadline
from controller.memory.policy import Question, Standing, check
from controller.vocabulary import Job, fabrics

STAR = fabrics.star(8, fabrics.Parts(slots=100))


def job(name: str, number: int, *, deadline_s: float | None = 10.0, iterations: int = 100) -> Job:
    """A job on two servers of `STAR`, which needs 98 slots at 10 Gb/s for its deadline."""
    return Job(
        name=name,
        workers=2,
        layers_bytes=(12_500_000,),
        iterations=iterations,
        compute_s=0.09,
        deadline_s=deadline_s,
        servers=(f"h{2 * number + 1}", f"h{2 * number + 2}"),
    )


def test_what_is_decided_once_stays_as_time_and_other_jobs_go() -> None:
    once = Once()
    first, late, other = job("first", 0), job("late", 1), job("other", 2, deadline_s=None)
    begun = check(Question((first, other), STAR), once(Question((first, other), STAR)))
    assert begun.regions["first"]["s1"].size == 98
    assert begun.regions["other"]["s1"].size == 2
    ahead = replace(first, iterations=10)
    question = Question((ahead, late, other), STAR, now_s=5.0, held=begun.regions)
    crowded = check(question, once(question))
    assert crowded.regions["first"] == begun.regions["first"], "it needs fewer now"
    assert deadline(question).regions["first"]["s1"].size < 98, "as the whole policy sees"
    assert crowded.standing["late"] is Standing.SHARED, "what does not fit when it comes"
    question = Question((late, other), STAR, now_s=6.0, held=crowded.regions)
    alone = check(question, once(question))
    assert alone.standing["late"] is Standing.SHARED, "does not get what becomes free"
    assert alone.regions["late"]["s1"].size == 100


def test_slots_as_told_do_not_follow_what_is_measured() -> None:
    as_told = AsTold()
    told = job("a", 0)
    before = as_told(Question((told,), STAR))
    measured = replace(told, compute_s=0.05)
    assert as_told(Question((measured,), STAR)).regions == before.regions
    assert deadline(Question((measured,), STAR)).regions["a"]["s1"].size < before.regions["a"]["s1"].size


def test_a_mix_is_its_seeds_and_scarce_slots_are_fewer_than_its_jobs_can_use() -> None:
    assert mix(3) == mix(3)
    assert mix(3) != mix(4)
    jobs = mix(3)
    assert [each.deadline_s is not None for each in jobs] == [True, False] * 3
    for each in jobs:
        assert each.iteration_s > each.work.compute_s + link_s(each.work.size_bytes)
        if each.deadline_s is not None:
            assert each.deadline_s > each.work.iterations * each.iteration_s, "alone it can be done"
    used = RATE_BPS / 8 * HOLD_S / 1094
    assert len(jobs) * used / 2 > SCARCE
    assert f"slots = {SCARCE}" in cluster(len(jobs), SCARCE)


def rows() -> list[Row]:
    """Two seeds, in the second of which a job with a deadline is late under both policies."""
    return [
        Row(seed, policy, name, due_s, took_s * seed, 0.3, 0.2, 0.1, 0.15, 2, 1.0, "loose", 0.4, 25e6 * seed)
        for policy, times in (("shared", (10.0, 20.0)), ("deadline", (9.0, 30.0)))
        for seed in (1, 2)
        for (name, due_s), took_s in zip((("j1", 15.0), ("j2", None)), times, strict=True)
    ]


def test_the_table_counts_late_jobs_and_says_who_pays() -> None:
    shown = reallocation_page.tables(rows())
    assert "Of 2 loose deadlines missed: shared 1, deadline 1." in shown
    assert "| deadline | 1 of 2 | 0..1 | 0.90 (0.90..0.90) | 1.50 (1.50..1.50) | 2.0 |" in shown
    assert "| deadline | 200 | 300 | 100 | 150 | 50 | 40 % | 38 | 1..1 |" in shown


def test_rows_of_earlier_runs_may_lack_what_the_fallback_server_got() -> None:
    shown = reallocation_page.tables([replace(row, detour=None, detour_bps=None) for row in rows()])
    assert "| deadline | 200 | 300 | 100 | 150 | 50 |  |  | 1..1 |" in shown


def test_rows_that_are_none_are_refused(tmp_path: Path) -> None:
    file = tmp_path / "rows.json"
    file.write_text('{"rows": [{"seed": 1}]}')
    with pytest.raises(ValueError, match="want rows of an earlier run"):
        read([file])
