"""Serve a window over a socket, or over shared memory."""

from __future__ import annotations

import ctypes
import enum
import socket
from typing import Final

from hostlib import _native
from hostlib._native.layout import require_constants
from hostlib.addresses import parse_address
from hostlib.config import TransportConfig
from hostlib.core.window import Window
from hostlib.errors import ConfigError
from hostlib.io.datagrams import DATAGRAM_BYTES, SEGMENTS, Carrier, PacketSocket, open_socket
from hostlib.io.interfaces import interfaces
from hostlib.io.shared import SharedRings


class Pumped(enum.IntEnum):
    """Reason why a pump returned (``PUMP_*`` in ``ina_core.h``)."""

    DONE = 0
    TIMER = 1
    INTERRUPTED = 2
    DISAGREE = 3
    ERROR = 4
    ROUND = 5


_PUMPED: Final = tuple(Pumped)
"""Members of `Pumped` by number: a look-up here is a microsecond faster than a call of `Pumped`."""


class Link:
    """Serves a window, in C: sends the window's packets, and passes arrived packets to it."""

    def __init__(self, carrier: Carrier, room_packets: int) -> None:
        """Make a link over `carrier`, which can hold `room_packets` unread results."""
        self.room_packets = room_packets
        self.carrier = carrier
        self._io = ctypes.byref(carrier.io)
        self._library = _native.load()
        require_constants(self._library, {f"PUMP_{each.name}": each.value for each in Pumped}, "PUMP_")

    def pump(self, window: Window, deadline: int) -> Pumped:
        """Serve until the collective is complete, a time-out is due or `deadline` (monotonic ns) has passed.

        After `Pumped.ROUND` the caller must call the window's `on_round`.
        """
        return _PUMPED[int(self._library.ina_pump(ctypes.byref(window.state.struct), self._io, deadline))]

    def serve(self, window: Window, deadline: int) -> None:
        """Answer reminders until `deadline` or a signal; call this only while no collective is under way."""
        self._library.ina_serve(ctypes.byref(window.state.struct), self._io, deadline)


IP_UDP_BYTES = 28


def open_link(transport: TransportConfig, window: Window) -> Link:
    """Open the link for a worker's packets.

    *shm* uses memory shared with the switch, other transports a connected UDP socket. With *shm* and
    *loopback* each packet or datagram is a whole Ethernet frame that the window writes, and the other end is
    the switch's port. With *udp* the datagram is the payload, the kernel makes the headers, and the switch is
    a hop that intercepts packets to the INA port.

    Raises:
        ConfigError: the link cannot be opened at the transport's addresses.
    """
    try:
        return _shared(transport, window) if transport.kind == "shm" else _datagrams(transport, window)
    except OSError as error:
        local = f"{transport.local} towards " if transport.local else ""
        raise ConfigError(f"cannot open {local}{transport.switch}: {error.strerror or error}") from error


def _shared(transport: TransportConfig, window: Window) -> Link:
    state = window.state.struct
    rings = SharedRings(transport.switch, state.most, state.packet_bytes)
    return Link(rings, rings.packets)


def _datagrams(transport: TransportConfig, window: Window) -> Link:
    state = window.state.struct
    if transport.kind == "udp":
        _check_mtu(parse_address(transport.local)[0], state.packet_bytes + IP_UDP_BYTES)
    sock = open_socket(
        parse_address(transport.local),
        parse_address(transport.switch),
        max(1 << 20, 4 * state.window * state.packet_bytes),  # two windows, and the kernel's overhead
        held=transport.held,
        own=transport.kind == "loopback",
    )
    return datagram_link(sock, window)


def _check_mtu(ip: str, packet_bytes: int) -> None:
    """Raise ConfigError if the MTU of the interface with this address is too small for such packets."""
    for each in interfaces():
        if each.ip == ip and each.mtu < packet_bytes:
            raise ConfigError(
                f"the MTU of {each.name} ({ip}) is {each.mtu}, and packets have {packet_bytes} bytes: want "
                f"'ip link set {each.name} mtu {packet_bytes}' or more, on all machines and the switch, or a "
                "program with fewer lanes"
            )


def datagram_link(sock: socket.socket, window: Window) -> Link:
    """Return the link over a connected UDP socket."""
    packet_bytes = window.state.struct.packet_bytes
    packets = min(SEGMENTS, DATAGRAM_BYTES // packet_bytes)
    carrier = PacketSocket(sock, packets * packet_bytes, packets)
    return Link(carrier, carrier.room_packets(packet_bytes))
