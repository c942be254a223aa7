"""Port states of a testbed's switches, read from the kernel: for switches that do not report them."""

from __future__ import annotations

import fcntl
import socket
import struct
from typing import Self

from bmv2_topos.testbeds.netns.names import interface, namespace
from bmv2_topos.testbeds.netns.namespaces import inside
from bmv2_topos.testbeds.netns.store import State
from controller.p4runtime_shim.ports import PortEnds, SwitchReport

_GET_FLAGS = 0x8913
"""SIOCGIFFLAGS: the ioctl that reads an interface's flags."""
_UP = 0x1 | 0x40
"""The flags IFF_UP and IFF_RUNNING: both ends of the link are up."""


class InterfaceWatch:
    """Polls the interfaces of switches, over one socket in each switch's namespace."""

    def __init__(self, state: State) -> None:
        self._state = state
        self._switches = {f"unix:{state.socket(switch)}": switch for switch in state.topology.ports}
        self._sockets: dict[str, socket.socket] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for each in self._sockets.values():
            each.close()

    def __call__(self, address: str) -> SwitchReport | None:
        """Return the port states of the switch at a P4Runtime address.

        Returns None if the switch's namespace is gone.
        """
        switch = self._switches[address]
        try:
            if switch not in self._sockets:
                network = namespace(self._state.name, switch)
                self._sockets[switch] = inside(network, lambda: socket.socket(type=socket.SOCK_DGRAM))
            return SwitchReport(
                {
                    port: PortEnds(up=_is_up(self._sockets[switch], interface(switch, port)))
                    for port in self._state.topology.ports[switch]
                }
            )
        except OSError:
            return None


def _is_up(sock: socket.socket, name: str) -> bool:
    request = struct.pack("16sH14x", name.encode(), 0)
    flags: int = struct.unpack_from("H", fcntl.ioctl(sock, _GET_FLAGS, request), 16)[0]
    return flags & _UP == _UP
