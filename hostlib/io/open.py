"""Opens the link that a job's configuration asks for."""

from __future__ import annotations

from hostlib.config import TransportConfig, parse_address
from hostlib.core.window import Window
from hostlib.errors import ConfigError
from hostlib.io.datagrams import open_socket
from hostlib.io.link import SocketLink, receive_bytes_for


def open_link(transport: TransportConfig, window: Window) -> SocketLink:
    """Open the socket of a worker.

    Both kinds use a connected UDP socket. On *loopback* each datagram is a whole Ethernet frame that the
    window writes, and the other end is the switch's port. On *udp* the datagram is the payload, the kernel
    makes the headers, and the switch is a hop that intercepts what goes to the INA port.

    Raises:
        ConfigError: the socket cannot be opened at those addresses.
    """
    local, switch = parse_address(transport.local), parse_address(transport.switch)
    state = window.state.struct
    try:
        receive_bytes = receive_bytes_for(state.window, state.packet_bytes)
        own = transport.kind == "loopback"
        sock = open_socket(local, switch, receive_bytes, held=transport.held, own=own)
    except OSError as error:
        raise ConfigError(
            f"cannot open {transport.local} towards {transport.switch}: {error.strerror}"
        ) from error
    return SocketLink(sock, window)
