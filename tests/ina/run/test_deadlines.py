"""Deadlines that pass: of jobs that wait, that run, and that their files say too little of."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import replace
from pathlib import Path

import pytest

from controller.core import Ended, Overdue, Retried
from controller.policies.settings import AllocationSettings
from controller.vocabulary import Job
from ina.api.metrics import render
from ina.cli.service.common import rows
from ina.cli.service.serving import log_decisions
from ina.run import views
from ina.run.policies import Policies
from ina.run.quotas import Quota
from tests.ina.run.served import LEFT, RIGHT, Served
from tests.ina.run.test_policies import ledger_in
from tests.ina.run.test_quotas import submit
from tests.ina.run.virtual import ITERATION_S

DUE = {"a": 12.0, "b": 16.0, "c": 20.0}
"""Seconds that jobs of 2 s have from when all servers are busy for 100."""
KINDS = ("scheduler", "placement", "routing", "memory")


def job(name: str, servers: tuple[str, ...] = (LEFT, RIGHT), **keys: object) -> Job:
    """A job that fills its servers, and whose file says that it takes a second."""
    given = {"compute_s": 0.05, "iterations": 20, **keys}
    return Job(name=name, workers=len(servers), servers=servers, command=("train",), **given)  # type: ignore[arg-type]


async def test_a_job_that_waits_is_missed_when_its_deadline_passes_and_never_starts(served: Served) -> None:
    daemon, world = served.daemon, served.world
    world.iterations |= {"long": 120, "impossible": 1}
    await daemon.submit([job("long"), job("impossible", deadline_s=1.0, iterations=10_000_000)])
    await served.until(lambda: daemon.reports.record("impossible").over)
    record = daemon.reports.record("impossible")
    assert (record.state, record.late) == ("missed", True)
    assert "it was waiting, with 10,000,000 of 10,000,000 iterations left" in record.reason
    assert record.ended_s is not None
    assert record.job.due_s == pytest.approx(record.ended_s, abs=0.2)
    await served.until(lambda: daemon.reports.record("long").over)
    assert (daemon.reports.record("long").state, daemon.reports.record("long").late) == ("completed", False)
    assert world.completed == {"long": 1}
    await served.clean()


@pytest.mark.parametrize("servers", [(LEFT,), (LEFT, RIGHT)], ids=["one server", "two servers"])
async def test_a_job_whose_file_says_too_little_is_ended_when_its_deadline_passes(
    served: Served, servers: tuple[str, ...]
) -> None:
    """Its owner said 20 iterations of 400: it ran four times as long as it had time for, unnoticed."""
    daemon, world = served.daemon, served.world
    world.iterations |= {"told": 400, "next": 1}
    await daemon.submit([job("told", servers, deadline_s=12.0), job("next", servers)])
    await served.until(lambda: daemon.reports.record("told").over)
    record = daemon.reports.record("told")
    assert record.state == "missed", record
    assert "it was still running after the 20 iterations" in record.reason
    assert record.ended_s is not None
    assert record.job.due_s == pytest.approx(record.ended_s, abs=0.2)
    await served.until(lambda: daemon.reports.record("next").over)
    assert world.completed == {"next": 1}
    await served.clean()


async def test_a_job_that_goes_on_as_best_effort_is_completed_late_everywhere(served: Served) -> None:
    daemon, world = served.daemon, served.world
    world.iterations["patient"] = 100
    await daemon.submit([job("patient", deadline_s=2.0, on_late="best-effort")])
    await served.until(lambda: daemon.ledger.now_s > 3.0)
    assert "it has missed its deadline, 1." in daemon.reports.explain("patient")["advice"][-1]
    await served.until(lambda: daemon.reports.record("patient").over)
    record = daemon.reports.record("patient")
    assert (record.state, record.late) == ("completed", True)
    view = views.of_job(record, daemon.ledger.now_s)
    assert (view["state"], view["late"]) == ("completed", True)
    assert "completed late" in rows([view], daemon.ledger.now_s)[1][0]
    texts = [(each["event"], each["text"]) for each in daemon.reports.explain("patient")["decisions"]]
    assert [text for event, text in texts if event == "late" and "has passed" in text]
    assert [text for event, text in texts if event == "ended" and "after its deadline" in text]
    assert "ina_controller_jobs_completed_late 1" in render(daemon, streams=0, answers={})
    await served.again()
    assert served.daemon.reports.record("patient").late


async def test_a_deadline_that_passes_while_no_controller_runs_is_noticed_and_an_end_before_it_counts(
    served: Served,
) -> None:
    served.world.iterations |= {"in time": 60, "too late": 200}
    await served.daemon.submit(
        [job("in time", (LEFT,), deadline_s=10.0), job("too late", (RIGHT,), deadline_s=8.0)]
    )
    await served.until(lambda: all(each.state == "running" for each in served.daemon.reports.records()))
    await served.again(down_s=30.0)
    await served.until(lambda: all(each.over for each in served.daemon.reports.records()))
    found = {each.name: (each.state, each.late) for each in served.daemon.reports.records()}
    assert found == {"in time": ("completed", False), "too late": ("completed", True)}
    (ended,) = [
        each for each in served.daemon.reports.explain("in time")["decisions"] if each["event"] == "ended"
    ]
    assert ended["numbers"]["ran_s"] == pytest.approx(60 * ITERATION_S, abs=0.5)  # not until that was seen
    await served.clean()


async def test_a_start_logs_what_it_decides_and_does_not_guess_what_silent_jobs_have_done(
    served: Served, caplog: pytest.LogCaptureFixture
) -> None:
    served.world.silent.add("silent")
    await served.submit("silent", 1000, (LEFT, RIGHT), deadline_s=12.0)
    before = sum(served.daemon.ledger.log.counts.values())
    await served.again(down_s=25.0)
    with caplog.at_level(logging.INFO, "ina.run.decisions"):
        log = asyncio.create_task(log_decisions(served.daemon))
        assert await served.over("silent") == ["missed"]
        await asyncio.sleep(0.1)
        log.cancel()
    why = "its deadline, 12 s after its arrival, has passed, and it was running"
    assert served.daemon.reports.record("silent").reason == why
    lines = [(each.decision, each.getMessage()) for each in caplog.records if hasattr(each, "decision")]
    assert lines == [(each.number, each.entry.text) for each in served.daemon.reports.decisions(before)]
    assert why in [text for _, text in lines]


def test_a_job_that_waits_for_a_quota_is_missed_too_and_a_replay_knows_it(tmp_path: Path) -> None:
    with ledger_in(tmp_path) as ledger:
        ledger.set_quota(Quota("a", gpus=2))
        submit(ledger, "one", "a")
        submit(ledger, "two", "a", deadline_s=5.0)
        submit(ledger, "three", "a", deadline_s=6.0, on_late="best-effort")
        assert ledger.due_s == 5.0
        ledger.record([Overdue(5.0, "two"), Overdue(6.0, "three")])
        assert ledger.due_s == float("inf")
        outcome, why = ledger.left["two"]
        assert (outcome, "has passed" in why) == ("missed", True)
        assert ledger.quotas.waits("three") is not None
    with ledger_in(tmp_path) as again:
        assert (again.left, again.due_s) == (ledger.left, ledger.due_s)


def test_a_job_that_is_retried_after_its_deadline_runs_and_is_late(tmp_path: Path) -> None:
    with ledger_in(tmp_path) as ledger:
        submit(ledger, "one", "", deadline_s=5.0)
        ledger.record([Ended(1.0, "one", "exited with status 1")])
        assert ledger.due_s == float("inf")
        ledger.record([Retried(2.0, "one")])
        assert ledger.due_s == 5.0
        ledger.record([Ended(3.0, "one", "exited with status 1"), Retried(7.0, "one")])
        assert ledger.due_s == float("inf")
        assert "one" in ledger.core.jobs


def by_default(servers: int) -> dict[str, object]:
    usual = Policies.by_default(servers, {})
    return {"scheduler": usual.scheduler, "allocation": usual.allocation}


@pytest.mark.parametrize(
    ("served", "missed"),
    [
        ({"scheduler": "fifo", "allocation": AllocationSettings(memory="deadline-lazy")}, ["a", "b", "c"]),
        (by_default(6), []),
        (by_default(64), []),
    ],
    indirect=["served"],
    ids=["fifo", "default of 6 servers", "default of 64 servers"],
)
async def test_the_default_policies_meet_deadlines_that_a_queue_in_order_of_arrival_misses(
    served: Served, missed: list[str]
) -> None:
    """With earlier defaults three of three were missed."""
    daemon, world = served.daemon, served.world
    world.iterations |= dict.fromkeys(("long-1", "long-2"), 2000) | dict.fromkeys(DUE, 40)
    long = [job(f"long-{n}", at, iterations=2000) for n, at in ((1, ("h1", "h2")), (2, ("h3", "h4")))]
    await daemon.submit([replace(each, servers=()) for each in long])
    await served.until(lambda: all(each.state == "running" for each in daemon.reports.records()))
    due = [job(each, deadline_s=deadline_s, iterations=40) for each, deadline_s in DUE.items()]
    await daemon.submit([replace(each, servers=()) for each in due])
    await served.over(within_s=1000.0)
    assert [each.name for each in daemon.reports.records() if each.late] == missed
    await served.clean()


def test_the_default_fits_the_cluster_and_what_is_named() -> None:
    joint = ("joint", "scheduler", "shortest-path", "shared")
    simple = ("edf", "netpack", "ecmp-everywhere", "shared")

    def names(servers: int, **named: str) -> tuple[str, ...]:
        return tuple(Policies.by_default(servers, named).names[kind] for kind in KINDS)

    assert names(32) == joint
    assert names(33) == simple
    assert names(33, scheduler="joint") == joint
    assert names(4, scheduler="fifo") == ("fifo", *simple[1:])
    assert names(4, placement="locality") == ("edf", "locality", *simple[2:])
    assert names(4, memory="deadline-lazy") == (*joint[:3], "deadline-lazy")
