"""The fallback server of a run, and who keeps it running, when one of them has to wait for a processor."""

from __future__ import annotations

import os
import signal
import socket
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from ina.runtime import fallback_process
from ina.runtime.fallback_process import FallbackProcess
from tests.hostlib.fallback.packets import LANES, TREES, partial
from tests.system.command import freeze

JOB = 7
STAR = TREES["star of 3"]
PATIENCE_S = 0.5
PAUSE_S = 1.2


@pytest.fixture
def switch() -> Iterator[socket.socket]:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as bound:
        bound.bind(("127.0.0.1", 0))
        bound.settimeout(600)
        yield bound


@pytest.fixture
def server(switch: socket.socket) -> Iterator[FallbackProcess]:
    host, port = switch.getsockname()
    arguments = ["--switch", f"{host}:{port}", "--lanes", str(LANES)]
    started = FallbackProcess(3, arguments, patience_s=PATIENCE_S)
    started.add(JOB, {"job": JOB, "epoch": 1, "tree": STAR.to_json(), "window": 100})
    yield started
    started.stop()


def test_counts_are_those_of_the_end_though_the_server_was_held_up(
    switch: socket.socket, server: FallbackProcess
) -> None:
    _, address = switch.recvfrom(2000)  # from which a switch learns it
    assert server.statistics(JOB)["merged"] == 0
    switch.sendto(partial(STAR, bitmap=7, lanes=[4, 3, 2, 1]), address)
    assert switch.recv(2000)
    pid = server._child._process.pid
    freeze(pid)
    going_on = threading.Timer(PAUSE_S, os.kill, (pid, signal.SIGCONT))
    going_on.start()
    assert server.statistics(JOB)["merged"] == 1
    going_on.join()


def test_a_server_is_not_taken_for_stuck_by_who_was_held_up(server: FallbackProcess) -> None:
    """As if this process had been stopped: the answer is there, and nobody has read it."""
    pid = server._child._process.pid
    with server._change:  # which who hears the answer needs
        server._ask()
        time.sleep(PAUSE_S)
        assert server.check() is None
    assert server._child._process.pid == pid


@pytest.mark.filterwarnings("ignore:the fallback server did not answer")
def test_a_server_that_is_stuck_is_started_again(server: FallbackProcess) -> None:
    pid = server._child._process.pid
    freeze(pid)
    while server._child._process.pid == pid:
        assert server.check() is None
        time.sleep(0.05)


def test_counts_do_not_wait_for_a_server_that_is_being_started(
    switch: socket.socket, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Runs on other machines took the service for dead that was starting it, where Python takes seconds."""
    monkeypatch.setattr(fallback_process, "ANSWER_S", 3600.0)
    again, go = tmp_path / "again", tmp_path / "go"
    script = tmp_path / "slow"
    script.write_text(f'if [ -e {again} ]; then until [ -e {go} ]; do sleep 0.05; done; fi; exec "$@"')
    host, port = switch.getsockname()
    arguments = ["--switch", f"{host}:{port}", "--lanes", str(LANES)]
    server = FallbackProcess(3, arguments, prefix=["sh", str(script)])
    try:
        server.add(JOB, {"job": JOB, "epoch": 1, "tree": STAR.to_json(), "window": 100})
        again.touch()
        first = server._child._process
        first.kill()
        first.wait()
        assert server.check() is None
        asking = ThreadPoolExecutor(1).submit(server.statistics, JOB)
        assert asking.result(timeout=60) == {}
    finally:
        go.touch()
        server.stop()
