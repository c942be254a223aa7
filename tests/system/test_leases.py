"""Jobs on a switch that outlives its runs: those of the dead go, those of the living stay, all are seen."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime, timedelta

import pytest

from controller import Member, NoProgram, NoSuchJob, Part, Registration, SwitchSession, connect
from controller.p4runtime_shim.target import P4RuntimeTarget
from tests.controller import single
from tests.system.attached import Attached, open_switch
from tests.system.command import (
    PATIENT,
    begun,
    ended,
    finish,
    good,
    here,
    refused,
    report,
    start,
    until,
    worker,
)

LANES = ("--lanes", 32)
SUMS = worker("sums.py", "--times", 3, "--length", 100)
LEASE_S = 24  # a run with a quarter of it to wait has time enough on a busy machine
MEMBER = Member(0, 100, "02:00:00:00:00:01", "10.0.0.1", 9000)
AHEAD = """
import sys, time  # where the clock of the day is an hour ahead
from ina.cli import main

if __name__ == "__main__":
    right, right_ns = time.time, time.time_ns
    time.time = lambda: right() + 3600
    time.time_ns = lambda: right_ns() + 3600 * 10**9
    sys.argv[0] = "ina"
    main()
"""
"""Not behind: gRPC takes deadlines from the clock of Python, and compares them with the machine's."""
UNAWARE = "from ina.cli import main; from ina.run import fabric_network as on; on.CHECK_S = 3600.0; main()"
"""It does not look for its job on the switch until its workers fail."""
NO_ROOM = (
    "switch 's1': 4 workers need 4 ports of the switch, and only 2 are free among the allowed ports: 5, 6"
)


@pytest.fixture
def attached() -> Iterator[Attached]:
    with open_switch("--program", "exclusive", *LANES) as switch:
        yield switch


def registration_of(controller: SwitchSession) -> Registration:
    """Return what is said of the only job."""
    ((_, job),) = controller.jobs().items()
    assert job.registration is not None
    return job.registration


def forget_process(attached: Attached) -> None:
    """Have the only job look as if it were held on another machine."""
    target = P4RuntimeTarget(attached.address)
    with SwitchSession(target) as controller:
        (job,) = controller.jobs().values()
        assert job.registration is not None
        controller.renew(job, replace(job.registration, process="", renewals=0))


def test_the_job_of_a_killed_run_makes_room_for_the_next_at_once(attached: Attached) -> None:
    run = ("run", "-np", 4, *PATIENT, *LANES, *attached.options)
    process = begun(start(*run, *worker("sums.py")))
    ended(process, by=signal.SIGKILL)
    with connect(attached.address) as controller:
        assert len(controller.jobs()) == 1
        assert good(*run, *SUMS).stderr == ""  # four of the six ports
        assert controller.jobs() == {}


def test_the_job_of_a_run_killed_elsewhere_makes_room_once_its_lease_was_watched(attached: Attached) -> None:
    run = ("run", "-np", 4, *PATIENT, *LANES, *attached.options, "--ports", "1-6")
    process = begun(start(*run, "--lease", 2, *worker("sums.py")))
    ended(process, by=signal.SIGKILL)
    forget_process(attached)
    assert good(*run, *SUMS).stderr.splitlines() == [
        f"ina: warning: no room for the job: {NO_ROOM}; waiting"
        " up to 2 s to see whether the processes of the jobs on the switch are alive"
    ]


def test_a_run_that_finds_no_room_beside_jobs_that_are_held_ends_once_all_were_renewed(
    attached: Attached,
) -> None:
    run = ("run", "-np", 4, *LANES, *attached.options, "--ports", "1-6", "--lease", LEASE_S)
    process = begun(start(*run, *PATIENT, *worker("sums.py")))
    began_s = time.monotonic()
    said = refused(*run, *SUMS, status=1)
    waited_s = time.monotonic() - began_s
    assert said.splitlines()[-1] == f"ina: {NO_ROOM}", said
    assert waited_s < LEASE_S, "a quarter of the lease is enough"
    ended(process, by=signal.SIGTERM)


