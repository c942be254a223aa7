"""A fallback server and a worker of the same machine, at one port of the switch."""

from __future__ import annotations

import contextlib
import json
import select
import socket
import time
from collections.abc import Iterator

import pytest

from hostlib import wire
from hostlib.config import TransportConfig
from hostlib.errors import ConfigError
from hostlib.fallback import FallbackServer, FallbackSettings
from hostlib.wire.tree import Tree
from tests.hostlib.fallback.packets import LANES, header_of, lanes_of, packet
from tests.sockets import bound_udp

TREE = Tree.of({0: [0, -1], 1: [1, 2]})
START = wire.FRAME_PREFIX_BYTES


def gradient(bitmap: int, lanes: list[int], *, kind: int = wire.KIND_GRADIENT, **fields: int) -> bytes:
    return packet(kind, TREE, bitmap=bitmap, lanes=lanes, **fields)[START:]


class Ends:
    """The server, and the sockets of the switch and of the worker beside it."""

    def __init__(self) -> None:
        self.switch, self.worker, self.stranger = (bound_udp(0) for _ in range(3))
        host, port = self.switch.getsockname()
        transport = TransportConfig("udp", "127.0.0.1:0", f"{host}:{port}")
        self.server = FallbackServer(transport, FallbackSettings(LANES), beside=True)
        host, port = self.worker.getsockname()
        job = {"job": 7, "epoch": 1, "tree": TREE.to_json(), "window": 100, "beside": f"{host}:{port}"}
        assert self.server.execute(json.dumps({"add": job})) == {"added": 7}
        for each in (self.switch, self.worker, self.stranger):
            each.connect(self.server.link.socket.getsockname())

    def pump(self) -> None:
        """Have the server deal with all that has been sent to it."""
        while True:
            self.server.link.pump(self.server.core, -1, time.monotonic_ns() + 20_000_000)
            if not select.select([self.server.link.socket], [], [], 0)[0]:
                return

    def close(self) -> None:
        for each in (self.switch, self.worker, self.stranger, self.server):
            each.close()

    def counted(self, name: str) -> int:
        return int(self.server.statistics()["jobs"]["7"][name])


def heard(sock: socket.socket) -> list[bytes]:
    """The packets that wait at a socket, as frames of which only the payload was heard."""
    found = []
    while True:
        try:
            found.append(bytes(START) + sock.recv(1 << 16))
        except BlockingIOError:
            return found


@pytest.fixture
def ends() -> Iterator[Ends]:
    with contextlib.closing(Ends()) as made:
        yield made


@pytest.mark.parametrize("whole", [True, False])
def test_sums_of_the_switch_and_the_worker_go_to_both(ends: Ends, whole: bool) -> None:
    """The switch sends up its whole sum as a contribution, or parts of it."""
    ends.worker.setsockopt(socket.IPPROTO_UDP, 103, wire.INA_BYTES + 4 * LANES)
    ends.worker.send(b"".join(gradient(0b01, [psn] * LANES, psn=psn) for psn in range(50)))
    for psn in range(50):
        if whole:
            ends.switch.send(gradient(0b10, [10] * LANES, psn=psn))
        else:
            for bit in (1, 2):
                ends.switch.send(gradient(bit, [5] * LANES, psn=psn, node=1, kind=wire.KIND_PARTIAL))
    ends.pump()
    for each in (ends.switch, ends.worker):
        results = {header_of(data)["psn"]: data for data in heard(each)}
        assert sorted(results) == list(range(50))
        for psn, data in results.items():
            assert header_of(data)["bitmap"] == 0b11
            assert lanes_of(data).tolist() == [psn + 10] * LANES


def test_the_switch_gets_the_lanes_that_a_rank_below_it_takes(ends: Ends) -> None:
    """Reduces to each rank, of which 0 is beside the server, and a broadcast from it, in turns."""
    targets = [0, 1, 2, wire.TARGET_BUT, wire.TARGET_BUT | 1, wire.TARGET_ALL] * 10
    for psn, target in enumerate(targets):
        ends.worker.send(gradient(0b01, [psn] * LANES, psn=psn, target=target))
        ends.switch.send(gradient(0b10, [10] * LANES, psn=psn, target=target))
    ends.pump()
    for each in (ends.switch, ends.worker):
        results = {int(header_of(data)["psn"]): data for data in heard(each)}
        assert sorted(results) == list(range(len(targets)))
        for psn, data in results.items():
            bare = each is ends.switch and targets[psn] == 0
            assert header_of(data)["valid"] == header_of(data)["lanes"] == (0 if bare else LANES)
            assert len(data) == START + wire.INA_BYTES + (0 if bare else 4 * LANES)
            assert bare or lanes_of(data).tolist() == [psn + 10] * LANES


@pytest.mark.parametrize(
    "said",
    [
        gradient(0b10, [9] * LANES),  # the switch's bit
        gradient(0b01, [9] * LANES, node=1),
        gradient(0b01, [9] * LANES, job=8),
        gradient(0b01, [9] * LANES, kind=wire.KIND_PARTIAL),
        gradient(0b11, [9] * LANES, node=1, kind=wire.KIND_PARTIAL),
        gradient(0b01, [9] * LANES)[:20],
        b"",
    ],
    ids=["bit", "node", "job", "part", "part of a node below", "short", "empty"],
)
def test_a_worker_contributes_only_for_itself(ends: Ends, said: bytes) -> None:
    ends.worker.send(said)
    ends.pump()
    assert ends.counted("merged") == 0
    ends.switch.send(gradient(0b10, [1] * LANES))
    ends.worker.send(gradient(0b01, [2] * LANES))
    ends.pump()
    assert [lanes_of(data).tolist() for data in heard(ends.worker)] == [[3] * LANES]


def test_what_comes_from_others_is_dropped_and_counted(ends: Ends) -> None:
    ends.stranger.send(gradient(0b01, [9] * LANES))
    ends.pump()
    assert ends.server.statistics()["strangers"] == 1
    assert ends.counted("packets") == 0
    ends.server.execute('{"remove": 7}')
    ends.worker.send(gradient(0b01, [9] * LANES))
    ends.pump()
    assert ends.server.statistics()["strangers"] == 2


def test_jobs_that_cannot_be_served_so_are_refused(ends: Ends) -> None:
    host, port = ends.worker.getsockname()
    job = {"job": 9, "epoch": 1, "tree": TREE.to_json(), "window": 9, "beside": f"{host}:{port}"}
    for key, value, said in (
        ("beside", f"{host}:{port}", "belongs to another job already"),
        ("beside", "nobody", "is not an address"),
        ("beside", 5, "must be HOST:PORT"),
        ("tree", {"0": [0, 1]}, "must be one worker and one node"),
    ):
        refused = ends.server.execute(json.dumps({"add": {**job, key: value}}))
        assert said in str(refused["error"]), refused
    assert list(ends.server.statistics()["jobs"]) == ["7"]
    with pytest.raises(ConfigError, match="transport udp"):
        FallbackServer(
            TransportConfig("loopback", "127.0.0.1:0", "127.0.0.1:9"), FallbackSettings(LANES), beside=True
        )
    with FallbackServer(
        TransportConfig("udp", "127.0.0.1:0", "127.0.0.1:9"), FallbackSettings(LANES)
    ) as plain:
        assert "no workers beside it" in str(plain.execute(json.dumps({"add": job}))["error"])
