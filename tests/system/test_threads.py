"""Allreduce through a switch of two threads: exact under loss and duplicates, while jobs come and go."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from controller import connect
from softswitch import PortImpairments, Switch
from softswitch.engine.ports import UdpPort
from softswitch.p4runtime import serve
from tests.system.attached import PORTS, open_switch, udp_block
from tests.system.command import PATIENT, good, start, succeed, worker

LANES = ("--lanes", 32)
FAULTS = "loss=2%,duplicate=2%,reorder=3%"


@contextmanager
def divided_switch() -> Iterator[tuple[Switch, str, tuple[str, ...]]]:
    """Serve a switch that always divides packets: it, its address, and the options of ``ina run`` to it."""
    faults = PortImpairments.parse(FAULTS)
    with udp_block() as base:
        workers = base + len(PORTS)
        ports = {port: UdpPort(base + port, workers + port) for port in PORTS}
        impairments = dict.fromkeys(ports, faults)
        with Switch(ports, threads=2, busy_packets=0, impairments=impairments) as switch:
            service = serve(switch)
            try:
                switch.start()
                address = f"grpc://{service.address}"
                bases = ("--udp-base", f"127.0.0.1:{base}", "--worker-base", f"127.0.0.1:{workers}")
                yield switch, address, ("--switch", address, *bases)
            finally:
                service.close()


@pytest.mark.parametrize("program", ["exclusive", "shared"])
def test_sums_are_exact_on_two_threads_under_faults(program: str) -> None:
    """Two jobs at once, whose rows are written while the other's packets pass."""
    with divided_switch() as (switch, address, attached):
        options = ("--program", program, "--slots", 512, *LANES, *attached)
        command = worker("exact.py", "--rounds", 3, 1000, 30_000)
        both = [start("run", "-np", 2, *PATIENT, *options, "--json", *command) for _ in range(2)]
        for output in succeed(both):
            assert json.loads(output)["metrics"]["switch_completed_packets"] > 0
        with connect(address) as controller:
            assert controller.jobs() == {}
        handed_over = switch.switch_statistics().handed_over
        received = sum(switch.statistics(port).rx_packets for port in switch.ports)
    assert 1000 < handed_over < received


def test_sums_are_exact_on_a_switch_that_divides_when_it_pays() -> None:
    with open_switch("--threads", 2, "--impair", FAULTS) as attached:
        command = worker("exact.py", "--rounds", 2, 1000, 100_000)
        good("run", "-np", 3, *PATIENT, *LANES, *attached.options, "--json", *command)


def test_a_switch_says_why_one_thread_does_everything() -> None:
    options = ("--threads", 2, "--program", "exclusive", *LANES, "--port", "1=shm")
    with start("switch", *options) as switch:
        assert json.loads(switch.stdout.readline())["program"] == "exclusive"
        switch.terminate()
        _, said = switch.communicate()
    assert "one thread processes all packets: a port is shared memory" in said