def test_the_age_of_a_job_is_right_whatever_clock_its_run_has(attached: Attached) -> None:
    """An hour ahead, it was shown as 4,291,383 s."""
    run = ("run", *LANES, *attached.options, "--lease", 1, "--", "sh", "-c", "echo started; sleep 600")
    process = begun(start(*run, program=("-c", AHEAD)))
    began = datetime.now().astimezone()
    with connect(attached.address) as controller:
        until(lambda: registration_of(controller).renewals >= 3)
    found = report("slots", *attached.options[:2])
    (job,) = found["jobs"].values()
    assert 0.7 < job["age_s"] < 1800
    assert abs(datetime.fromisoformat(job["since"]) - began) < timedelta(seconds=1800)
    ended(process, by=signal.SIGTERM)


@pytest.mark.skipif(os.getuid() != 0, reason="needs root, for namespaces of time")
def test_a_run_in_a_namespace_of_time_is_watched_by_one_outside(attached: Attached) -> None:
    """Their monotonic clocks, and those that go on in suspension, are ten days apart."""
    run = ("run", "-np", 4, *PATIENT, *LANES, *attached.options, "--ports", "1-6", "--lease", 6)
    apart = ("unshare", "--time", "--fork", "--kill-child", "--monotonic", "864000", "--boottime", "864000")
    process = begun(start(*run, *worker("sums.py"), before=apart))
    with connect(attached.address) as controller:
        (job,) = controller.jobs()
        assert NO_ROOM in refused(*run, *SUMS, status=1)
        assert list(controller.jobs()) == [job]
    ended(process, by=signal.SIGKILL)
    forget_process(attached)
    good(*run, *SUMS)


def test_a_run_that_lives_keeps_its_job_and_removes_those_that_nobody_holds(attached: Attached) -> None:
    dead = begun(
        start("run", *LANES, *attached.options, "--lease", 1, "--", "sh", "-c", "echo started; sleep 600")
    )
    ended(dead, by=signal.SIGKILL)
    forget_process(attached)
    process = start(
        "run", *LANES, *attached.options, "--lease", 1, "--", "sh", "-c", "echo started; sleep 600"
    )
    begun(process)
    with connect(attached.address) as controller:
        lost, kept = sorted(controller.jobs().values(), key=lambda job: job.members[0].port or 0)
        assert kept.registration.holder.endswith(f" pid {process.pid}")
        while lost.job in (jobs := controller.jobs()):
            time.sleep(0.5)
        assert list(jobs) == [kept.job]
    ended(process, by=signal.SIGTERM)


@pytest.mark.parametrize(
    ("options", "aware"),
    [
        (("--lease", 8), True),
        (("--program", "shared", "--replace-program"), True),  # not taken for one of a switch started anew
        (("--timeout", 4), False),  # before its lease shows it: workers only notice that nobody answers
    ],
    ids=["exclusive", "shared", "unaware"],
)
def test_a_run_whose_job_was_removed_fails_and_says_so(
    attached: Attached, options: tuple[object, ...], aware: bool
) -> None:
    run = ("-np", 2, *LANES, *attached.options, *options, "--json", *worker("sums.py"))
    process = start("run", *run, program=("-m", "ina") if aware else ("-c", UNAWARE))
    job = until(lambda: sum_is_under_way(attached), state=process.poll)
    assert report("remove", *attached.options[:2], job) == {
        "name": "remove",
        "setup": {"switch": attached.options[1], "jobs": [job]},
        "metrics": {"removed": 1},
    }
    output, errors = finish(process, 1)
    assert errors.count("JobFault") == (2 if aware else 0), errors
    why = f"job {job} was removed from the switch by another program, such as 'ina remove'"
    assert errors.splitlines()[-1] == f"ina: {why}", output + errors
    with connect(attached.address) as controller, pytest.raises(NoSuchJob):
        controller.counters(job)


def sum_is_under_way(attached: Attached) -> int:
    """Return the job whose packets the switch counts, or 0."""
    with connect(attached.address) as controller, contextlib.suppress(NoProgram, NoSuchJob):
        for job in controller.jobs():
            if sum(controller.counters(job).values()):
                return job
    return 0


