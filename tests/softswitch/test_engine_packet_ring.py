"""Interface ports receive by a ring: what a ring may lose, mix up, or leave behind."""

from __future__ import annotations

import contextlib
import random
import select
import socket
import struct
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
import scapy.all as scapy

from softswitch.engine.pcapng import CaptureSettings
from softswitch.engine.ports import InterfacePort, MemoryPort
from softswitch.engine.switch import Switch
from tests.softswitch.namespaces import Namespace, hosts, why_not
from tests.softswitch.script_program import have_compiler, load_script
from tests.system.command import until

REASON = why_not() if have_compiler else "no C compiler"
pytestmark = [pytest.mark.netns, pytest.mark.skipif(bool(REASON), reason=REASON)]

SOL_PACKET, PACKET_VNET_HDR, NEEDS_CHECKSUM, UDP_SEGMENT = 263, 15, 1, 103
UDP_IP = scapy.IP(src="10.0.0.1", dst="10.0.0.2") / scapy.UDP(sport=1, dport=2)
SLOTS = 4096
"""As PACKET_RING_SLOTS of ``runtime/engine_packet_ring.h``."""
TO_MEMORY, TO_HOST = bytes.fromhex("020000000002"), bytes.fromhex("020000000001")


@pytest.fixture
def host() -> Iterator[Namespace]:
    with hosts(1) as (host,):
        yield host


@pytest.fixture
def switch(host: Namespace) -> Iterator[Switch]:
    """A switch that does not run yet: port 1 is the host's interface, port 2 is memory."""
    with Switch({1: InterfacePort(host.switch_interface), 2: MemoryPort()}) as switch:
        load_script(switch)
        yield switch


def frame(number: int, size: int = 60, to: bytes = TO_MEMORY) -> bytes:
    """A frame of a type that is nobody's."""
    head = to + bytes.fromhex("02000000000a") + b"\x88\xb5" + struct.pack("!I", number)
    return head + random.Random(number).randbytes(size - len(head))


def raw(host: Namespace) -> socket.socket:
    """A socket that sends frames from the host."""
    opened = host.socket(socket.AF_PACKET, socket.SOCK_RAW)
    opened.bind((host.interface, 0))
    return opened


def send(host: Namespace, frames: Sequence[bytes]) -> None:
    """Send frames from the host."""
    with raw(host) as out:
        for each in frames:
            out.send(each)


def arrived(switch: Switch, last: bytes) -> list[bytes]:
    """Take what comes out of memory, up to the frame `last`."""
    out: list[bytes] = []

    def done() -> bool:
        out.extend(switch.drain(2))
        return bool(out) and out[-1] == last

    until(done)
    return out


def allow_jumbo(host: Namespace) -> None:
    """Let frames of 9,018 bytes pass, 9,014 without a tag."""
    for inside, interface in ([], host.switch_interface), (["-n", host.name], host.interface):
        subprocess.run(["ip", *inside, "link", "set", interface, "mtu", "9000"], check=True)


def test_frames_of_all_lengths_keep_their_order_and_bytes(switch: Switch, host: Namespace) -> None:
    """Short ones come by the ring; those too long for a slot of 2,048 bytes by the queue."""
    allow_jumbo(host)
    around = [*range(1960, 1980), *range(2040, 2052)]
    sizes = [60, 9014, 1514, *around, *[9014] * 20, 60, 60, 5000, 61, *reversed(around), *[9014, 60] * 10]
    sent = [frame(number, size) for number, size in enumerate(sizes * 3)]
    switch.start()
    send(host, sent)
    assert arrived(switch, sent[-1]) == sent
    assert switch.statistics(1).rx_socket_full == switch.statistics(1).rx_malformed == 0


def test_what_a_full_ring_drops_is_counted_and_the_rest_comes_in_order(
    switch: Switch, host: Namespace
) -> None:
    sent = [frame(number) for number in range(SLOTS + 1000)]
    with raw(host) as out:
        for each in sent:
            out.send(each)
        dropped = switch.statistics(1).rx_socket_full
        switch.start()
        until(lambda: switch.statistics(1).rx_packets >= len(sent) - dropped)
        out.send(frame(-1 & 0xFFFFFFFF))
        *kept, _ = arrived(switch, frame(-1 & 0xFFFFFFFF))
    assert kept == sent[: len(kept)]
    assert SLOTS - 50 < len(kept) <= SLOTS  # a new interface's own messages take a few slots
    assert len(kept) + dropped >= len(sent)
    assert dropped <= switch.statistics(1).rx_socket_full < dropped + 50  # asking again forgets none


def test_superframes_beyond_the_queue_are_counted_and_the_others_come_whole(
    switch: Switch, host: Namespace
) -> None:
    """A slot of the ring is left for each, but the queue that has it whole is full."""
    allow_jumbo(host)
    neighbour = ("10.77.0.2", "lladdr", TO_MEMORY.hex(":"), "dev", host.interface, "nud", "permanent")
    subprocess.run(["ip", "-n", host.name, "neighbour", "replace", *neighbour], check=True)
    sent = [struct.pack("!I", number) * 2000 for number in range(1400)]
    with host.socket(socket.AF_INET, socket.SOCK_DGRAM) as udp:
        udp.setsockopt(socket.IPPROTO_UDP, UDP_SEGMENT, 8000)
        for datagram in sent:
            udp.sendto(datagram * 8, ("10.77.0.2", 7000))
    switch.start()
    with raw(host) as out:
        until(lambda: _superframes_seen(switch) >= len(sent))
        out.send(frame(1))
        *kept, _ = arrived(switch, frame(1))
    dropped = switch.statistics(1).rx_socket_full
    assert 0 < dropped < len(sent)
    assert [each[42:] for each in kept] == [each for each in sent[: len(sent) - dropped] for _ in range(8)]


