"""Testbeds whose switches are BMv2: jobs, the user's own program, what is left behind."""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from bmv2_topos.testbeds.netns import bmv2, namespaces
from tests.softswitch.namespaces import why_not
from tests.system.command import ROOT, WORKERS, ina, start

pytestmark = [
    pytest.mark.bmv2,
    pytest.mark.netns,
    pytest.mark.skipif(bool(why_not()), reason=why_not()),
    pytest.mark.skipif(bool(bmv2.missing()), reason=bmv2.missing()),
]
NAME = f"t{os.getpid()}-bmv2"
DIGITS = [sys.executable, str(ROOT / "examples" / "digits.py"), "--epochs", "1", "--batch", "750"]
ACCURACY = re.compile(r"test accuracy [0-9.]+")


@pytest.fixture(autouse=True)
def _own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("INA_TESTBEDS", str(tmp_path / "testbeds"))
    yield
    good("down", "--all")
    assert not list(Path("/run/netns").glob(f"ina.{NAME}*"))


def good(*arguments: object) -> str:
    return ina("topo", *arguments, status=0).stdout


def test_a_tree_of_bmv2_sums_exactly_at_a_rate_and_keeps_its_ports_to_itself() -> None:
    good("up", "two-racks:1", "--name", NAME, "--target", "bmv2", "--rate", "1e9")
    run = good("run", NAME, "--json", "--", sys.executable, WORKERS / "exact.py", 2003)
    found = json.loads(run)["metrics"]
    assert found["switch_completed_packets"] >= 2 * 2 * 2003 // 32
    listening = good("exec", "s1", "--name", NAME, "--", "ss", "-H", "-tuln")
    assert ":9559" not in listening
    assert "htb" in good("exec", "s1", "--name", NAME, "--", "tc", "qdisc", "show", "dev", "s1-eth1")


@pytest.mark.parametrize("program", ["exclusive", "shared"])
def test_windows_and_time_outs_fit_bmv2_by_themselves(program: str) -> None:
    """Windows of 512 packets met queues of 64, and time-outs of 6 ms round trips of 50.

    Of 2,804 packets 14,906 were sent again with half of 64 slots, and 27,583 with the program shared.
    """
    good("up", "single-switch:4", "--name", NAME, "--program", program, "--target", "bmv2")
    run = good("run", NAME, "--json", "--", sys.executable, WORKERS / "exact.py", 20_003)
    found = json.loads(run)["metrics"]
    assert found["resent_packets"] < 0.5 * found["sent_packets"]


def test_digits_are_learnt_as_well_through_bmv2_in_mininet() -> None:
    """Four Mininet hosts, in exclusive and in shared mode, against one process without a switch."""
    pytest.importorskip("sklearn")
    want = accuracy(["run", "-np", "4", "--lanes", "32", "--", *DIGITS])
    for program in ("exclusive", "shared"):
        good("up", "single-switch:4", "--name", NAME, "--program", program, "--target", "bmv2", *MININET)
        assert accuracy(["topo", "run", NAME, "--", *DIGITS]) == want
        good("down", NAME)


def test_delay_is_the_kernels_or_refused_in_its_words() -> None:
    """Both branches are real: what decides is whether this kernel has netem, which tc is asked."""
    lacking = namespaces.lacks_netem()
    up = ina("topo", "up", "single-switch:2", "--name", NAME, "--target", "bmv2", "--delay", "0.02")
    if lacking:
        assert up.returncode != 0
        assert (
            "link h1 - s1: delay 20000us needs netem, because BMv2 cannot do it, and this kernel" in up.stderr
        )
        assert lacking in up.stderr.replace("\n", " ")
        return
    ping = good("exec", "h1", "--name", NAME, "--", "ping", "-c", "2", "-i", "0.2", "10.0.0.2")
    assert float(ping.rpartition(" = ")[2].partition("/")[0]) >= 80  # four ends of links


def test_a_program_of_ones_own_forwards_on_bmv2(write_file: Callable[[str, str], Path]) -> None:
    mine = write_file("mine.p4", f'#include "{ROOT}/p4src/exclusive.p4"\n')
    good("up", "single-switch:2", "--name", NAME, "--target", "bmv2", "--p4", mine)
    listener = start("topo", "exec", "h2", "--name", NAME, "--", "python3", "-c", HEAR)
    assert listener.stdout is not None
    assert listener.stdout.readline() == "listening\n"
    good("exec", "h1", "--name", NAME, "--", "python3", "-c", SAY)
    assert listener.communicate()[0] == "x" * 100_000 + "\n"


MININET = ("--runner", "mininet")
HEAR = """
import socket
listener = socket.create_server(("10.0.0.2", 7000))
print("listening", flush=True)
print(listener.accept()[0].makefile().read())
"""
SAY = "import socket; socket.create_connection(('10.0.0.2', 7000)).sendall(b'x' * 100_000)"


def accuracy(arguments: list[str]) -> str:
    done = ina(*arguments, status=0)
    found = ACCURACY.search(done.stdout + done.stderr)
    assert found, done.stdout
    return found[0]
