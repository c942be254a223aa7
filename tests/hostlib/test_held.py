"""Addresses that are held for hosts: shared with them alone; what others send does not get through."""

from __future__ import annotations

import ctypes
import os
import socket
from collections.abc import Iterator
from contextlib import ExitStack
from multiprocessing import get_context
from multiprocessing.connection import Connection

import pytest

from hostlib import _native
from hostlib.io.datagrams import PacketSocket, open_socket
from hostlib.io.held import HeldAddress
from tests.sockets import bound_udp

NOBODY = 65534


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as made:
        yield made


def udp(stack: ExitStack) -> socket.socket:
    return stack.enter_context(bound_udp())


def held(stack: ExitStack, switch: socket.socket) -> HeldAddress:
    made = HeldAddress()
    stack.callback(made.close)
    made.expect(switch.getsockname())
    return made


def receive(packets: PacketSocket) -> bytes | None:
    library, segment = _native.load(), ctypes.c_int64()
    library.ina_receive.restype = ctypes.c_int64
    size = library.ina_receive(ctypes.byref(packets.io), ctypes.byref(segment))
    return ctypes.string_at(packets.io.receive_buffer, size) if size else None


def test_a_host_hears_its_switch_and_the_holder_everybody_else(stack: ExitStack) -> None:
    switch, stranger = udp(stack), udp(stack)
    holder = held(stack, switch)
    for life in range(2):  # it may come again
        with open_socket(holder.address, switch.getsockname(), 1 << 16, held=True) as host:
            packets = PacketSocket(host, 1000, 1)
            for number in range(5):
                stranger.sendto(b"junk", holder.address)
                switch.sendto(bytes([life, number]), holder.address)
            assert [receive(packets) for _ in range(6)] == [*(bytes([life, n]) for n in range(5)), None]
            assert packets.strangers == 0
        assert holder.strangers() == 5 * (life + 1)
        switch.sendto(b"late", holder.address)
        assert holder.strangers() == 5 * (life + 1)


def test_what_came_before_the_socket_was_connected_counts_only_from_the_switch(stack: ExitStack) -> None:
    switch, stranger, host = udp(stack), udp(stack), udp(stack)
    for sender, data in ((stranger, b"junk"), (switch, b"first"), (stranger, b"junk"), (switch, b"second")):
        sender.sendto(data, host.getsockname())
    host.connect(switch.getsockname())
    host.setblocking(False)
    packets = PacketSocket(host, 1000, 1)
    assert [receive(packets) for _ in range(3)] == [b"first", b"second", None]
    assert packets.strangers == 2


def test_packets_of_the_switch_never_count_while_a_slow_holder_has_room(stack: ExitStack) -> None:
    """Seed of a system test under load: 11 packets of the switch were dropped among a stranger's."""
    switch, stranger = udp(stack), udp(stack)
    holder = held(stack, switch)
    for number in range(440):
        (stranger if number % 11 else switch).sendto(b"data", holder.address)
    assert holder.strangers() == 400


def test_a_flood_is_counted_too(stack: ExitStack) -> None:
    holder = held(stack, udp(stack))
    stranger = udp(stack)
    for _ in range(20_000):
        stranger.sendto(b"junk", holder.address)
    counted = [holder.strangers() for _ in range(10)]
    assert counted[-1] == 20_000
    assert counted == sorted(counted)


def test_only_who_knows_that_it_is_held_can_share_it(stack: ExitStack) -> None:
    switch = udp(stack)
    holder = held(stack, switch)
    with pytest.raises(OSError, match="in use"):
        open_socket(holder.address, switch.getsockname(), 1 << 16)


def _bind_as_nobody(number: int, outcomes: Connection) -> None:
    os.setgroups([])
    os.setgid(NOBODY)
    os.setuid(NOBODY)
    choices = [(), (socket.SO_REUSEPORT,), (socket.SO_REUSEADDR,), (socket.SO_REUSEPORT, socket.SO_REUSEADDR)]
    got = []
    hosts = ("127.0.0.1", "0.0.0.0", "127.0.0.2", "224.0.0.7", "::", "::1", "::ffff:127.0.0.2")
    for host in hosts if socket.has_dualstack_ipv6() else hosts[:4]:
        for options in choices:
            with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET, socket.SOCK_DGRAM) as made:
                if ":" in host:
                    made.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
                for option in options:
                    made.setsockopt(socket.SOL_SOCKET, option, 1)
                try:
                    made.bind((host, number))
                    got.append((host, options))
                except OSError:
                    pass
    outcomes.send(got)


def _others(number: int) -> list[object]:
    """Return where another user gets a UDP port."""
    context = get_context("fork")
    mine, theirs = context.Pipe()
    process = context.Process(target=_bind_as_nobody, args=(number, theirs))
    process.start()
    got: list[object] = mine.recv()
    process.join()
    return got


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to become another user")
def test_no_other_user_can_take_the_port_of_a_host_that_nobody_holds_it_for(stack: ExitStack) -> None:
    with open_socket(("127.0.0.1", 0), udp(stack).getsockname(), 1 << 16, own=True) as host:
        assert _others(host.getsockname()[1]) == []
        with pytest.raises(OSError, match="in use"):
            HeldAddress(*host.getsockname())


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to become another user")
def test_no_other_user_can_take_it_before_during_or_after_its_host(stack: ExitStack) -> None:
    switch = udp(stack)
    holder = held(stack, switch)
    number = holder.address[1]
    # From another address they could send in its name (IP_PKTINFO).
    assert _others(number) == []
    with open_socket(holder.address, switch.getsockname(), 1 << 16, held=True):
        assert _others(number) == []
    assert _others(number) == []
