"""Port specifications, and real sockets in real time."""

from __future__ import annotations

import contextlib
import os
import socket
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from softswitch.engine.pipeline import Copy, Verdict
from softswitch.engine.ports import (
    Impairments,
    InterfacePort,
    MemoryPort,
    PortError,
    PortImpairments,
    SharedPort,
    SwitchError,
    UdpPort,
    parse_port,
)
from softswitch.engine.switch import Switch
from tests.softswitch.script_program import (
    ENGINES,
    ScriptInterpreter,
    ScriptPipeline,
    frame,
    have_compiler,
    load_script,
    seen,
)

UDP_SEGMENT, UDP_GRO = 103, 104


@pytest.mark.parametrize(
    ("text", "spec"),
    [
        ("memory", MemoryPort()),
        ("cpu", MemoryPort(cpu=True)),
        ("udp:0", UdpPort(0)),
        ("udp:9000:9001", UdpPort(9000, 9001)),
        ("socket:7", UdpPort(fd=7)),
        ("socket:7:9001", UdpPort(0, 9001, 7)),
        ("shm", SharedPort()),
        ("shm:/run/ina/1", SharedPort("/run/ina/1")),
        ("veth:sw-eth1", InterfacePort("sw-eth1")),
        ("if:eth0", InterfacePort("eth0")),
    ],
)
def test_parse_port(text: str, spec: object) -> None:
    assert parse_port(text) == spec


@pytest.mark.parametrize(
    "text",
    [
        *("memory:1", "udp", "udp:", "udp:x", "udp:65536", "udp:1:0", "udp:1:", "udp:²", "shm:"),
        *("veth:", "if:a/b", "if:sixteen-letters-", "tcp:1", "socket:", "socket:-1", "socket:7:0"),
    ],
)
def test_parse_port_refuses(text: str) -> None:
    with pytest.raises(PortError, match=r"want|is not"):
        parse_port(text)


@pytest.fixture(params=ENGINES[:2])
def engine(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def switch(engine: str) -> Iterator[Switch]:
    ports = {0: UdpPort(), 1: UdpPort(), 510: MemoryPort(cpu=True)}
    with Switch(ports) as switch:
        load_script(switch, engine)
        switch.start()
        yield switch


class Host:
    """The far end of a UDP port."""

    def __init__(self, switch: Switch, port: int, *, offload: bool = True, local: int = 0) -> None:
        self.socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.socket.bind(("127.0.0.1", local))
        self.socket.settimeout(600)
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4 << 20)
        self.socket.connect(switch.port_address(port))
        if offload:
            self.socket.setsockopt(socket.IPPROTO_UDP, UDP_GRO, 1)

    def __enter__(self) -> Host:
        return self

    def __exit__(self, *_: object) -> None:
        self.socket.close()

    @property
    def local(self) -> int:
        """The UDP port that it has."""
        return int(self.socket.getsockname()[1])

    def introduce(self, switch: Switch, port: int) -> None:
        """Make the switch learn this address, and wait until it has."""
        self.send([frame("U", port)])
        assert self.receive()

    def send(self, frames: list[bytes]) -> None:
        if len(frames) == 1:
            self.socket.send(frames[0])
            return
        size = len(frames[0]).to_bytes(2, "little")
        self.socket.sendmsg([b"".join(frames)], [(socket.IPPROTO_UDP, UDP_SEGMENT, size)])

    def receive(self) -> list[bytes]:
        data, ancillary, _, _ = self.socket.recvmsg(65536, 64)
        size = len(data)
        for level, kind, value in ancillary:
            if (level, kind) == (socket.IPPROTO_UDP, UDP_GRO):
                size = int.from_bytes(value[:4], "little")
        return [data[at : at + size] for at in range(0, len(data), size)]


def test_thousands_of_frames_between_udp_ports(switch: Switch, engine: str) -> None:
    """A window of frames at a time, both ways at once, nothing lost and nothing out of order."""
    total, window = (40_000, 512) if engine == "compiled" else (2_000, 64)
    with Host(switch, 0) as a, Host(switch, 1) as b:
        a.introduce(switch, 0)
        b.introduce(switch, 1)
        sent = got = back = 0
        while got < total:
            while sent < total and sent - got < window:
                count = min(32, total - sent)
                a.send([frame("U", 1, size=1090, tag=sent + i) for i in range(count)])
                sent += count
            for data in b.receive():
                assert (seen(data).tag, len(data)) == (got, 1090)
                got += 1
            b.send([frame("U", 0, size=70, tag=back + i) for i in range(got - back)][:32])
            back += min(32, got - back)
        received = 0
        while received < back:
            for data in a.receive():
                assert (seen(data).tag, len(data)) == (received, 70)
                received += 1
    assert switch.statistics(0).rx_packets == total + 1
    assert switch.statistics(1).tx_packets == total + 1
    assert switch.statistics(1).tx_bytes == total * 1090 + 64


