"""``atp.p4`` in virtual time: every sum exact whatever happens, and slots as ATP uses them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from benchmarks.pages.preemption_mixes import communicating
from bmv2_topos.faults import Fault, RestartFallback, RestartJob
from bmv2_topos.testbeds.virtual.settings import COMPILED
from controller.vocabulary import Link, Straggler
from tests.bmv2_topos.beds import SMALL, elements, job, run, sending
from tests.twins import TWINS

ATP = replace(SMALL, program="atp")
LOSSY = Link("a", "b", loss=0.02, duplicate=0.02)
TREE = (2, 2)


@pytest.mark.parametrize("shape", [None, TREE])
@pytest.mark.parametrize("numbers", ["exponent", "fixed"])
def test_the_server_makes_every_result_from_whole_sums(shape: Sequence[int] | None, numbers: str) -> None:
    entry = job(numbers=numbers)
    (of,) = run([entry], replace(ATP, slots=8192), shape=shape).jobs
    assert of.checked_elements == elements(entry)
    assert of.outcomes["completed"] > 0.9 * of.outcomes["passed_down"] > 0
    assert of.outcomes.get("stored", 0) == 0
    assert of.fallback["results"] > 0


@pytest.mark.parametrize("shape", [None, TREE])
@pytest.mark.parametrize("slots", [0, 8, 256])
@pytest.mark.parametrize("names", ["a", "abc"])
def test_sums_are_exact_under_loss_and_duplication(
    shape: Sequence[int] | None, slots: int, names: str
) -> None:
    jobs = [job(name, congestion=way) for name, way in zip(names, ("aimd", "fixed", "a2tp"), strict=False)]
    report = run(jobs, replace(ATP, slots=slots), shape=shape, link=LOSSY)
    for entry, of in zip(jobs, report.jobs, strict=True):
        assert of.checked_elements == elements(entry)
        assert of.resent_packets > 0
        if slots < 256:
            assert (of.outcomes["collided"] > 0) == (slots > 0)


@pytest.mark.parametrize("shape", [None, TREE])
@pytest.mark.parametrize("names", ["a", "ab"])
def test_sums_are_exact_when_servers_and_jobs_start_anew(shape: Sequence[int] | None, names: str) -> None:
    jobs = [job(name, iterations=8) for name in names]
    faults: list[Fault] = [
        RestartFallback(0.0003, "a"),
        RestartJob(0.0006, "a", 0.0001),
        RestartFallback(0.0009, "a", 0.0002),
        RestartFallback(0.0012, names[-1], 0.0001),
        RestartJob(0.0015, names[-1]),
    ]
    report = run(jobs, replace(ATP, slots=32), shape=shape, link=LOSSY, faults=faults)
    assert sum(of.restarts for of in report.jobs) == 2
    for entry, of in zip(jobs, report.jobs, strict=True):
        assert of.iterations == 8
        assert of.checked_elements >= elements(entry)


def test_the_same_seed_gives_the_same_report_also_with_the_twins() -> None:
    jobs = [job("a", iterations=2), job("b", 3, iterations=2)]
    few = replace(ATP, slots=16)
    native, again, numpy = (
        run(jobs, replace(few, cores=cores), link=LOSSY, shape=TREE) for cores in (COMPILED, COMPILED, TWINS)
    )
    assert native == again == numpy
    assert run(jobs, replace(few, seed=1), link=LOSSY, shape=TREE) != native


def test_salts_that_move_what_collides_make_collisions_rare() -> None:
    """Two jobs with 128 packets in flight together: what collided finds a free slot in the end."""
    jobs = [sending(name, window=64) for name in "ab"]
    moving, staying = (
        run(jobs, replace(ATP, slots=200, rehashes=rehashes)).jobs for rehashes in (True, False)
    )
    for of, before in zip(moving, staying, strict=True):
        assert of.outcomes["collided"] < 0.2 * before.outcomes["collided"]


def test_ranks_agree_on_slots_whatever_they_measure() -> None:
    """The field is a salt here; with a straggler's own measure in it, ranks would not meet.

    Where nothing collides, rehashing changes nothing.
    """
    slow = replace(communicating("a", 4), compute_s=1e-3, straggler=Straggler(7, 6e-3))
    moving, staying = (
        run([slow], replace(ATP, slots=4096, rehashes=rehashes)).jobs for rehashes in (True, False)
    )
    assert moving[0].outcomes["collided"] == 0
    assert moving == staying
