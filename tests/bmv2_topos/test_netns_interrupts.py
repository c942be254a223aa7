"""Testbeds of network namespaces that stand for a block, and what signals leave of them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

import pytest

from bmv2_topos.testbeds.netns.interrupts import unwinding
from bmv2_topos.testbeds.netns.names import prefix
from bmv2_topos.testbeds.netns.namespaces import existing

STANDS = """
import sys
from bmv2_topos.testbeds import netns
from controller.vocabulary.catalog import star
with netns.standing(sys.argv[1], star(1), netns.Program(lanes=32)):
    print("up", flush=True)
    sys.stdin.read()
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="network namespaces need root")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT])
def test_a_signal_takes_down_a_testbed_that_stands_for_a_block(number: signal.Signals) -> None:
    """Benchmarks left their namespaces and switches when they were ended by SIGTERM."""
    name = f"ended-{os.getpid()}"
    program = [sys.executable, "-c", STANDS, name]
    with subprocess.Popen(
        program, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "up\n"
        assert existing(prefix(name))
        process.send_signal(number)
        process.communicate(timeout=60)
    assert process.returncode in (128 + number, -number)
    assert existing(prefix(name)) == []


def test_handlers_of_others_stay_and_are_there_again_after_the_block() -> None:
    own = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with pytest.raises(SystemExit) as ended:
            _end_inside()
        assert ended.value.code == 128 + signal.SIGTERM
        assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
    finally:
        signal.signal(signal.SIGHUP, own)


def _end_inside() -> None:
    with unwinding():
        assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
        signal.raise_signal(signal.SIGTERM)
