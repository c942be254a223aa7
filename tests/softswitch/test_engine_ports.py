"""Port specifications, and real sockets in real time.

Impairments: what they do on average, and that a seed settles everything.
"""

from __future__ import annotations

import contextlib
import os
import socket
import threading
from collections.abc import Iterator

import pytest

from softswitch.engine.interpreter import Interpreter
from softswitch.engine.ports import (
    Impairments,
    InterfacePort,
    LinkModel,
    MemoryPort,
    PortError,
    PortImpairments,
    SharedPort,
    SwitchError,
    UdpPort,
    parse_port,
)
from softswitch.engine.switch import Switch
from tests.sockets import bound_udp
from tests.softswitch.script_program import (
    ENGINES,
    frame,
    have_compiler,
    load_script,
    scripted,
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


@pytest.fixture(params=ENGINES)
def engine(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def switch(engine: str) -> Iterator[Switch]:
    ports = {0: UdpPort(), 1: UdpPort(), 510: MemoryPort(cpu=True)}
    with scripted(engine, ports) as switch:
        switch.start()
        yield switch


def test_a_switch_that_gets_no_thread_is_closed_and_says_so(engine: str) -> None:
    """As in a container with a limit of processes."""
    usual = threading.stack_size(1 << 46)  # more than there are addresses
    try:
        with (
            pytest.raises(RuntimeError, match="can't start new thread"),
            scripted(engine, {0: UdpPort(), 510: MemoryPort(cpu=True)}) as switch,
        ):
            switch.start()
    finally:
        threading.stack_size(usual)


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
    with scripted(engine, {0: UdpPort()}) as switch, Host(switch, 0) as a:
        assert switch.statistics(0).rx_socket_full == 0
        while switch.statistics(0).rx_socket_full == 0:  # nobody serves the port
            a.send([frame("D", size=1000)] * 60)


@pytest.mark.skipif(not have_compiler, reason="no C compiler")
def test_programs_are_swapped_under_load() -> None:
    ports = {0: UdpPort(), 1: UdpPort()}
    with scripted("compiled", ports) as switch, Host(switch, 0) as a, Host(switch, 1) as b:
        switch.start()
        b.introduce(switch, 1)
        for turn in range(300):
            a.send([frame("U", 1, size=1000, tag=turn)] * 16)
            if turn % 10 == 3:
                switch.load(None)
            else:
                load_script(switch)
        load_script(switch)
        a.introduce(switch, 0)
        statistics = switch.statistics(0)
        assert statistics.rx_packets == 300 * 16 + 1
        assert statistics.rx_no_program + switch.statistics(1).tx_packets == 300 * 16 + 1


def test_delay_in_real_time(engine: str) -> None:
    late = PortImpairments(tx=Impairments(delay_s=0.02))
    with scripted(engine, {0: UdpPort()}, impairments={0: late}) as switch:
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
    with bound_udp(600) as peer:
        ports = {0: UdpPort(), 1: UdpPort(0, peer.getsockname()[1])}
        with scripted(engine, ports) as switch:
            switch.start()
            with Host(switch, 0) as a:
                a.send([frame("U", 1, tag=4)])
                assert seen(peer.recv(2000)).tag == 4


@pytest.mark.parametrize("fixed", [True, False], ids=["given", "the first to speak"])
def test_strangers_are_counted_and_neither_heard_nor_answered(engine: str, fixed: bool) -> None:
    with contextlib.ExitStack() as stack:
        peer = stack.enter_context(bound_udp())
        local = peer.getsockname()[1]
        ports = {0: UdpPort(0, local if fixed else None)}
        switch = stack.enter_context(scripted(engine, ports))
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
    with bound_udp() as made:
        address = made.getsockname()
        with scripted(engine, {0: UdpPort(fd=os.dup(made.fileno()))}) as switch:
            assert switch.port_address(0) == address
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
    with bound_udp() as taken:
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
def test_an_interpreted_program_that_fails_ends_the_switch_with_its_error(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(Interpreter, "egress", lambda *_: {}["no such field"])
    with scripted("interpreter", {0: UdpPort()}) as switch, Host(switch, 0) as a:
        switch.start()
        a.send([frame("U", 0)])
        switch._threads[0].join(600)
        with pytest.raises(SwitchError, match=r"the interpreted program failed: KeyError.*no such field"):
            switch.stop()


native = pytest.mark.skipif(not have_compiler, reason="no C compiler")
FRAMES = 20_000


def run(
    link: PortImpairments, *, seed: int = 0, frames: int = FRAMES
) -> tuple[list[tuple[int, int]], Switch]:
    """Send numbered frames from port 0 to 1, one per microsecond; what arrived: (time, number)."""
    ports = {0: MemoryPort(), 1: MemoryPort()}
    with scripted("compiled", ports, seed=seed, impairments={1: link}) as switch:
        for number in range(frames):
            switch.inject(0, [frame("U", 1, tag=number)], now_us=number)
        switch.advance(10 * frames)
        arrived = [(when, seen(f).tag) for when, f in switch.drain_timed(1)]
        statistics = switch.statistics(1)
    return arrived, statistics


def about(expected: float) -> object:
    """Within five standard deviations of a binomial count of FRAMES draws."""
    return pytest.approx(expected, abs=5 * max(1.0, expected * (1 - expected / FRAMES)) ** 0.5)


@native
def test_loss_and_corruption_are_counted_apart() -> None:
    arrived, statistics = run(PortImpairments(tx=Impairments(loss=0.1, corrupt=0.05)))
    assert statistics.tx_lost == about(0.1 * FRAMES)
    assert statistics.tx_corrupted == about(0.9 * 0.05 * FRAMES)
    assert len(arrived) == statistics.tx_packets == FRAMES - statistics.tx_lost - statistics.tx_corrupted


@native
def test_losses_do_not_come_in_runs() -> None:
    arrived, _ = run(PortImpairments(tx=Impairments(loss=0.5)))
    kept = {number for _, number in arrived}
    after_a_loss = sum(n - 1 not in kept for n in kept if n)
    assert after_a_loss == pytest.approx(len(kept) / 2, rel=0.05)


@native
def test_duplicates() -> None:
    arrived, statistics = run(PortImpairments(tx=Impairments(duplicate=0.2)))
    assert statistics.tx_duplicated == about(0.2 * FRAMES)
    assert len(arrived) == FRAMES + statistics.tx_duplicated
    assert [n for _, n in arrived] == sorted(n for _, n in arrived)


@native
def test_reordered_frames_are_overtaken_and_others_keep_their_order() -> None:
    arrived, statistics = run(PortImpairments(tx=Impairments(reorder=0.1, reorder_s=50e-6, delay_s=20e-6)))
    assert len(arrived) == FRAMES
    assert statistics.tx_reordered == about(0.1 * FRAMES)
    assert [n for _, n in arrived] != list(range(FRAMES))
    in_order = [n for when, n in arrived if when == n + 20]
    assert in_order == sorted(in_order)
    late = [when - n - 20 for when, n in arrived if when != n + 20]
    assert 0.9 * statistics.tx_reordered <= len(late) <= statistics.tx_reordered  # some by less than 1 us
    assert min(late) > 0
    assert max(late) <= 50


@native
def test_jitter_keeps_order() -> None:
    arrived, _ = run(PortImpairments(tx=Impairments(delay_s=100e-6, jitter_s=30e-6)))
    assert [n for _, n in arrived] == list(range(FRAMES))
    delays = {when - n for when, n in arrived}
    assert min(delays) >= 100
    assert max(delays) <= 130
    assert len(delays) > 10


@native
def test_certainty_and_impossibility() -> None:
    assert run(PortImpairments(tx=Impairments(loss=1.0)), frames=100)[0] == []
    assert len(run(PortImpairments(), frames=100)[0]) == 100


@native
def test_both_directions_and_all_ports_have_streams_of_their_own() -> None:
    seeds = {
        LinkModel.of(Impairments(seed=own), seed=7, port=port, direction=direction).seed
        for own in (None, 8)
        for port in range(4)
        for direction in ("rx", "tx")
    }
    assert len(seeds) == 16


def test_parse() -> None:
    both = Impairments(loss=0.05, delay_s=0.002, seed=3)
    assert PortImpairments.parse("loss=5%,delay=2ms,seed=3") == PortImpairments(rx=both, tx=both)
    assert PortImpairments.parse("tx.rate=1.5G,tx.queue=8, rx.loss=1e-3") == PortImpairments(
        rx=Impairments(loss=1e-3), tx=Impairments(rate_bps=1.5e9, queue_packets=8)
    )
    assert PortImpairments.parse("") == PortImpairments()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("los=0.1", "'los=0.1': want key=value with one of loss, duplicate"),
        ("loss", "'loss': want key=value"),
        ("xx.loss=0.1", "'xx.loss=0.1': want key=value"),
        ("loss=much", "'loss=much': want a number"),
        ("loss=1.2.3", "'loss=1.2.3': want a number"),
        ("delay=3min", "'delay=3min': want a number, optionally with one of s, ms, us, ns"),
        ("queue=1.5", "'queue=1.5': want a whole number"),
        ("loss=1.5", "loss must be a probability, not 1.5"),
        ("queue=-1", "queue_packets must not be negative"),
    ],
)
def test_parse_refuses(text: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        PortImpairments.parse(text)