def _superframes_seen(switch: Switch) -> int:
    seen = switch.statistics(1)
    return seen.rx_packets // 8 + seen.rx_socket_full


@pytest.mark.parametrize("tag", ["81000005", "88a80005"], ids=["802.1Q", "802.1ad"])
def test_vlan_tags_that_the_kernel_keeps_beside_the_frame_are_put_back(
    switch: Switch, host: Namespace, tag: str
) -> None:
    """Linux takes a tag out of every frame that comes in, in the ring as in the queue of long frames."""
    allow_jumbo(host)
    sent = []
    for number, size in enumerate((60, 1518, 1970, 1980, 9010, 61)):
        plain = frame(number, size)
        sent.append(plain[:12] + bytes.fromhex(tag) + plain[12:])
    switch.start()
    send(host, sent)
    assert arrived(switch, sent[-1]) == sent


@pytest.mark.parametrize("size", [100, 5001])
@pytest.mark.parametrize("tag", ["", "81000005"], ids=["untagged", "tagged"])
def test_checksums_that_the_sender_left_to_its_interface_are_made(
    switch: Switch, host: Namespace, size: int, tag: str
) -> None:
    """In the ring as in the queue of long frames, and where a tag that was put back has moved them."""
    allow_jumbo(host)
    plain = bytes(
        scapy.Ether(dst=TO_MEMORY.hex(":"), src=host.mac) / UDP_IP / random.Random(size).randbytes(size)
    )
    complete = plain[:12] + bytes.fromhex(tag) + plain[12:]
    start = len(complete) - size - 8
    offload = struct.pack("=BBHHHH", NEEDS_CHECKSUM, 0, 0, 0, start, 6)
    switch.start()
    with raw(host) as out:
        out.setsockopt(SOL_PACKET, PACKET_VNET_HDR, 1)
        out.send(offload + complete[: start + 6] + _pseudo_sum(size + 8) + complete[start + 8 :])
    assert arrived(switch, complete) == [complete]


def _pseudo_sum(udp_bytes: int) -> bytes:
    """What stands for the checksum until it is made: the sum of addresses, protocol and length."""
    words = struct.unpack("!4H", socket.inet_aton(UDP_IP.src) + socket.inet_aton(UDP_IP.dst))
    total = sum(words) + socket.IPPROTO_UDP + udp_bytes
    return struct.pack("!H", (total & 0xFFFF) + (total >> 16))


def test_an_interface_that_goes_down_and_up_again_wakes_nobody_for_nothing(
    switch: Switch, host: Namespace
) -> None:
    (descriptor,) = _packet_sockets()
    watched = select.poll()
    watched.register(descriptor, select.POLLIN)
    switch.start()
    with raw(host) as out:
        out.send(frame(1))
        arrived(switch, frame(1))
        subprocess.run(["ip", "link", "set", host.switch_interface, "down"], check=True)
        until(lambda: not watched.poll(0))  # the error is taken, or the switch would ask for it forever
        subprocess.run(["ip", "link", "set", host.switch_interface, "up"], check=True)

        def passes() -> bool:
            with contextlib.suppress(OSError):  # until the carrier is back
                out.send(frame(2))
            return frame(2) in switch.drain(2)

        until(passes)
        until(lambda: not watched.poll(0))


def _packet_sockets() -> list[int]:
    """This process's file descriptors of packet sockets."""
    lines = Path("/proc/net/packet").read_text().splitlines()[1:]
    links = {f"socket:[{line.split()[-1]}]" for line in lines}
    found = []
    for path in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):
            if str(path.readlink()) in links:
                found.append(int(path.name))
    return found


def test_frames_that_the_switch_sends_do_not_come_back(switch: Switch, host: Namespace) -> None:
    switch.start()
    switch.inject(2, [frame(number, 1000, TO_HOST) for number in range(200)])
    until(lambda: switch.statistics(1).tx_packets >= 200)
    send(host, [frame(1)])
    assert arrived(switch, frame(1)) == [frame(1)]
    assert switch.statistics(1).rx_bytes < 100_000


def test_a_closed_port_leaves_no_memory_and_can_be_opened_again() -> None:
    before = _mapped_rings()
    with hosts(1) as (host,):
        for number in range(3):
            ports = {1: InterfacePort(host.switch_interface), 2: MemoryPort()}
            with Switch(ports) as switch, raw(host) as out:
                load_script(switch)
                switch.start()
                assert len(_mapped_rings()) == len(before) + 1
                out.send(frame(number))
                assert arrived(switch, frame(number)) == [frame(number)]
            assert _mapped_rings() == before


def _mapped_rings() -> list[str]:
    lines = Path("/proc/self/maps").read_text().splitlines()
    return [line for line in lines if "socket:[" in line]


def test_a_capture_has_frames_of_the_ring(switch: Switch, host: Namespace) -> None:
    switch.capture(CaptureSettings())
    switch.start()
    send(host, [frame(7, 500)])
    arrived(switch, frame(7, 500))
    records, left_out = switch.captured(1)
    assert frame(7, 500) in records
    assert left_out == 0
