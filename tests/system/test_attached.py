"""Runs that share a running switch."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator

import pytest

from controller import connect
from tests.system.attached import PORTS, Attached, open_switch
from tests.system.command import PATIENT, good, refused, start, succeed, worker

LANES = ("--lanes", 32)


@pytest.fixture
def attached() -> Iterator[Attached]:
    with open_switch() as switch:
        yield switch


AT_ONCE: dict[str, tuple[tuple[object, ...], list[str], dict[str, int]]] = {
    "a switch": ((), worker("sums.py", "--times", 500), {"switch_completed_packets": 500 * -(-5000 // 32)}),
    "slots, and each has a fallback server": (
        ("--program", "shared", "--slots", 16, "--preempt"),
        worker("exact.py", "--rounds", 4, 1000, 5000),
        {"switch_collided_packets": 1, "fallback_merged": 1},
    ),
}
"""Options and command of two runs, and what each counts at least."""


@pytest.mark.parametrize(("options", "command", "least"), AT_ONCE.values(), ids=AT_ONCE)
def test_two_runs_at_once_share(
    attached: Attached, options: tuple[object, ...], command: list[str], least: dict[str, int]
) -> None:
    run = ("run", "-np", 2, *PATIENT, *LANES, *attached.options, *options, "--json")
    for output in succeed([start(*run, *command) for _ in range(2)]):
        metrics = json.loads(output)["metrics"]
        assert all(metrics[key] >= number for key, number in least.items()), metrics
    with connect(attached.address) as controller:
        assert controller.jobs() == {}


def test_runs_one_after_the_other_are_the_same_peers_to_a_switch_that_was_told_none() -> None:
    with open_switch(peers=False) as attached:
        for program in ("exclusive", "shared", "exclusive"):
            options = ("--program", program, "--replace-program", *LANES, *attached.options)
            good("run", "-np", 2, *options, *worker("exact.py", 1000, 5000))
        assert attached.switch.strangers() == 0


def test_the_switch_tells_a_run_where_its_ports_and_their_peers_are(attached: Attached) -> None:
    # its address as ``ina switch --p4runtime`` takes it, without "grpc://"
    options = (*LANES, "--switch", attached.address)
    good("run", "-np", 3, *options, *worker("exact.py", 1000, 5000))
    assert attached.switch.strangers() == 0


def test_a_run_whose_worker_address_is_taken_says_so(attached: Attached) -> None:
    base = int(attached.options[-1].rpartition(":")[2])
    with socket.socket(type=socket.SOCK_DGRAM) as other:
        other.bind(("127.0.0.1", base + PORTS[1]))
        said = refused("run", "-np", 2, *LANES, *attached.options, *worker("sums.py"), status=1)
    assert f"cannot bind UDP 127.0.0.1:{base + PORTS[1]} for the host at switch port {PORTS[1]}" in said
    assert "--worker-base" in said


def test_more_workers_than_the_switch_has_ports_are_refused_before_they_start(attached: Attached) -> None:
    said = refused("run", "-np", 12, *LANES, *attached.options, *worker("sums.py"), status=1)
    assert "12 workers need 12 ports of the switch, and only 6 are free" in said
    said = refused("run", "-np", 1, *LANES, *attached.options, "--ports", "7-8", *worker("sums.py"))
    assert "--ports 7-8: the switch at" in said
    assert "has ports 1, 2, 3, 4, 5, 6, but no given port" in said
