"""Jobs that come and go while others run, and what becomes of those that the switches cannot take."""

from __future__ import annotations

import dataclasses
import json

import pytest

from bmv2_topos.faults import RemoveJob, RestartJob
from bmv2_topos.testbeds.virtual import Placement, VirtualSettings, VirtualTestbed
from controller.errors import OutOfMemory, OutOfRows
from controller.switches import names
from controller.vocabulary import Job, float32_bytes, star
from tests.bmv2_topos.beds import SMALL, check_exact, elements, job, sending

EXCLUSIVE = dataclasses.replace(SMALL, program="exclusive", slots=256)
LENIENT = dataclasses.replace(EXCLUSIVE, report_refusals=True)
TABLES = (names.JOB, names.MEMBER, names.UPLINK, names.RECEIVER)


def bed(
    jobs: list[Job], settings: VirtualSettings = SMALL, faults: tuple[RemoveJob | RestartJob, ...] = ()
) -> VirtualTestbed:
    """Put jobs on the same hosts, as many as the largest job has workers."""
    hosts = max(entry.workers for entry in jobs)
    placements = [Placement(tuple(f"h{n + 1}" for n in range(entry.workers)), "p1") for entry in jobs]
    return VirtualTestbed(star(hosts, servers=1), jobs, placements, settings, faults)


def test_many_jobs_come_and_go_over_a_long_run() -> None:
    jobs = [job(f"j{n}", 1 + n % 4, arrival_s=0.4 * n, iterations=2) for n in range(40)]
    testbed = bed(jobs)
    report = testbed.run()
    check_exact(report, jobs)
    for entry, of in zip(jobs, report.jobs, strict=True):
        assert of.jct_s is not None
        assert of.left_s == pytest.approx(entry.arrival_s + of.jct_s)
        assert of.jct_s < 0.01
    assert report.duration_s > 0.4 * 39
    pipeline = testbed.fabric.pipelines["s1"]
    assert not any(pipeline.entries(table) for table in TABLES)


def test_an_early_job_has_the_link_to_itself_until_a_late_one_comes_and_after_it_has_left() -> None:
    early = sending("early", 2, iterations=60)
    alone = bed([early], dataclasses.replace(SMALL, slots=4096)).run().jobs[0].mean_iteration_s
    late = sending("late", 2, iterations=10_000, arrival_s=20 * alone)
    leaves = RemoveJob(40 * alone, "late")
    first, second = bed([early, late], dataclasses.replace(SMALL, slots=4096), (leaves,)).run().jobs
    assert first.checked_elements == elements(early)
    assert second.fate == "removed"
    assert second.left_s == pytest.approx(leaves.at_s, rel=0.01)
    assert sum(first.iteration_s[:18]) / 18 == pytest.approx(alone, rel=0.05)
    assert sum(first.iteration_s[21:29]) / 8 == pytest.approx(2 * alone, rel=0.2)
    assert sum(first.iteration_s[-25:]) / 25 == pytest.approx(alone, rel=0.05)
    assert second.iterations == pytest.approx(10, abs=2)


def test_a_job_that_finds_no_memory_is_refused_and_one_after_it_is_not() -> None:
    jobs = [job("a", slots=128), job("b", slots=128)]
    jobs += [job("early", slots=64, arrival_s=0.0001), job("late", slots=64, arrival_s=0.1)]
    report = bed(jobs, LENIENT).run()
    assert [of.fate for of in report.jobs] == ["done", "done", "refused", "done"]
    refused = report.jobs[2]
    assert refused.refused is not None
    assert refused.refused.startswith("switch 's1': 64 slots are asked for; 0 are free")
    assert refused.jct_s is None
    assert (refused.iterations, refused.sent_packets, refused.checked_elements) == (0, 0, 0)
    assert refused.left_s == pytest.approx(0.0001, abs=1e-5)
    plain = json.loads(json.dumps(report.to_json()))
    assert plain["jobs"][2]["fate"] == "refused"
    with pytest.raises(OutOfMemory):
        bed(jobs, EXCLUSIVE).run()


def test_more_jobs_than_a_switch_has_rows_for() -> None:
    jobs = [
        job(f"j{n}", 1, slots=2, window=1, layers_bytes=float32_bytes((10,)), iterations=1)
        for n in range(258)
    ]
    late = job("late", 1, slots=2, window=1, layers_bytes=float32_bytes((10,)), iterations=1, arrival_s=1.0)
    settings = dataclasses.replace(LENIENT, slots=1024)
    report = bed([*jobs, late], settings).run()
    fates = [of.fate for of in report.jobs]
    assert fates == ["done"] * 255 + ["refused"] * 3 + ["done"]
    assert report.jobs[255].refused is not None
    assert "the switch serves 255 jobs" in report.jobs[255].refused
    with pytest.raises(OutOfRows):
        bed(jobs, dataclasses.replace(settings, report_refusals=False)).run()


def test_a_job_that_finds_its_memory_taken_when_it_starts_anew_is_refused_then() -> None:
    whole = {"slots": 256, "window": 128, "iterations": 50}
    jobs = [job("a", **whole), job("b", arrival_s=0.0016, **whole)]
    a, b = bed(jobs, LENIENT, (RestartJob(0.0015, "a", down_s=0.001),)).run().jobs
    assert (a.fate, b.fate) == ("refused", "done")
    assert 0 < a.iterations < 50


@pytest.mark.parametrize("at_s", [0.0, 0.001])
def test_a_job_that_is_removed_before_it_arrives_never_runs(at_s: float) -> None:
    report = bed([job("a"), job("b", arrival_s=0.01)], faults=(RemoveJob(at_s, "b"),)).run()
    a, b = report.jobs
    assert (a.fate, b.fate) == ("done", "removed")
    assert b.sent_packets == 0
    assert report.duration_s < 0.01


def test_a_job_that_is_removed_while_it_is_down_does_not_come_back() -> None:
    faults = (RestartJob(0.0002, "b", down_s=0.01), RemoveJob(0.001, "b"))
    report = bed([job("a"), job("b", iterations=100)], faults=faults).run()
    assert report.jobs[1].fate == "removed"
    assert report.duration_s < 0.01


def test_what_is_kept_of_a_job_goes_with_it() -> None:
    jobs = [job(f"j{n}", arrival_s=0.01 * n) for n in range(4)]
    testbed = bed(jobs)
    assert all(of._gradients is None for of in testbed.jobs.values())
    testbed.run()
    assert all(of._gradients is None for of in testbed.jobs.values())