def test_frames_of_all_sizes_keep_their_edges(switch: Switch) -> None:
    sizes = [64, 64, 64, 63, 64, 1500, 1500, 100, 9216, 36, 36, 37, 8000] * 3
    with Host(switch, 0) as a, Host(switch, 1) as b:
        b.introduce(switch, 1)
        for tag, size in enumerate(sizes):
            a.send([frame("U", 1, size=size, tag=tag)])
        received: list[bytes] = []
        while len(received) < len(sizes):
            received += b.receive()
    assert [(seen(f).tag, len(f)) for f in received] == list(enumerate(sizes))


def test_a_host_without_offload(switch: Switch) -> None:
    with Host(switch, 0) as a, Host(switch, 1, offload=False) as b:
        b.introduce(switch, 1)
        a.send([frame("U", 1, size=500, tag=i) for i in range(20)])
        received = [b.socket.recv(65536) for _ in range(20)]
    assert [(seen(f).tag, len(f)) for f in received] == [(i, 500) for i in range(20)]


def test_a_peer_that_has_gone_does_not_stop_the_port_and_may_come_back(switch: Switch) -> None:
    with Host(switch, 1) as b:
        b.introduce(switch, 1)
        local = b.local
    with Host(switch, 0) as a:
        a.introduce(switch, 0)
        a.send([frame("U", 1)] * 5)
        a.introduce(switch, 0)
    with Host(switch, 1, local=local) as b:
        b.introduce(switch, 1)


def test_before_anyone_speaks_frames_have_no_peer(switch: Switch) -> None:
    with Host(switch, 0) as a:
        a.send([frame("U", 1)])
        a.introduce(switch, 0)
    assert switch.statistics(1).tx_no_peer == 1


def test_packet_in_and_out_while_running(switch: Switch) -> None:
    received: list[tuple[int, int]] = []
    done = threading.Event()

    def packet_in(port: int, data: bytes) -> None:
        received.append((port, seen(data).tag))
        if len(received) == 3:
            done.set()

    switch.on_packet_in(packet_in)
    with Host(switch, 0) as a:
        a.introduce(switch, 0)
        for tag in range(3):
            a.send([frame("U", 510, tag=tag)])
        assert done.wait(600)
        assert received == [(510, 0), (510, 1), (510, 2)]
        switch.packet_out(510, frame("U", 0, tag=9))
        assert seen(a.receive()[0]).tag == 9


def test_the_control_plane_gets_its_turn_under_load(switch: Switch) -> None:
    """The data thread, busy all the time, must not keep others from the lock."""
    with Host(switch, 0) as a:
        stop = threading.Event()

        def flood() -> None:
            while not stop.is_set():
                a.send([frame("D", size=1000)] * 32)

        flooder = threading.Thread(target=flood)
        flooder.start()
        try:
            for turn in range(1000):
                with switch.locked(), switch.locked():
                    switch.set_multicast_group(1, [(1, turn)])
        finally:
            stop.set()
            flooder.join()
    assert switch.multicast_groups() == {1: [(1, 999)]}


def test_what_the_kernel_drops_is_counted(engine: str) -> None:
    with Switch({0: UdpPort()}) as switch, Host(switch, 0) as a:
        load_script(switch, engine)
        assert switch.statistics(0).rx_socket_full == 0
        while switch.statistics(0).rx_socket_full == 0:  # nobody serves the port
            a.send([frame("D", size=1000)] * 60)


@pytest.mark.skipif(not have_compiler, reason="no C compiler")
def test_programs_are_swapped_under_load() -> None:
    with Switch({0: UdpPort(), 1: UdpPort()}) as switch, Host(switch, 0) as a, Host(switch, 1) as b:
        load_script(switch, "compiled")
        switch.start()
        b.introduce(switch, 1)
        for turn in range(300):
            a.send([frame("U", 1, size=1000, tag=turn)] * 16)
            switch.load(None if turn % 10 == 3 else ScriptPipeline())  # type: ignore[arg-type]  # data plane only
        load_script(switch, "compiled")
        a.introduce(switch, 0)
        statistics = switch.statistics(0)
        assert statistics.rx_packets == 300 * 16 + 1
        assert statistics.rx_no_program + switch.statistics(1).tx_packets == 300 * 16 + 1


def test_delay_in_real_time(engine: str) -> None:
    late = PortImpairments(tx=Impairments(delay_s=0.02))
    with Switch({0: UdpPort()}, impairments={0: late}) as switch:
        load_script(switch, engine)
        switch.start()
        with Host(switch, 0) as a:
            before = switch.next_event_us()
            a.introduce(switch, 0)
            a.send([frame("U", 0, tag=1)])
            first = seen(a.receive()[0])
        assert before is None
        assert first.tag == 1
        switch.stop()
        assert switch.statistics(0).tx_packets == 2


