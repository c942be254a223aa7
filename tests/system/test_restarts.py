"""A switch that dies, hangs or is started anew in the middle of a job: the job goes on, or says why not."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from controller import Fleet, connect
from controller.errors import Unreachable
from controller.p4runtime_shim.client import P4RuntimeClient
from ina.run.launch.agent import server_address
from ina.run.launch.spec import Attachment, FabricSpec
from ina.run.switches.fabric import open_fabric
from tests.system.attached import Attached, open_switch
from tests.system.command import (
    PATIENT,
    begun,
    children,
    finish,
    freeze,
    good,
    report,
    said_by,
    start,
    worker,
)

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
    process = begun(start(*run, *worker("marks.py", tmp_path / "m", "--until", stop)), 2)
    job = until_summed(attached, 1000, process)
    attached.switch.kill()
    attached.switch.restart()  # without a program
    assert until_summed(attached, 1000, process) == job, "under the same number, with its counters at zero"
    stop.touch()
    _, errors = finish(process)
    assert errors.splitlines()[0] == (
        f"ina: warning: switch 's1': the switch at {attached.address} no longer knows job {job}: it was"
        " restarted, and has no program; its jobs are admitted again, and continue"
    )
    with connect(attached.address) as controller:
        assert controller.jobs() == {}


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP])
def test_a_run_starts_its_switch_again_and_the_sums_stay_exact(
    number: signal.Signals, tmp_path: Path
) -> None:
    stop = tmp_path / "stop"
    run = ("run", "-np", 2, "--program", "shared", "--slots", 64, "--port-kind", "udp", *LANES, *PATIENT)
    process = start(*run, "--json", *worker("marks.py", tmp_path / "m", "--until", stop))
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
    output, _ = finish(process)
    assert json.loads(output)["metrics"]["switch_completed_packets"] > 0


@dataclass(frozen=True)
class Loss:
    """What becomes of a switch under a run of two ranks that cannot go on, and what is said of it.

    Attributes:
        by_ranks: What each rank says; ``{at}`` stands for the switch's address, ``{job}`` for the job.
        by_run: The end of the last line that the run says.
        lost: Loses the switch of a run, or the one that it is attached to.
        options: Of the run; a switch of its own has no others.
    """

    by_ranks: str
    by_run: str
    lost: Callable[[subprocess.Popen[str], Attached], object]
    attached: bool = False
    options: tuple[object, ...] = ()


def by_signal(number: signal.Signals) -> Callable[[subprocess.Popen[str], Attached], object]:
    return lambda process, _: os.kill(switch_of(process), number)


STOPPED = "the switch process was stopped (SIGSTOP) for 3 s, and was killed"
FORGOT = (
    "switch 's1': the switch at {at} no longer knows job {job}: it was restarted, and has no program; the"
    " job cannot continue: with exclusive slots, results that ranks have not received yet are lost with the"
    " switch"
)
LOSSES = {
    "its own, killed": Loss(
        r"job \d+, PSN \d+\.\.\d+: .*switch", "was killed by SIGKILL", by_signal(signal.SIGKILL)
    ),
    # it ended after 47 s, when nothing else was left to wait for, and did not say why
    "its own, stopped": Loss(re.escape(STOPPED), f"ina: {STOPPED}", lambda run, _: freeze(switch_of(run))),
    "its own, killed, in shared memory": Loss(
        *("JobFault", "; with --port-kind udp its jobs could have continued on a restarted switch"),
        by_signal(signal.SIGKILL),
        options=("--program", "shared", "--port-kind", "shm"),
    ),
    "another's, ended": Loss(
        *("PeerTimeout", "the switch at {at} does not answer", lambda _, at: at.switch.stop(), True),
        ("--timeout", 4),
    ),
    # it does not answer, or has missed a time-out before, and is silent for 1 s more
    "another's, stopped": Loss("", "Deadline Exceeded", lambda _, at: stopped(at), True),
    # it said after 9 s that another program had removed the job
    "another's, started anew": Loss(
        *("JobFault", f"ina: {FORGOT}", lambda _, at: (at.switch.kill(), at.switch.restart()), True),
        PATIENT,
    ),
}


@pytest.mark.parametrize("loss", LOSSES.values(), ids=LOSSES)
def test_a_run_that_loses_its_switch_ends_and_says_why(attached: Attached, loss: Loss) -> None:
    options = (*LANES, *loss.options, *(attached.options if loss.attached else ()))
    process = begun(start("run", "-np", 2, *options, *worker("sums.py")), 2)
    job = until_summed(attached, 100, process) if loss.attached else 0
    loss.lost(process, attached)
    output, errors = finish(process, 1)
    for rank in range(2):
        assert re.search(loss.by_ranks, "\n".join(said_by(rank, output))), output + errors
    said = loss.by_run.format(at=attached.address, job=job)
    assert said in errors.splitlines()[-1], errors
    if "Deadline" in said:
        assert "may still be on the switch" in errors


def stopped(attached: Attached) -> int:
    """Stop the process of a switch, and return it."""
    (switch,) = (pid for pid, command in children(os.getpid()).items() if "-m ina switch" in command)
    freeze(switch)
    return switch


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


STILL_SILENT = "did not answer a call in time, nor another one within 1 s"


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


def test_packets_of_no_job_are_those_of_the_run(attached: Attached) -> None:
    """They were those since the start of the switch: thousands in a run that was clean."""
    options = ("run", *LANES, *attached.options, "--json")
    process = start(*options, "--timeout", 4, *worker("sums.py"))
    job = until_summed(attached, 100, process)
    good("remove", *attached.options[:2], job)
    output, _ = process.communicate()
    assert json.loads(output)["metrics"]["refused_unknown_job_packets"] > 0
    metrics = report(*options[:-1], *PATIENT, *worker("sums.py", "--times", 3))["metrics"]
    assert [key for key in metrics if key.startswith("refused")] == []
