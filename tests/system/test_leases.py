"""Jobs on a switch that outlives its runs: those of the dead go, those of the living stay, all are seen."""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Iterator

import pytest

from controller import Controller, Lease, Member, NoProgram, NoSuchJob, Part, connect
from controller.p4runtime_shim.target import P4RuntimeTarget
from tests.system.attached import Attached, open_switch
from tests.system.command import PATIENT, here, start, worker

LANES = ("--lanes", 32)
SUMS = worker("sums.py", "--times", 3, "--length", 100)
MEMBER = Member(0, 100, "02:00:00:00:00:01", "10.0.0.1", 9000)


@pytest.fixture
def attached() -> Iterator[Attached]:
    with open_switch("--program", "exclusive", *LANES) as switch:
        yield switch


def lease_of(controller: Controller) -> Lease:
    """Return the lease of the only job."""
    ((_, job),) = controller.jobs().items()
    assert job.lease is not None
    return job.lease


def admit_at(address: str, now_ms: int) -> None:
    """Have a job come and go at this time of the clock."""
    with Controller(P4RuntimeTarget(address), clock=lambda: now_ms / 1000) as controller:
        controller.remove(controller.admit(Part((MEMBER,), 2)).job)


def test_the_job_of_a_killed_run_makes_room_for_the_next(attached: Attached) -> None:
    run = ("run", "-np", 4, *PATIENT, *LANES, *attached.options)
    process = start(*run, "--lease", 1, *worker("sums.py"))
    assert process.stdout is not None
    assert "started" in process.stdout.readline()
    process.kill()
    with connect(attached.address) as controller:
        assert len(controller.jobs()) == 1
        until_ms = lease_of(controller).until_ms
        while time.time() * 1000 <= until_ms:
            time.sleep(0.1)
        done = here(*run, *SUMS)  # four of the six ports
        assert done.returncode == 0, done.stderr
        assert controller.jobs() == {}
    process.communicate()


def test_a_run_that_lives_keeps_its_job_and_one_that_lost_it_says_so(attached: Attached) -> None:
    process = start(
        "run", *LANES, *attached.options, "--lease", 4, "--", "sh", "-c", "echo started; sleep 600"
    )
    assert process.stdout is not None
    assert "started" in process.stdout.readline()
    with connect(attached.address) as controller:
        (job,) = controller.jobs()
        first = lease_of(controller)
        assert first.holder.endswith(f" pid {process.pid}")
        while (renewed := lease_of(controller)).until_ms <= first.until_ms:
            time.sleep(0.1)
        admit_at(attached.address, first.until_ms + 1)
        assert list(controller.jobs()) == [job]
        admit_at(attached.address, renewed.until_ms + 3_600_000)
        assert controller.jobs() == {}
    process.terminate()
    process.communicate()


def test_a_run_that_lost_its_job_fails_and_says_so(attached: Attached) -> None:
    # seconds: were it not renewed for so long, it would not be known that the job was removed before
    process = start("run", "-np", 2, *LANES, *attached.options, "--lease", 8, *worker("sums.py"))
    assert process.stdout is not None
    assert "started" in process.stdout.readline()
    with connect(attached.address) as controller:
        (job,) = controller.jobs()
        done = here("remove", "--switch", f"grpc://{attached.address}", job)
        assert (done.returncode, done.stdout) == (0, f"removed job {job}\n"), done.stderr
    output, errors = process.communicate()
    assert process.returncode not in (0, 2, 3, 4)
    why = f"job {job} was removed from the switch by another program, such as 'ina remove'"
    assert errors.splitlines()[-1] == f"ina: {why}", output + errors


def test_a_run_whose_job_was_removed_says_so_before_its_lease_shows_it(attached: Attached) -> None:
    """The workers only notice that nobody answers."""
    process = start("run", *LANES, *attached.options, "--json", "--timeout", 1, *worker("sums.py"))
    assert process.stderr is not None
    while not (found := sum_is_under_way(attached)):
        time.sleep(0.1)
    done = here("remove", *attached.options[:2], "--json", found)
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert report == {
        "name": "remove",
        "setup": {"switch": attached.options[1], "jobs": [found]},
        "metrics": {"removed": 1},
    }
    output, errors = process.communicate()
    assert process.returncode == 1
    assert errors.splitlines()[-1] == (
        f"ina: job {found} was removed from the switch by another program, such as 'ina remove'"
    ), output + errors


def sum_is_under_way(attached: Attached) -> int:
    """Return the job whose packets the switch counts, or 0."""
    with connect(attached.address) as controller, contextlib.suppress(NoProgram, NoSuchJob):
        for job in controller.jobs():
            if sum(controller.counters(job).values()):
                return job
    return 0


def test_a_switch_without_a_program_serves_no_jobs() -> None:
    with open_switch() as attached:
        done = here("jobs", *attached.options[:2])
        report = json.loads(here("jobs", *attached.options[:2], "--json").stdout)
    assert (done.returncode, done.stderr) == (0, "")
    assert "serves no jobs" in done.stdout
    assert report["metrics"] == {"jobs": 0}


def test_jobs_are_listed_and_removed(attached: Attached) -> None:
    switch = ("--switch", f"grpc://{attached.address}")
    assert "serves no jobs" in here("jobs", *switch).stdout
    with connect(attached.address) as controller:
        now_ms = int(time.time() * 1000)
        leased = controller.admit(Part((MEMBER,), 2), lease=Lease(now_ms + 3_600_000, "host pid 7"))
        free = controller.admit(Part((Member(0, 101, "02:00:00:00:00:02", "10.0.0.2", 9000),), 64))
        lines = here("jobs", *switch).stdout.splitlines()
        (row,) = (line for line in lines if f" {leased.job} " in line)
        assert [cell.strip() for cell in row.split("│")[1:5]] == [str(leased.job), "exclusive", "1", "0 to 1"]
        assert "host pid 7" in row
        report = json.loads(here("jobs", *switch, "--json").stdout)
        assert report["metrics"] == {"jobs": 2}
        assert 0 < report["jobs"][str(leased.job)]["lease_s"] <= 3600
        assert report["jobs"][str(free.job)] | {"age_s": 0} == {
            "mode": "exclusive",
            "workers": 1,
            "first_slot": 2,
            "slots": 64,
            "age_s": 0,
            "lease_s": None,
            "holder": "",
        }
        unknown = 1 if 1 not in (leased.job, free.job) else 2
        refused = here("remove", *switch, free.job, unknown)
        assert refused.returncode == 1
        first, second = sorted((leased.job, free.job))
        assert f"has no job {unknown}; its jobs: {first}, {second}" in refused.stderr
        assert sorted(controller.jobs()) == [first, second]
        done = here("remove", *switch, free.job, leased.job, free.job)
        assert done.returncode == 0, done.stderr
        assert controller.jobs() == {}


def test_a_holder_that_would_move_the_cursor_of_a_terminal_is_shown_escaped(attached: Attached) -> None:
    with connect(attached.address) as controller:
        controller.admit(Part((MEMBER,), 2), lease=Lease(1 << 62, "\x1b[2Jhost"))
        done = here("jobs", *attached.options[:2])
    assert (done.returncode, done.stderr) == (0, "")
    assert "\x1b" not in done.stdout
    assert r"'\x1b[2Jhost'" in done.stdout
