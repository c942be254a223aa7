"""Interface ports: real traffic of real network stacks between namespaces, bridged by the switch."""

from __future__ import annotations

import hashlib
import os
import random
import socket
import struct
import subprocess
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from softswitch.engine.ports import InterfacePort, PortError
from softswitch.engine.switch import Switch
from tests.sockets import digest_of
from tests.softswitch.namespaces import Namespace, hosts, why_not
from tests.softswitch.script_program import have_compiler, load_script

REASON = why_not() if have_compiler else "no C compiler"
pytestmark = [pytest.mark.netns, pytest.mark.skipif(bool(REASON), reason=REASON)]

UDP_SEGMENT, UDP_GRO, SO_RCVBUFFORCE = 103, 104, 33
Bridge = tuple[Switch, Namespace, Namespace]


@pytest.fixture
def bridge() -> Iterator[Bridge]:
    with hosts(2) as (a, b):
        ports = {1: InterfacePort(a.switch_interface), 2: InterfacePort(b.switch_interface)}
        with Switch(ports) as switch:
            load_script(switch)
            switch.set_multicast_group(1, [(1, 1), (2, 2)])
            switch.start()
            yield switch, a, b


def udp(host: Namespace, port: int = 0) -> socket.socket:
    opened = host.socket(socket.AF_INET, socket.SOCK_DGRAM)
    opened.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, 16 << 20)
    opened.bind((host.ip, port))
    return opened


def received(at: socket.socket, count: int) -> list[bytes]:
    """Take datagrams until there are `count`."""
    out: list[bytes] = []
    while len(out) < count:
        data, ancillary, _, _ = at.recvmsg(65536, 64)
        size = len(data)
        for _, _, value in ancillary:
            size = int.from_bytes(value[:4], "little")
        out += [data[i : i + size] for i in range(0, len(data), size)]
    return out


def test_ping(bridge: Bridge) -> None:
    """An ICMP echo, which needs ARP through the multicast group first."""
    _, a, b = bridge
    with a.socket(socket.AF_INET, socket.SOCK_DGRAM, socket.IPPROTO_ICMP) as ping:
        ping.connect((b.ip, 0))
        for number in range(5):
            ping.send(struct.pack("!BBHHH", 8, 0, 0, 0, number) + b"x" * 1000)
            kind, _, _, _, answer = struct.unpack("!BBHHH", ping.recv(2000)[:8])
            assert (kind, answer) == (0, number)


@pytest.mark.parametrize("offload", [True, False], ids=["gro", "no-gro"])
def test_udp_superframes_arrive_datagram_by_datagram(bridge: Bridge, offload: bool) -> None:
    switch, a, b = bridge
    chance = random.Random(1)
    with udp(a) as sender, udp(b, 7000) as receiver:
        if offload:
            receiver.setsockopt(socket.IPPROTO_UDP, UDP_GRO, 1)
        for size, count in ((1048, 40), (1472, 44), (100, 64), (1, 3), (900, 2)):
            payload = chance.randbytes(size * count - size // 3)
            segment = (socket.IPPROTO_UDP, UDP_SEGMENT, struct.pack("=H", size))
            for _ in range(20):
                sender.sendmsg([payload], [segment], 0, (b.ip, 7000))
                assert received(receiver, count) == [
                    payload[i : i + size] for i in range(0, len(payload), size)
                ]
    frames = 20 * (40 + 44 + 64 + 3 + 2)
    assert switch.statistics(1).rx_packets >= frames  # every datagram passed the program by itself
    assert switch.statistics(2).tx_packets >= frames


@pytest.mark.parametrize("size", [1000, 100])
def test_a_full_queue_of_the_interface_delays_frames_and_loses_none(bridge: Bridge, size: int) -> None:
    """A token bucket holds what leaves to 400 Mb/s, with a queue for 100 kB of 1.2 MB.

    Their order is the kernel's, which changes it where a sender or the bucket's timer changes processors.
    """
    switch, a, b = bridge
    shaping = ("root", "tbf", "rate", "400mbit", "burst", "100kb", "limit", "100kb")
    subprocess.run(["tc", "qdisc", "add", "dev", b.switch_interface, *shaping], check=True)
    with udp(a) as sender, udp(b, 7000) as receiver:
        sent = [random.Random(number).randbytes(size * 60) for number in range(1_200_000 // size // 60)]
        for payload in sent:
            sender.sendmsg(
                [payload], [(socket.IPPROTO_UDP, UDP_SEGMENT, struct.pack("=H", size))], 0, (b.ip, 7000)
            )
        datagrams = [payload[at : at + size] for payload in sent for at in range(0, size * 60, size)]
        assert sorted(received(receiver, len(datagrams))) == sorted(datagrams)
    assert switch.statistics(2).tx_blocked == 0


def test_a_frame_that_the_queue_never_takes_is_given_up(bridge: Bridge) -> None:
    switch, a, b = bridge
    at = ("dev", b.switch_interface, "root")
    subprocess.run(["tc", "qdisc", "add", *at, "pfifo", "limit", "0"], check=True)
    with udp(a) as sender, udp(b, 7000) as receiver:
        sender.sendto(b"waits for b's address", (b.ip, 7000))  # the request for it is what is given up
        while switch.statistics(2).tx_blocked == 0:
            time.sleep(0.01)
        subprocess.run(["tc", "qdisc", "delete", *at], check=True)
        assert receiver.recv(2000) == b"waits for b's address"  # at the next request, a second later


def test_single_datagrams_and_answers(bridge: Bridge) -> None:
    _, a, b = bridge
    with udp(a, 7001) as here, udp(b, 7002) as there:
        for number in range(200):
            here.sendto(b"question %d" % number, (b.ip, 7002))
            question, sender = there.recvfrom(2000)
            assert sender == (a.ip, 7001)
            there.sendto(question.replace(b"question", b"answer"), sender)
            assert here.recv(2000) == b"answer %d" % number


@pytest.mark.parametrize("family", [socket.AF_INET, socket.AF_INET6], ids=["ipv4", "ipv6"])
def test_tcp_in_bulk_both_ways(bridge: Bridge, family: socket.AddressFamily) -> None:
    switch, a, b = bridge
    data = os.urandom(1 << 20) * 30

    def write(stream: socket.socket) -> None:
        stream.sendall(data)
        stream.shutdown(socket.SHUT_WR)

    with b.socket(family, socket.SOCK_STREAM) as listener, a.socket(family, socket.SOCK_STREAM) as client:
        target = (b.ip if family == socket.AF_INET else b.ipv6, 7003)
        listener.bind(target)
        listener.listen()
        client.connect(target)
        server, _ = listener.accept()
        with server:
            server.settimeout(600)
            with ThreadPoolExecutor(4) as threads:
                writes = threads.map(write, (server, client))
                digests = [*threads.map(digest_of, (server, client))]
                assert [*writes] == [None, None]
    assert digests == [hashlib.sha256(data).hexdigest()] * 2
    assert switch.statistics(1).rx_malformed == switch.statistics(2).rx_malformed == 0
    assert switch.statistics(1).rx_bytes > len(data)


def test_a_missing_interface_is_refused_with_the_reason() -> None:
    with pytest.raises(PortError, match="port 4: cannot find interface nosuch0: No such device"):
        Switch({4: InterfacePort("nosuch0")})
