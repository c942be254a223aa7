"""The UDP addresses of a run's workers and fallback server, reserved for the whole run.

Each address is bound before the process that uses it starts, and is released when the run has ended. So all
processes can learn their peers' addresses before the first packet, and no other user of the machine can bind
the address of a process that has not started yet, or has ended.
"""

from __future__ import annotations

import socket
import threading

from hostlib.launch.launcher import HeldAddress, OwnSocket
from ina.errors import AddressTaken


class HostAddresses:
    """Reserves a UDP address for each host (worker or fallback server), identified by its switch port."""

    def __init__(self, host: str = "127.0.0.1", base: int | None = None) -> None:
        """Reserve UDP ports of the IP address `host`.

        The host at switch port p gets UDP port `base` + p. If `base` is None, it gets any free UDP port.
        """
        self._host = host
        self._base = base
        self.chosen: dict[int, tuple[str, int]] = {}
        """By switch port, the address that the port's host must use, because the switch already sends to
        it."""
        self._held: dict[tuple[str, int], HeldAddress] = {}
        self._lock = threading.Lock()

    def hold(self, switch: str, port: int, peer: tuple[str, int]) -> tuple[str, int]:
        """Reserve and return the address of the host at a switch port; accept packets there only from `peer`.

        Raises:
            AddressTaken: another process has bound the address.
        """
        with self._lock:
            is_new = (switch, port) not in self._held
            address = self._reserve(switch, port)
            if is_new:
                self._held[switch, port].expect(peer)
            return address

    def reserve(self, switch: str, port: int) -> tuple[str, int]:
        """Reserve and return the address of the host at a switch port.

        The address accepts packets from any sender until `expect` is called. Raises AddressTaken.
        """
        with self._lock:
            return self._reserve(switch, port)

    def expect(self, switch: str, port: int, peer: tuple[str, int]) -> None:
        """Accept only packets from the UDP address `peer` at the address reserved for a switch port."""
        with self._lock:
            self._held[switch, port].expect(peer)

    def strangers(self) -> int:
        """Return the number of packets that hosts received from senders other than the switch.

        Call it regularly: each call empties the sockets. Packets that the kernel drops at a full socket
        count as well, whatever their sender.
        """
        with self._lock:
            return sum(held.strangers() for held in self._held.values())

    def close(self) -> None:
        """Release all addresses."""
        with self._lock:
            for held in self._held.values():
                held.close()
            self._held.clear()

    def _reserve(self, switch: str, port: int) -> tuple[str, int]:
        if (switch, port) not in self._held:
            self._held[switch, port] = self._take(port)
        return self._held[switch, port].address

    def _take(self, port: int) -> HeldAddress:
        host, number = self.chosen.get(port, (self._host, 0 if self._base is None else self._base + port))
        try:
            return HeldAddress(host, number)
        except OSError as error:
            raise AddressTaken(
                f"cannot bind UDP {host}:{number} for the host at switch port {port}: {error.strerror}",
                chosen=self._base is not None,
            ) from error


def port_socket() -> socket.socket:
    """Return a UDP socket for a port of the switch, bound to any free UDP port on loopback."""
    bound = OwnSocket()
    bound.take(("127.0.0.1", 0))
    return bound


def server_address(host: str) -> socket.socket:
    """Return a socket that reserves a free TCP port of the address `host`.

    A server can still bind that port if it sets SO_REUSEADDR.
    """
    held = socket.socket()
    held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    held.bind((host, 0))
    return held
