"""The fallback server of a run, and who keeps it running, when one of them has to wait for a processor."""

from __future__ import annotations

import os
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from ina.errors import ProcessFailed
from ina.run.fallback import remote
from ina.run.fallback.process import FallbackProcess
from ina.run.fallback.remote import FallbackService, RemoteFallback
from ina.run.launch import server_process
from tests.hostlib.fallback.packets import LANES, TREES, partial
from tests.sockets import bound_udp
from tests.system.command import freeze

JOB = 7
STAR = TREES["star of 3"]
PATIENCE_S = 0.5
PAUSE_S = 1.2


@pytest.fixture
def switch() -> Iterator[socket.socket]:
    with bound_udp(600) as bound:
        yield bound


@pytest.fixture
def server(switch: socket.socket) -> Iterator[FallbackProcess]:
    host, port = switch.getsockname()
    arguments = ["--switch", f"{host}:{port}", "--lanes", str(LANES)]
    started = FallbackProcess(arguments, patience_s=PATIENCE_S)
    started.hold({JOB: {"job": JOB, "epoch": 1, "tree": STAR.to_json(), "window": 100}})
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
    with server._child._news:  # which who hears the answer needs
        server._child._ask()
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
    switch: socket.socket,
    tmp_path: Path,
    write_file: Callable[[str, str], Path],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Runs on other machines took the service for dead that was starting it, where Python takes seconds."""
    monkeypatch.setattr(server_process, "ANSWER_S", 3600.0)
    again, go = tmp_path / "again", tmp_path / "go"
    script = write_file(
        "slow", f'if [ -e {again} ]; then until [ -e {go} ]; do sleep 0.05; done; fi; exec "$@"'
    )
    host, port = switch.getsockname()
    arguments = ["--switch", f"{host}:{port}", "--lanes", str(LANES)]
    server = FallbackProcess(arguments, prefix=["sh", str(script)])
    try:
        server.hold({JOB: {"job": JOB, "epoch": 1, "tree": STAR.to_json(), "window": 100}})
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


@pytest.fixture
def service(server: FallbackProcess, tmp_path: Path) -> Iterator[FallbackService]:
    server.hold({})
    with FallbackService(server, tmp_path / "socket", None, lanes=LANES) as serving:
        yield serving


def of(tmp_path: Path, owner: str) -> RemoteFallback:
    return RemoteFallback("here", tmp_path / "socket", None, lanes=LANES, owner=owner)


def jobs_of(*numbers: int) -> dict[int, dict[str, object]]:
    return {each: {"job": each, "epoch": 1, "tree": STAR.to_json(), "window": 100} for each in numbers}


def served(service: FallbackService, connections: int = 0) -> list[int]:
    """Return the jobs that it serves, once it has as many connections."""
    until = time.monotonic() + 600
    while service._open != connections and time.monotonic() < until:
        time.sleep(0.01)
    return sorted(service._jobs)


def test_jobs_of_an_owner_are_served_while_it_is_away(service: FallbackService, tmp_path: Path) -> None:
    """A controller that is killed says no farewell; one of the same state goes on from what is served."""
    first = of(tmp_path, "state")
    assert first.breaks == 1, "none of its jobs is served"
    first.hold(jobs_of(1, 2))
    first.over = True
    first._connection.close()
    assert served(service) == [1, 2]
    of(tmp_path, "state").stop()  # it has said nothing of jobs
    assert served(service) == [1, 2]
    second = of(tmp_path, "state")
    assert second.breaks == 0
    second.hold(jobs_of(2, 3))
    assert served(service, 1) == [2, 3]
    other = of(tmp_path, "another")
    assert other.breaks == 1
    other.hold(jobs_of(4))
    other.stop()
    assert served(service, 1) == [2, 3]
    second.stop()
    assert served(service) == []
    assert service.unused


def test_jobs_of_a_connection_end_with_it(service: FallbackService, tmp_path: Path) -> None:
    run = of(tmp_path, "")
    run.hold(jobs_of(1, 2))
    assert run.statistics(2)["merged"] == 0
    assert sorted(service._jobs) == [1, 2]
    run.stop()
    assert served(service) == []


def test_jobs_of_an_owner_that_never_comes_again_are_forgotten(
    service: FallbackService, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gone = of(tmp_path, "gone")
    gone.hold(jobs_of(1))
    gone.over = True
    gone._connection.close()
    assert served(service) == [1]
    monkeypatch.setattr(remote, "OWNER_S", 0.0)
    of(tmp_path, "").stop()
    assert served(service) == []


def test_who_takes_jobs_away_does_not_wait_for_a_silent_server(
    service: FallbackService, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each job that ended waited, and a controller kept its GPUs until the server answered."""
    owner = of(tmp_path, "state")
    owner.hold(jobs_of(1, 2))
    monkeypatch.setattr(remote, "PATIENCE_S", 0.1)
    monkeypatch.setattr(service, "_execute", lambda *_: None)
    owner.hold(jobs_of(1))
    with pytest.raises(ProcessFailed, match="does not answer"):
        owner.hold(jobs_of(1, 3))
    owner.stop()
