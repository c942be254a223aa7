"""The server with real sockets, and as a process."""

from __future__ import annotations

import contextlib
import io
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator

import numpy as np
import pytest

from benchmarks.speed.fallback import measure
from hostlib import wire
from hostlib.config import TransportConfig
from hostlib.errors import ConfigError
from hostlib.fallback import FallbackServer, FallbackSettings
from tests.hostlib.fallback.packets import ENDPOINTS, LANES, TREES, header_of, lanes_of, partial
from tests.sockets import bound_udp

STAR = TREES["star of 3"]
ADD = {"add": {"job": 7, "epoch": 1, "tree": STAR.to_json(), "window": 100}}


@pytest.fixture
def switch() -> Iterator[socket.socket]:
    with bound_udp(600) as sock:
        yield sock


def transport_to(switch: socket.socket, kind: str = "loopback") -> TransportConfig:
    host, port = switch.getsockname()
    return TransportConfig(kind, "127.0.0.1:0", f"{host}:{port}")  # type: ignore[arg-type]


@pytest.fixture
def server(switch: socket.socket) -> Iterator[FallbackServer]:
    with FallbackServer(transport_to(switch), FallbackSettings(LANES, ENDPOINTS)) as opened:
        yield opened


def pump(server: FallbackServer, seconds: float = 0.02) -> None:
    server.link.pump(server.core, -1, time.monotonic_ns() + int(seconds * 1e9))


@pytest.mark.parametrize("framed", [True, False])
def test_superframes_and_single_packets_go_through_the_socket(switch: socket.socket, framed: bool) -> None:
    settings = FallbackSettings(LANES, ENDPOINTS if framed else None)
    start = 0 if framed else wire.FRAME_PREFIX_BYTES
    with FallbackServer(transport_to(switch, "loopback" if framed else "udp"), settings) as server:
        assert server.execute(json.dumps(ADD)) == {"added": 7}
        switch.connect(server.link.socket.getsockname())
        for rank in range(3):
            batch = [partial(STAR, bitmap=1 << rank, psn=psn, lanes=[psn + rank] * 4) for psn in range(100)]
            switch.setsockopt(socket.IPPROTO_UDP, 103, 0)
            switch.send(batch[0][start:])
            switch.setsockopt(socket.IPPROTO_UDP, 103, len(batch[0]) - start)
            for at in (1, 51):
                switch.send(b"".join(data[start:] for data in batch[at : at + 50]))
        sums: dict[int, list[int]] = {}
        switch.setblocking(False)
        while len(sums) < 100:
            pump(server)
            with contextlib.suppress(BlockingIOError):
                while data := switch.recv(65536):
                    if len(data) == settings.result_bytes:  # no reminder
                        result = (b"" if framed else bytes(wire.FRAME_PREFIX_BYTES)) + data
                        sums[header_of(result)["psn"]] = lanes_of(result).tolist()
        assert sums == {psn: [3 * psn + 3] * 4 for psn in range(100)}
        statistics = server.statistics()
        assert statistics["jobs"]["7"]["merged"] == 300
        assert statistics["socket_errors"] == 0


@pytest.mark.parametrize(("kind", "said"), [("loopback", [b""]), ("udp", [])])
def test_only_a_port_of_a_switch_is_told_who_its_peer_is(
    switch: socket.socket, kind: str, said: list[bytes]
) -> None:
    """Over a network the empty datagram was a packet, which every run's summary once counted as truncated."""
    with FallbackServer(transport_to(switch, kind), FallbackSettings(LANES, ENDPOINTS)) as server:
        ended, pipe = os.pipe()
        os.close(pipe)
        server.run(ended, io.StringIO())
        os.close(ended)
        switch.setblocking(False)
        found: list[bytes] = []
        with contextlib.suppress(BlockingIOError):
            while True:
                found.append(switch.recv(65536))
    assert found == said


def test_reminders_come_by_themselves(switch: socket.socket, server: FallbackServer) -> None:
    server.execute(json.dumps(ADD))
    switch.connect(server.link.socket.getsockname())
    switch.send(partial(STAR))
    switch.setblocking(False)
    kinds: list[int] = []
    while len(kinds) < 3:
        pump(server)
        with contextlib.suppress(BlockingIOError):
            while True:
                kinds.append(header_of(switch.recv(2000))["kind"])
    assert set(kinds) == {wire.KIND_REMINDER}


