"""Disables the kernel's offloads to network cards: ``python -m …offloads NAMESPACE/INTERFACE …``.

With offloads, a host leaves checksums and the segmentation of large packets to its network card; a veth does
neither, so the resulting frames are valid only for a kernel. And where an interface may deliver superframes,
libpcap buffers so few packets that bursts are lost. This module does for several interfaces at once what
``ethtool -K INTERFACE tx off tso off gso off gro off`` does for one. The commands of iproute2 cannot disable
offloads.
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
    """Disable the offloads of an interface of this namespace, in both directions. Raises OSError."""
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