def test_a_fixed_peer_needs_no_introduction_and_hears_alone(engine: str) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as peer:
        peer.settimeout(600)
        peer.bind(("127.0.0.1", 0))
        ports = {0: UdpPort(), 1: UdpPort(0, peer.getsockname()[1])}
        with Switch(ports) as switch:
            load_script(switch, engine)
            switch.start()
            with Host(switch, 0) as a:
                a.send([frame("U", 1, tag=4)])
                assert seen(peer.recv(2000)).tag == 4


@pytest.mark.parametrize("fixed", [True, False], ids=["given", "the first to speak"])
def test_strangers_are_counted_and_neither_heard_nor_answered(engine: str, fixed: bool) -> None:
    with contextlib.ExitStack() as stack:
        peer = stack.enter_context(socket.socket(socket.AF_INET, socket.SOCK_DGRAM))
        peer.bind(("127.0.0.1", 0))
        local = peer.getsockname()[1]
        ports = {0: UdpPort(0, local if fixed else None)}
        switch = stack.enter_context(Switch(ports))
        load_script(switch, engine)
        switch.start()
        peer.close()
        a = stack.enter_context(Host(switch, 0, local=local))
        if not fixed:
            a.introduce(switch, 0)
        before = switch.statistics(0)
        stranger = stack.enter_context(Host(switch, 0))
        stranger.send([frame("U", 0, tag=1)])
        stranger.send([frame("U", 0, size=100, tag=2)] * 9)
        stranger.send([b""])
        a.send([frame("U", 0, tag=3)])
        assert [seen(data).tag for data in a.receive()] == [3]
        stranger.socket.setblocking(False)
        with pytest.raises(BlockingIOError):
            stranger.receive()
        after = switch.statistics(0)
        assert after.rx_stranger == 1 + 9 + 1
        assert after.rx_packets == before.rx_packets + 1
        assert after.tx_packets == before.tx_packets + 1


def test_a_socket_that_is_handed_down_is_a_port(engine: str) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as made:
        made.bind(("127.0.0.1", 0))
        address = made.getsockname()
        with Switch({0: UdpPort(fd=os.dup(made.fileno()))}) as switch:
            assert switch.port_address(0) == address
            load_script(switch, engine)
            switch.start()
            with Host(switch, 0) as a:
                a.introduce(switch, 0)


def test_what_is_no_bound_udp_socket_is_refused(engine: str) -> None:
    read, write = os.pipe()
    with (
        socket.socket(socket.AF_INET, socket.SOCK_STREAM) as tcp,
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as unbound,
    ):
        for fd in (read, tcp.fileno(), unbound.fileno(), 999_999):
            with pytest.raises(PortError, match=f"port 3: file descriptor {fd} is not a UDP socket"):
                Switch({3: UdpPort(fd=fd)})
    os.close(read)
    os.close(write)


def test_a_busy_port_is_refused_with_the_reason(engine: str) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as taken:
        taken.bind(("127.0.0.1", 0))
        number = taken.getsockname()[1]
        with pytest.raises(PortError, match=f"port 3: .*127.0.0.1:{number}.* in use"):
            Switch({3: UdpPort(number)})


def test_start_and_stop_again(switch: Switch) -> None:
    with pytest.raises(SwitchError, match="running already"):
        switch.start()
    with Host(switch, 0) as a:
        for _ in range(3):
            switch.stop()
            switch.start()
            a.introduce(switch, 0)


def test_a_udp_port_is_taken_at_every_address(engine: str) -> None:
    """Else another user could send from it at another address, in the switch's name (IP_PKTINFO)."""
    with Switch({0: UdpPort()}) as switch:
        _, number = switch.port_address(0)
        other = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        with other, pytest.raises(OSError, match="in use"):
            other.bind(("127.0.0.2", number))
        with pytest.raises(PortError, match="in use"):
            Switch({0: UdpPort(number)})
    with Switch({0: UdpPort(number)}):
        pass


@pytest.mark.skipif(not have_compiler, reason="no C compiler")
def test_an_interpreted_program_that_fails_ends_the_switch_with_its_error() -> None:
    class Failing(ScriptInterpreter):
        def egress(self, packet: list[Any], copy: Copy) -> tuple[bytes | None, Verdict]:
            raise KeyError("no such field")

    with Switch({0: UdpPort()}) as switch, Host(switch, 0) as a:
        program: Any = Failing()
        switch.load(program)
        switch.start()
        a.send([frame("U", 0)])
        switch._threads[0].join(600)
        with pytest.raises(SwitchError, match=r"the interpreted program failed: KeyError.*no such field"):
            switch.stop()