def test_a_switch_that_is_gone_is_survived(switch: socket.socket, server: FallbackServer) -> None:
    server.execute(json.dumps(ADD))
    switch.connect(server.link.socket.getsockname())
    switch.send(partial(STAR, bitmap=7))
    switch.close()
    for _ in range(3):
        server.core.absorb(np.frombuffer(partial(STAR), np.uint8), 1 << 12, time.monotonic_ns())
        pump(server)
    assert server.link.errors > 0


@pytest.mark.parametrize(
    ("line", "error"),
    [
        ("{", "a command is not JSON"),
        ("[]", "a command is an object with one of: add, remove, statistics"),
        ('{"stop": 1}', "unknown command 'stop'; known are add, remove, statistics"),
        ('{"remove": 8}', "job 8 is not served"),
        ('{"remove": "7"}', "remove is '7', must be the id of a job"),
        ('{"add": 7}', "a job is 7, must be an object"),
        ('{"add": {"job": 7}}', "epoch, tree is missing"),
        ('{"add": {"job": 7, "epoch": 1, "tree": {"0": [0]}, "colour": 1}}', "unknown fields colour"),
        ('{"add": {"job": true, "epoch": 1, "tree": {"0": [0]}}}', "job is True, must be a whole number"),
        ('{"add": {"job": 7, "epoch": 1, "tree": {"0": [1]}}}', "tree: ranks are [1], must be 0..n-1"),
        ('{"add": {"job": 65536, "epoch": 1, "tree": {"0": [0]}}}', "job is 65536, must be 0..65535"),
        ('{"add": {"job": 7, "epoch": 1, "tree": {"0": [0]}, "window": 0}}', "window is 0, must be 1.."),
    ],
)
def test_wrong_commands_are_answered_with_what_is_wrong(
    server: FallbackServer, line: str, error: str
) -> None:
    answer = server.execute(line)
    assert list(answer) == ["error"]
    assert error in str(answer["error"])


@pytest.mark.parametrize(
    "fields", [{"lanes": 0}, {"capacity": 0}, {"remind_s": 0}, {"remind_s": 1}, {"forget_s": 0.1}]
)
def test_settings_that_cannot_be_used_are_refused(fields: dict[str, float]) -> None:
    ((name, value),) = fields.items()
    with pytest.raises(ConfigError, match=f"{name} (is )?{value}"):
        FallbackSettings(**fields)  # type: ignore[arg-type]


@pytest.fixture
def process(switch: socket.socket) -> Iterator[subprocess.Popen[str]]:
    host, port = switch.getsockname()
    arguments = ["--switch", f"{host}:{port}", "--lanes", str(LANES)]
    command = [sys.executable, "-m", "ina", "fallback", *arguments]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as started:
        yield started
        started.kill()


def hear(process: subprocess.Popen[str]) -> dict[str, object]:
    assert process.stdout is not None
    heard: dict[str, object] = json.loads(process.stdout.readline())
    return heard


def test_the_process_takes_commands_and_ends_with_its_input(
    switch: socket.socket, process: subprocess.Popen[str]
) -> None:
    assert process.stdin is not None
    ready = hear(process)["ready"]
    assert switch.recv(2000) == b""  # from which a switch learns its address
    assert isinstance(ready, dict)
    host, port = ready["local"].split(":")
    print(json.dumps(ADD), file=process.stdin, flush=True)
    assert hear(process) == {"added": 7}
    switch.connect((host, int(port)))
    switch.send(partial(STAR, bitmap=7, lanes=[4, 3, 2, 1]))
    assert lanes_of(switch.recv(2000)).tolist() == [4, 3, 2, 1]
    print('\n{"remove": 7}', end="", file=process.stdin)  # without an end of line
    process.stdin.close()
    assert hear(process) == {"removed": 7}
    assert hear(process)["statistics"]
    assert process.wait() == 0


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_the_process_ends_with_a_signal(process: subprocess.Popen[str], number: int) -> None:
    hear(process)
    os.kill(process.pid, number)
    assert hear(process)["statistics"]
    assert process.wait() == 0


def test_the_benchmark_sums_rightly() -> None:
    measured = measure(lanes=32, workers=3, contributions=6000, batch=8)
    assert measured["gradient_bps"] == pytest.approx(measured["contributions_per_s"] * 32 * 32)