def test_a_switch_without_a_program_serves_no_jobs() -> None:
    with open_switch() as attached:
        done = here("slots", *attached.options[:2])
        found = report("slots", *attached.options[:2])
    assert (done.returncode, done.stderr) == (0, "")
    assert "serves no jobs" in done.stdout
    assert found["metrics"] == {"jobs": 0}


def test_jobs_are_listed_and_removed(attached: Attached) -> None:
    switch = ("--switch", f"grpc://{attached.address}")
    assert "serves no jobs" in here("slots", *switch).stdout
    said = Registration(
        "host pid 7",
        lease_s=60.0,
        renewals=9,
        age_s=125.0,
        name="resnet",
        user="ada",
        command="python train.py",
        priority=3,
        goodput_bps=1.5e9,
    )
    with connect(attached.address) as controller:
        leased = single.admit(controller, Part((MEMBER,), 2), registration=said)
        free = single.admit(controller, Part((Member(0, 101, "02:00:00:00:00:02", "10.0.0.2", 9000),), 64))
        listed = here("slots", *switch).stdout
        assert "exclusive jobs of the switch at " in listed
        (row,) = (line for line in listed.splitlines() if f" {leased.job} " in line)
        cells = [cell.strip() for cell in row.split("│")[1:-1]]
        assert [*cells[:4], *cells[5:]] == [
            str(leased.job), "resnet", "1", "0 to 1", "125 s", "1.5 Gb/s", "3", "60 s", "ada", "host pid 7",
            "python train.py",
        ]  # fmt: skip
        found = report("slots", *switch)
        assert found["metrics"] == {"jobs": 2}
        since = datetime.fromisoformat(found["jobs"][str(leased.job)].pop("since"))
        assert abs(datetime.now().astimezone() - since - timedelta(seconds=125)) < timedelta(seconds=60)
        assert found["jobs"][str(leased.job)] == {
            "mode": "exclusive",
            "workers": 1,
            "first_slot": 0,
            "slots": 2,
            "name": "resnet",
            "user": "ada",
            "command": "python train.py",
            "priority": 3,
            "age_s": 125.0,
            "goodput_bps": 1.5e9,
            "lease_s": 60.0,
            "lease": "not watched",
            "renewals": 9,
            "holder": "host pid 7",
        }
        unnamed = found["jobs"][str(free.job)]
        assert (unnamed["since"], unnamed["age_s"], unnamed["lease"]) == (None, None, "none")
        unknown = 1 if 1 not in (leased.job, free.job) else 2
        first, second = sorted((leased.job, free.job))
        said = refused("remove", *switch, free.job, unknown, status=1)
        assert f"has no job {unknown}; its jobs: {first}, {second}" in said
        assert sorted(controller.jobs()) == [first, second]
        good("remove", *switch, free.job, leased.job, free.job)
        assert controller.jobs() == {}


def test_watching_tells_which_holders_still_renew(attached: Attached) -> None:
    held = Registration("host pid 7", lease_s=4.0)  # for much less the renewing thread may wait
    over = threading.Event()
    with connect(attached.address) as controller, connect(attached.address) as holder:
        living = single.admit(holder, Part((MEMBER,), 2), registration=held)
        dead = single.admit(holder, Part((replace(MEMBER, port=101),), 2), registration=held)

        def renew() -> None:
            renewals = 0
            while not over.wait(0.2):
                renewals += 1
                holder.renew(living, replace(held, renewals=renewals))

        thread = threading.Thread(target=renew)
        thread.start()
        try:
            done = here("slots", *attached.options[:2], "--watch", "--json")
        finally:
            over.set()
            thread.join()
        assert (done.returncode, done.stderr) == (0, "watching the leases for up to 4 s\n")
        found = json.loads(done.stdout)["jobs"]
        assert [found[str(each.job)]["lease"] for each in (living, dead)] == ["renewed", "expired"]
        assert len(controller.jobs()) == 2, "watching removes nothing"
