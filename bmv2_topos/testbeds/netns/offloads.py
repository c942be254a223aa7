"""Disables the kernel's offloads to network cards: ``python -m …offloads NAMESPACE/INTERFACE …``.

A host that leaves checksums and the cutting up of large packets to its card, which no veth does, sends frames
that only a kernel understands. And libpcap, seeing that an interface may bring superframes, keeps room for so
few packets that bursts are lost. This does what ``ethtool -K INTERFACE tx off tso off gso off gro off`` does,
which iproute2 cannot, for several interfaces at once.
"""

from __future__ import annotations

import array
import fcntl
import socket
import struct
import sys
from functools import partial

from bmv2_topos.testbeds.netns import namespaces

_SIOCETHTOOL = 0x8946
# linux/ethtool.h: ETHTOOL_STXCSUM, ETHTOOL_STSO, ETHTOOL_SGSO, ETHTOOL_SGRO
_SETTINGS = (0x17, 0x1F, 0x24, 0x2C)


def turn_off(interface: str) -> None:
    """Limit an interface of this namespace to whole frames, in both directions. Raises OSError."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        for setting in _SETTINGS:
            value = array.array("I", [setting, 0])
            address, _ = value.buffer_info()
            request = struct.pack("16sP", interface.encode(), address)
            fcntl.ioctl(any_socket, _SIOCETHTOOL, request)


def main() -> None:
    """Disable the offloads of all interfaces given as arguments."""
    for place in sys.argv[1:]:
        namespace, _, interface = place.rpartition("/")
        namespaces.inside(namespace, partial(turn_off, interface))


if __name__ == "__main__":
    main()
