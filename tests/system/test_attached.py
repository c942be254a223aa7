"""Runs that share a running switch, and what is left of a run that is interrupted: nothing."""

from __future__ import annotations

import json
import signal
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from controller import connect
from tests.controller import single
from tests.system.attached import PORTS, Attached, open_switch
from tests.system.command import PATIENT, begun, children, here, start, worker

LANES = ("--lanes", 32)


@pytest.fixture
def attached() -> Iterator[Attached]:
    with open_switch() as switch:
        yield switch


def runs(pid: int) -> bool:
    """Return whether a process is there and no zombie."""
    try:
        return (Path("/proc") / str(pid) / "stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def test_two_runs_at_once_share_a_switch(attached: Attached) -> None:
    command = worker("sums.py", "--times", 500)
    both = [start("run", "-np", 2, *PATIENT, *LANES, *attached.options, "--json", *command) for _ in range(2)]
    for process in both:
        output, errors = process.communicate()
        assert process.returncode == 0, errors
        metrics = json.loads(output)["metrics"]
        packets = 500 * 2 * -(-5000 // 32)
        assert metrics["switch_aggregated_packets"] + metrics["switch_completed_packets"] >= packets
    with connect(attached.address) as controller:
        assert controller.jobs() == {}


def test_two_runs_at_once_share_slots_and_each_has_a_fallback_server(attached: Attached) -> None:
    command = worker("exact.py", "--rounds", 4, 1000, 5000)
    options = ("--program", "shared", "--slots", 16, "--preempt", *LANES, *attached.options)
    both = [start("run", "-np", 2, *PATIENT, *options, "--json", *command) for _ in range(2)]
    for process in both:
        output, errors = process.communicate()
        assert process.returncode == 0, errors
        metrics = json.loads(output)["metrics"]
        assert metrics["switch_collided_packets"] > 0
        assert metrics["fallback_merged"] > 0
    with connect(attached.address) as controller:
        assert controller.jobs() == {}


def test_runs_one_after_the_other_are_the_same_peers_to_a_switch_that_was_told_none() -> None:
    with open_switch(peers=False) as attached:
        for program in ("exclusive", "shared", "exclusive"):
            command = worker("exact.py", 1000, 5000)
            options = ("--program", program, "--replace-program", *LANES, *attached.options)
            done = here("run", "-np", 2, *options, *command)
            assert done.returncode == 0, done.stderr
        assert attached.switch.strangers() == 0


@pytest.mark.parametrize("program", ["exclusive", "shared"])
def test_the_switch_tells_a_run_where_its_ports_and_their_peers_are(attached: Attached, program: str) -> None:
    # its address as ``ina switch --p4runtime`` takes it, without "grpc://"
    options = ("--program", program, "--replace-program", *LANES, "--switch", attached.address)
    done = here("run", "-np", 3, *options, *worker("exact.py", 1000, 5000))
    assert done.returncode == 0, done.stderr
    assert attached.switch.strangers() == 0


def test_a_run_whose_worker_address_is_taken_says_so(attached: Attached) -> None:
    host, _, base = attached.options[-1].rpartition(":")
    with socket.socket(type=socket.SOCK_DGRAM) as other:
        other.bind((host, int(base) + PORTS[1]))
        done = here("run", "-np", 2, *LANES, *attached.options, *worker("sums.py"))
    assert done.returncode == 1
    assert f"cannot take UDP {host}:{int(base) + PORTS[1]} for the host at port {PORTS[1]}" in done.stderr
    assert "--worker-base" in done.stderr


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_an_interrupted_run_takes_its_workers_and_its_job_along(
    attached: Attached, number: signal.Signals
) -> None:
    process = start("run", "-np", 2, *LANES, *attached.options, *worker("sums.py"))
    begun(process, 2)
    workers = children(process.pid)
    assert len(workers) == 2 + 1  # the keeper
    process.send_signal(number)
    process.communicate()
    assert process.returncode == 128 + number
    assert not any(runs(pid) for pid in workers)
    with connect(attached.address) as controller:
        assert controller.jobs() == {}


def test_a_terminated_run_takes_its_switch_and_its_workers_children_along() -> None:
    process = start("run", *LANES, "--", "sh", "-c", "echo started; sleep 600; true")
    begun(process, 1)
    family = children(process.pid)
    assert len(family) == 3
    while not any(command.startswith("sleep") for command in family.values()):  # what started is its parent
        assert process.poll() is None
        family |= {pid: command for parent in family for pid, command in children(parent).items()}
    process.terminate()
    process.communicate()
    assert process.returncode == 128 + signal.SIGTERM
    assert not any(runs(pid) for pid in family)


def test_an_interrupted_run_takes_all_its_switches_and_its_fallback_server_along() -> None:
    process = start("run", "--program", "shared", "--tree", "2x2", *LANES, *worker("sums.py"))
    begun(process, 4)
    family = children(process.pid)
    assert len(family) == 3 + 1 + 4 + 1
    process.send_signal(signal.SIGINT)
    process.communicate()
    assert process.returncode == 128 + signal.SIGINT
    assert not any(runs(pid) for pid in family)


def test_a_run_whose_job_was_removed_fails_and_says_so(attached: Attached) -> None:
    process = start("run", "-np", 2, *LANES, *PATIENT, *attached.options, *worker("sums.py"))
    begun(process, 2)
    with connect(attached.address) as controller:
        ((job, there),) = controller.jobs().items()
        single.remove(controller, there)
    output, errors = process.communicate()
    assert process.returncode == 1
    assert output.count("JobFault") == 2
    why = f"job {job} was removed from the switch by another program, such as 'ina remove'"
    assert errors.splitlines()[-1] == f"ina: {why}"


def test_a_run_whose_switch_died_fails_as_its_workers_and_says_so(attached: Attached) -> None:
    process = start("run", "-np", 2, *LANES, "--timeout", 4, *attached.options, *worker("sums.py"))
    begun(process, 2)
    attached.switch.stop()
    output, errors = process.communicate()
    assert process.returncode == 1
    assert output.count("PeerTimeout") == 2
    assert f"the switch at {attached.address} does not answer" in errors.splitlines()[-1]


def test_more_workers_than_the_switch_has_ports_are_refused_before_they_start(attached: Attached) -> None:
    done = here("run", "-np", 12, *LANES, *attached.options, *worker("sums.py"))
    assert done.returncode == 1
    assert "12 workers need 12 ports of the switch, and only 6 are free" in done.stderr
    done = here("run", "-np", 1, *LANES, *attached.options, "--ports", "7-8", *worker("sums.py"))
    assert done.returncode == 2
    assert "--ports 7-8: the switch at" in done.stderr
    assert "has ports 1, 2, 3, 4, 5, 6, and none of these" in done.stderr
