"""Runs that share a running switch, and what is left of a run that is interrupted: nothing."""

from __future__ import annotations

import json
import signal
import socket
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import pytest

from controller import Controller
from controller.cli.embedded import EmbeddedSwitch
from tests.system.command import children, start, worker

PORTS = range(1, 7)
LANES = ("--lanes", 32)


@dataclass(frozen=True)
class Attached:
    """A switch with six ports that outlives the runs."""

    switch: EmbeddedSwitch
    options: tuple[str, ...]

    @property
    def address(self) -> str:
        return self.switch.address


def consecutive_udp_ports(count: int) -> int:
    """Return the first of `count` free UDP ports in a row."""
    while True:
        with ExitStack() as stack:
            probes = [stack.enter_context(socket.socket(type=socket.SOCK_DGRAM)) for _ in range(count)]
            probes[0].bind(("127.0.0.1", 0))
            first: int = probes[0].getsockname()[1]
            try:
                for offset in range(1, count):
                    probes[offset].bind(("127.0.0.1", first + offset))
            except (OSError, OverflowError):
                continue
        return first


@pytest.fixture
def attached() -> Iterator[Attached]:
    base = consecutive_udp_ports(len(PORTS)) - PORTS[0]
    ports = [word for port in PORTS for word in ("--port", f"{port}=udp:{base + port}")]
    with EmbeddedSwitch(ports) as switch:
        options = ("--switch", f"grpc://{switch.address}", "--udp-base", f"127.0.0.1:{base}")
        yield Attached(switch, options)


def begun(process: subprocess.Popen[str], workers: int) -> None:
    """Return when all workers have said that they started."""
    assert process.stdout is not None
    assert all("started" in process.stdout.readline() for _ in range(workers))


def runs(pid: int) -> bool:
    """Return whether a process is there and no zombie."""
    try:
        return (Path("/proc") / str(pid) / "stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def test_two_runs_at_once_share_a_switch(attached: Attached) -> None:
    command = worker("sums.py", "--times", 500)
    both = [start("run", "-np", 2, *LANES, *attached.options, "--json", *command) for _ in range(2)]
    for process in both:
        output, errors = process.communicate(timeout=60)
        assert process.returncode == 0, errors
        metrics = json.loads(output)["metrics"]
        packets = 500 * 2 * -(-5000 // 32)
        assert metrics["switch_aggregated_packets"] + metrics["switch_completed_packets"] >= packets
    with Controller.connect(attached.address) as controller:
        assert controller.jobs() == {}


def test_two_runs_at_once_share_slots_and_each_has_a_fallback_server(attached: Attached) -> None:
    command = worker("exact.py", "--rounds", 4, 1000, 5000)
    options = ("--program", "shared", "--slots", 16, "--preempt", *LANES, *attached.options)
    both = [start("run", "-np", 2, *options, "--json", *command) for _ in range(2)]
    for process in both:
        output, errors = process.communicate(timeout=60)
        assert process.returncode == 0, errors
        metrics = json.loads(output)["metrics"]
        assert metrics["switch_collided_packets"] > 0
        assert metrics["fallback_merged"] > 0
    with Controller.connect(attached.address) as controller:
        assert controller.jobs() == {}


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_an_interrupted_run_takes_its_workers_and_its_job_along(
    attached: Attached, number: signal.Signals
) -> None:
    process = start("run", "-np", 2, *LANES, *attached.options, *worker("sums.py"))
    begun(process, 2)
    workers = children(process.pid)
    assert len(workers) == 2
    process.send_signal(number)
    process.communicate(timeout=30)
    assert process.returncode == 128 + number
    assert not any(runs(pid) for pid in workers)
    with Controller.connect(attached.address) as controller:
        assert controller.jobs() == {}


def test_a_terminated_run_takes_its_switch_and_its_workers_children_along() -> None:
    process = start("run", *LANES, "--", "sh", "-c", "echo started; sleep 600; true")
    begun(process, 1)
    family = children(process.pid)
    assert len(family) == 2
    family |= {pid: command for parent in family for pid, command in children(parent).items()}
    assert any(command.startswith("sleep") for command in family.values())
    process.terminate()
    process.communicate(timeout=30)
    assert process.returncode == 128 + signal.SIGTERM
    assert not any(runs(pid) for pid in family)


def test_an_interrupted_run_takes_all_its_switches_and_its_fallback_server_along() -> None:
    process = start("run", "--program", "shared", "--tree", "2x2", *LANES, *worker("sums.py"))
    begun(process, 4)
    family = children(process.pid)
    assert len(family) == 3 + 1 + 4
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=30)
    assert process.returncode == 128 + signal.SIGINT
    assert not any(runs(pid) for pid in family)


def test_a_run_whose_job_was_removed_fails_as_its_workers(attached: Attached) -> None:
    process = start("run", "-np", 2, *LANES, "--timeout", 1, *attached.options, *worker("sums.py"))
    begun(process, 2)
    with Controller.connect(attached.address) as controller:
        (job,) = controller.jobs()
        controller.remove(job)
    output, errors = process.communicate(timeout=60)
    assert process.returncode == 5
    assert output.count("PeerTimeout") == 2
    assert f"counters are not known: the switch at {attached.address} has no job {job}" in errors


def test_a_run_whose_switch_died_fails_as_its_workers_and_says_so(attached: Attached) -> None:
    process = start("run", "-np", 2, *LANES, "--timeout", 1, *attached.options, *worker("sums.py"))
    begun(process, 2)
    attached.switch.stop()
    output, errors = process.communicate(timeout=60)
    assert process.returncode == 5
    assert output.count("PeerTimeout") == 2
    assert f"the switch at {attached.address} is gone" in errors
