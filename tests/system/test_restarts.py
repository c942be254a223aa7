"""A switch that dies, hangs or is started anew in the middle of a job: the job goes on, or says why not."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from controller import Fleet, connect
from controller.errors import NoSuchJob, Unreachable
from controller.p4runtime_shim.client import P4RuntimeClient
from ina.runtime.addresses import server_address
from ina.runtime.fabric import open_fabric
from ina.runtime.spec import Attachment, FabricSpec
from tests.system.attached import Attached, open_switch
from tests.system.command import PATIENT, begun, children, freeze, here, start, worker

LANES = ("--lanes", 32)


def switch_of(process: subprocess.Popen[str], *, other_than: int = 0) -> int:
    """Return the process of the switch of a run, once it is there."""
    while process.poll() is None:
        for pid, command in children(process.pid).items():
            if "-m ina switch" in command and pid != other_than:
                return pid
        time.sleep(0.05)
    raise AssertionError(process.communicate())


@pytest.fixture
def attached() -> Iterator[Attached]:
    """A switch whose address nobody else can take while it is started anew."""
    with (
        server_address("127.0.0.1") as held,
        open_switch(p4runtime="{}:{}".format(*held.getsockname())) as switch,
    ):
        yield switch


def until_summed(attached: Attached, least: int, process: subprocess.Popen[str]) -> int:
    """Return the only job, that of a run, once the switch has counted so many of its packets."""
    with connect(attached.address) as controller:
        while True:
            assert process.poll() is None, process.communicate()
            for job in controller.jobs() if controller.has_program() else ():
                if controller.counters(job)["completed"] >= least:
                    return job
            time.sleep(0.05)


def test_a_job_that_shares_slots_goes_on_after_its_switch_was_started_anew(
    attached: Attached, tmp_path: Path
) -> None:
    stop = tmp_path / "stop"
    run = ("run", "-np", 2, "--program", "shared", "--slots", 64, *LANES, *PATIENT, *attached.options)
    process = start(*run, *worker("until.py", stop))
    begun(process, 2)
    job = until_summed(attached, 1000, process)
    attached.switch.kill()
    attached.switch.restart()  # without a program
    assert until_summed(attached, 1000, process) == job, "under the same number, with its counters at zero"
    stop.touch()
    output, errors = process.communicate()
    assert process.returncode == 0, output + errors
    assert errors.splitlines()[0] == (
        f"ina: warning: switch 's1': the switch at {attached.address} no longer knows job {job}: it was"
        " restarted, and has no program; its jobs are admitted again, and continue"
    )
    with connect(attached.address) as controller:
        assert controller.jobs() == {}


def test_an_exclusive_job_whose_switch_was_started_anew_ends_and_says_so(attached: Attached) -> None:
    """It said after 9 s that another program had removed the job."""
    process = start("run", "-np", 2, *LANES, *PATIENT, *attached.options, *worker("sums.py"))
    begun(process, 2)
    job = until_summed(attached, 100, process)
    attached.switch.kill()
    attached.switch.restart()
    output, errors = process.communicate()
    assert process.returncode == 1
    assert output.count("JobFault") == 2
    assert errors.splitlines()[-1] == (
        f"ina: switch 's1': the switch at {attached.address} no longer knows job {job}: it was restarted, and"
        " has no program; the job cannot go on: with exclusive slots the results that ranks have not heard"
        " yet are lost with the switch"
    ), output + errors


def test_a_job_that_was_removed_is_not_taken_for_one_of_a_switch_that_was_started_anew(
    attached: Attached,
) -> None:
    process = start("run", "-np", 2, "--program", "shared", *LANES, *attached.options, *worker("sums.py"))
    begun(process, 2)
    job = until_summed(attached, 100, process)
    assert here("remove", *attached.options[:2], job).returncode == 0
    _, errors = process.communicate()
    assert process.returncode == 1
    assert errors.splitlines()[-1] == (
        f"ina: job {job} was removed from the switch by another program, such as 'ina remove'"
    )
    with connect(attached.address) as controller, pytest.raises(NoSuchJob):
        controller.counters(job)


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP])
def test_a_run_starts_its_switch_again_and_the_sums_stay_exact(
    number: signal.Signals, tmp_path: Path
) -> None:
    stop = tmp_path / "stop"
    run = ("run", "-np", 2, "--program", "shared", "--slots", 64, "--port-kind", "udp", *LANES, *PATIENT)
    process = start(*run, "--json", *worker("until.py", stop))
    assert process.stderr is not None
    while "started" not in process.stderr.readline():
        pass
    first = switch_of(process)
    os.kill(first, number)
    switch_of(process, other_than=first)
    warning = process.stderr.readline()
    while "started" in warning:
        warning = process.stderr.readline()
    how = (
        "was killed by SIGKILL"
        if number == signal.SIGKILL
        else "was stopped (SIGSTOP) for 3 s, and was killed"
    )
    assert warning == f"ina: warning: the switch process {how}; restarting it (1 of 5)\n"
    stop.touch()
    output, errors = process.communicate()
    assert process.returncode == 0, errors
    assert json.loads(output)["metrics"]["switch_completed_packets"] > 0


def test_a_run_whose_switch_is_stopped_ends_soon_and_says_why() -> None:
    """It ended after 47 s, when nothing else was left to wait for, and did not say why."""
    process = start("run", "-np", 2, *LANES, *worker("sums.py"))
    begun(process, 2)
    freeze(switch_of(process))
    output, errors = process.communicate()
    assert process.returncode == 1
    why = "the switch process was stopped (SIGSTOP) for 3 s, and was killed"
    assert output.count(why) == 2
    assert errors.splitlines()[-1] == f"ina: {why}"


def stopped(attached: Attached) -> int:
    """Stop the process of a switch, and return it."""
    (switch,) = (pid for pid, command in children(os.getpid()).items() if "-m ina switch" in command)
    freeze(switch)
    return switch


def test_a_run_on_a_running_switch_that_is_stopped_ends_and_says_why(attached: Attached) -> None:
    process = start("run", *attached.options, "-np", 2, *LANES, *worker("sums.py"))
    begun(process, 2)
    switch = stopped(attached)
    try:
        _, errors = process.communicate()
    finally:
        os.kill(switch, signal.SIGCONT)
    assert process.returncode == 1
    assert "may still be on the switch" in errors
    assert errors.splitlines()[-1].endswith("does not answer: Deadline Exceeded")


def test_a_switch_that_did_not_answer_is_not_waited_for_again(attached: Attached) -> None:
    """At the end of a run counters, removal and refused packets each waited 10 s for it: 30 s in all."""
    spec = FabricSpec(program="exclusive", lanes=32, attached=Attachment(address=attached.address))
    with open_fabric(spec, [2]) as fabric:
        switch = stopped(attached)
        try:
            waited_s = []
            for _ in range(2):
                began_s = time.monotonic()
                with pytest.raises(Unreachable, match="does not answer"):
                    fabric.refused()
                waited_s.append(time.monotonic() - began_s)
        finally:
            os.kill(switch, signal.SIGCONT)
        assert waited_s[1] < waited_s[0] / 2
        with fabric.asking(again=True):
            assert list(fabric.fleet.refused()) == ["s1"]


STILL_SILENT = "did not answer, and does not within 1 s"


def test_a_fleet_waits_a_second_for_a_switch_that_hangs_and_notices_when_it_goes_on(
    attached: Attached,
) -> None:
    """Each comparison waited 10 s for it: a job of the service had another tree after 75 s."""
    with connect(attached.address) as controller:
        fleet = Fleet({"s1": controller})
        switch = stopped(attached)
        try:
            doubted = fleet.reconcile([], doubtful=["s1"])
            again = fleet.reconcile([])
        finally:
            os.kill(switch, signal.SIGCONT)
        assert STILL_SILENT in doubted.left_out["s1"]
        assert STILL_SILENT in again.left_out["s1"]
        while STILL_SILENT in (why := fleet.reconcile([]).left_out["s1"]):
            time.sleep(0.05)
        assert why == f"the switch at {attached.address} has no program loaded"


def test_whatever_a_switch_did_not_answer_it_has_a_second_for_the_next_call(attached: Attached) -> None:
    with contextlib.closing(P4RuntimeClient(attached.address, timeout_s=0.5)) as client:
        calls: list[tuple[Callable[[], object], str]] = [
            (client.cookie, "reading the loaded program: .* does not answer"),
            (lambda: client.read([]), "read: .* does not answer"),
            (lambda: client.write("INSERT", []), "INSERT of 0 entries: .* does not answer"),
            (lambda: client.mastership(timeout_s=0.5).__enter__(), "does not answer on its stream"),
        ]
        for call, unanswered in calls:
            switch = stopped(attached)
            try:
                with pytest.raises(Unreachable, match=unanswered):
                    call()
                with pytest.raises(Unreachable, match=STILL_SILENT):
                    call()
            finally:
                os.kill(switch, signal.SIGCONT)
            until_answered(client)


def until_answered(client: P4RuntimeClient) -> None:
    while True:
        with contextlib.suppress(Unreachable):
            client.cookie()
            return


def test_a_run_whose_shared_memory_switch_died_says_what_would_have_helped() -> None:
    process = start("run", "-np", 2, "--program", "shared", "--port-kind", "shm", *LANES, *worker("sums.py"))
    begun(process, 2)
    os.kill(switch_of(process), signal.SIGKILL)
    _, errors = process.communicate()
    assert process.returncode == 1
    assert errors.splitlines()[-1] == (
        "ina: the switch process was killed by SIGKILL; with --port-kind udp its jobs could have gone on with"
        " another one"
    )


def test_packets_of_no_job_are_those_of_the_run(attached: Attached) -> None:
    """They were those since the start of the switch: thousands in a run that was clean."""
    options = ("run", *LANES, *attached.options, "--json")
    process = start(*options, "--timeout", 4, *worker("sums.py"))
    job = until_summed(attached, 100, process)
    assert here("remove", *attached.options[:2], job).returncode == 0
    output, _ = process.communicate()
    assert json.loads(output)["metrics"]["refused_unknown_job_packets"] > 0
    done = here(*options, *PATIENT, *worker("sums.py", "--times", 3))
    assert done.returncode == 0, done.stderr
    assert [key for key in json.loads(done.stdout)["metrics"] if key.startswith("refused")] == []
