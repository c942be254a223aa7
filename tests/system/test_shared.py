"""Jobs that share slots, with the fallback server as a process: exact sums whatever happens to it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.system.command import PATIENT, begun, children, finish, freeze, report, start, until, worker

SHARED = ("run", "--program", "shared", "--lanes", 32)


def fallback_of(process: subprocess.Popen[str], *, other_than: int | None = 0) -> int | None:
    """Return the process id of the fallback server of a run once it is there; None if the run ends before."""

    def there() -> list[int | None]:
        found = [pid for pid, command in children(process.pid).items() if "-m ina fallback" in command]
        return [pid for pid in found if pid != other_than] or [None] * (process.poll() is not None)

    return until(there)[0]


SIX_WAYS = """
[[job]]
name = "scarce"
workers = 2
command = '{exact}'

[[job]]
name = "urgent"
workers = 3
preempt = true
priority = 200
window = 24
command = '{exact}'

[[job]]
name = "private"
workers = 2
slots = 64
command = '{exact}'

[[job]]
name = "atp"
workers = 2
numbers = "fixed"
congestion = "aimd"
command = '{exact}'

[[job]]
name = "a2tp"
workers = 2
congestion = "a2tp"
command = '{exact}'

[[job]]
name = "homeless"
workers = 2
slots = 0
arrival_s = 0.2
command = '{exact}'
"""


def test_jobs_of_every_kind_at_once_on_too_few_slots_and_bad_links(
    write_file: Callable[[str, str], Path],
) -> None:
    file = write_file("jobs.toml", SIX_WAYS.format(exact=" ".join(worker("exact.py", 1, 1000, 5000)[1:])))
    faults = ("--loss", 0.02, "--duplicate", 0.02, "--reorder", 0.02, "--corrupt", 0.01, "--delay", 1e-4)
    told = report(*SHARED, *PATIENT, "--jobs", file, "--slots", 16, *faults)
    jobs = told["jobs"]
    assert len(jobs) == 6
    for name, found in jobs.items():
        assert found["allreduces"] == 6
        assert found["fallback_merged"] > 0
        if name != "homeless":
            assert found["switch_completed_packets"] > 0
    assert jobs["urgent"]["switch_preempted_packets"] > 0
    assert jobs["homeless"]["switch_aggregated_packets"] == 0
    assert jobs["homeless"]["switch_evicted_packets"] == 0
    assert told["metrics"]["switch_evicted_packets"] > 0
    assert told["metrics"]["allreduces"] == 36


@pytest.mark.parametrize("network", [("-np", 3), ("--tree", "2x2", "--link-loss", 0.02)])
def test_atp_as_published_gives_exact_sums(network: tuple[object, ...]) -> None:
    faults = ("--loss", 0.02, "--duplicate", 0.02)
    options = ("--program", "atp", "--lanes", 32, "--slots", 50, "--window", 32)
    sums = worker("exact.py", 1, 1000, 20_000)
    found = report("run", *PATIENT, *options, *network, *faults, *sums)["metrics"]
    assert found["switch_completed_packets"] > 0
    assert found["switch_collided_packets"] > 0
    assert found["fallback_results"] > 0
    assert found["switch_preempted_packets"] == 0


def test_without_slots_everything_goes_to_the_fallback_server() -> None:
    found = report(*SHARED, *PATIENT, "-np", 3, "--slots", 0, *worker("exact.py", 1, 5000))["metrics"]
    assert found["switch_aggregated_packets"] == found["switch_completed_packets"] == 0
    assert found["switch_bypassed_packets"] == found["sent_packets"] + found["resent_packets"]
    assert found["fallback_merged"] == found["sent_packets"]


@pytest.mark.parametrize("program", ["exclusive", "shared"])
def test_two_racks_of_four_are_exact_with_loss_between_the_switches(program: str) -> None:
    options = ("--program", program, "--lanes", 32, "--tree", "2x4", "--link-loss", 0.02)
    told = report("run", *PATIENT, *options, *worker("exact.py", 1, 1000, 5000))
    found, switches = told["metrics"], told["switches"]
    assert told["setup"]["workers"] == 8
    assert found["allreduces"] == 6
    assert found["resent_packets"] > 0
    for rack in ("s2", "s3"):
        of_rack = switches[rack]
        assert of_rack["relayed_packets"] + of_rack["flushed_packets"] + of_rack["pulled_packets"] > 0
        assert of_rack["stored_packets"] > 0
    packets = found["sent_packets"] / 8
    assert switches["s1"]["completed_packets"] <= packets
    if program == "exclusive":
        assert all(of["completed_packets"] == packets for of in switches.values())


def test_a_tree_of_three_levels_with_a_switch_that_only_passes_on() -> None:
    options = ("--tree", "2x2x2", "--transit", "s3", "--loss", 0.01, "--slots", 64)
    told = report(*SHARED, *PATIENT, *options, *worker("exact.py", 1, 3000))
    assert told["metrics"]["allreduces"] == 4
    switches = told["switches"]
    assert list(switches) == [f"s{number}" for number in range(1, 8)]
    assert switches["s3"]["aggregated_packets"] == switches["s3"]["completed_packets"] == 0
    assert switches["s3"]["passed_up_packets"] > 0
    assert all(of["completed_packets"] > 0 for name, of in switches.items() if name != "s3")


@pytest.mark.parametrize("how", ["was killed by SIGKILL", "did not answer for 3 s"])
def test_a_fallback_server_that_dies_or_hangs_is_started_again_and_the_sums_stay_exact(
    how: str, tmp_path: Path
) -> None:
    stop, slots = tmp_path / "stop", 8 if "killed" in how else 0
    command = worker("marks.py", tmp_path / "m", "--until", stop)
    process = start(*SHARED, *PATIENT, "-np", 2, "--slots", slots, "--json", *command)
    server = fallback_of(process)
    assert any("started" in process.stderr.readline() for _ in range(10))
    assert server is not None
    if slots:
        os.kill(server, signal.SIGKILL)
        second = fallback_of(process, other_than=server)
        assert second is not None
        os.kill(second, signal.SIGKILL)
        assert fallback_of(process, other_than=second) is not None
    else:
        freeze(server)
    stop.touch()
    output, errors = finish(process)
    assert errors.count(f"the fallback server {how}; restarting it") == (2 if slots else 1)
    assert json.loads(output)["metrics"]["fallback_merged"] > 0


def test_a_fallback_server_that_always_dies_is_named() -> None:
    process = begun(start(*SHARED, "-np", 2, "--slots", 0, *PATIENT, *worker("sums.py")), 2)
    fallback: int | None = 0
    while (fallback := fallback_of(process, other_than=fallback)) is not None:
        os.kill(fallback, signal.SIGKILL)
    output, errors = process.communicate()
    assert process.returncode != 0
    assert "the fallback server was killed by SIGKILL, after 5 restarts" in output
    assert errors.count("restarting it") == 5
