"""Opens the link that a job's configuration asks for."""

from __future__ import annotations

import socket

from hostlib.addresses import parse_address
from hostlib.config import TransportConfig
from hostlib.core.window import Window
from hostlib.errors import ConfigError
from hostlib.io.datagrams import DATAGRAM_BYTES, SEGMENTS, PacketSocket, open_socket
from hostlib.io.interfaces import interfaces
from hostlib.io.link import Link, receive_bytes_for
from hostlib.io.shared import SharedRings

IP_UDP_BYTES = 28


def open_link(transport: TransportConfig, window: Window) -> Link:
    """Open what carries a worker's packets.

    On *shm* that is memory shared with the switch, else a connected UDP socket. On *loopback* each datagram
    is a whole Ethernet frame that the window writes, as each packet in memory is, and the other end is the
    switch's port. On *udp* the datagram is the payload, the kernel makes the headers, and the switch is a
    hop that intercepts what goes to the INA port.

    Raises:
        ConfigError: it cannot be opened at those addresses.
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
        receive_bytes_for(state.window, state.packet_bytes),
        held=transport.held,
        own=transport.kind == "loopback",
    )
    return datagram_link(sock, window)


def _check_mtu(ip: str, packet_bytes: int) -> None:
    """Raise ConfigError if the interface with this address does not send such packets whole."""
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
