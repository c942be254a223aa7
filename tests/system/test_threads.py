"""Allreduce through a switch of two threads: exact under loss and duplicates, while jobs come and go."""

from __future__ import annotations

import json
from urllib.request import urlopen

import pytest

from controller import connect
from tests.system.attached import Attached, open_switch
from tests.system.command import PATIENT, start, worker

LANES = ("--lanes", 32)
FAULTS = "loss=2%,duplicate=2%,reorder=3%"


def handed_over(attached: Attached) -> int:
    """Return how many packets the second thread has processed."""
    port = attached.switch.ready()["metrics_port"]
    with urlopen(f"http://127.0.0.1:{port}/metrics") as answer:
        lines = answer.read().decode().splitlines()
    (found,) = (line for line in lines if line.startswith("ina_switch_handed_over_total "))
    return int(found.rpartition(" ")[2])


@pytest.mark.parametrize("program", ["exclusive", "shared"])
def test_sums_are_exact_on_two_threads_under_faults(program: str) -> None:
    """Two jobs at once, whose rows are written while the other's packets pass."""
    with open_switch("--threads", 2, "--impair", FAULTS, "--metrics-port", 0) as attached:
        options = ("--program", program, "--slots", 512, *LANES, *attached.options)
        command = worker("exact.py", "--rounds", 3, 1000, 30_000)
        both = [start("run", "-np", 2, *PATIENT, *options, "--json", *command) for _ in range(2)]
        for process in both:
            output, errors = process.communicate()
            assert process.returncode == 0, errors
            assert json.loads(output)["metrics"]["switch_completed_packets"] > 0
        with connect(attached.address) as controller:
            assert controller.jobs() == {}
        assert handed_over(attached) > 1000


def test_a_switch_says_why_one_thread_does_everything() -> None:
    options = ("--threads", 2, "--program", "exclusive", *LANES, "--port", "1=shm")
    with start("switch", *options) as switch:
        assert switch.stdout is not None
        assert json.loads(switch.stdout.readline())["program"] == "exclusive"
        switch.terminate()
        _, said = switch.communicate()
    assert "one thread processes all packets: a port is shared memory" in said
