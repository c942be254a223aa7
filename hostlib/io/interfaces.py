"""List the network interfaces of this machine, or of this process's network namespace."""

from __future__ import annotations

import fcntl
import os
import socket
import struct
from dataclasses import dataclass
from typing import Final

_FLAGS, _ADDRESS, _MTU, _HARDWARE = 0x8913, 0x8915, 0x8921, 0x8927
"""Numbers of the kernel's ioctl requests SIOCGIF…."""
_UP: Final = 1
_LOOPBACK: Final = 8
_RUNNING: Final = 64
_NAME_BYTES: Final = 16
_REQUEST_BYTES: Final = 40


@dataclass(frozen=True, slots=True)
class Interface:
    """A network interface."""

    name: str
    ip: str
    """The interface's first IPv4 address; "": it has none."""
    mac: str
    mtu: int
    """Maximum number of bytes of an IP packet on the interface."""
    up: bool
    carrier: bool
    """True if the far end of the link is up."""
    loopback: bool


def interfaces() -> tuple[Interface, ...]:
    """Return all interfaces, in the kernel's order."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        return tuple(_interface(any_socket, name) for _, name in socket.if_nameindex())


def addresses() -> tuple[str, ...]:
    """Return the IPv4 addresses at which other machines may reach this machine."""
    return tuple(each.ip for each in interfaces() if each.ip and not each.loopback)


def known_as() -> tuple[str, ...]:
    """Return a name of this machine (``INA_MACHINE``, or its host name) and its addresses."""
    return os.environ.get("INA_MACHINE") or socket.gethostname(), *addresses()


def _interface(any_socket: socket.socket, name: str) -> Interface:
    def ask(request: int) -> bytes:
        packed = struct.pack(f"{_REQUEST_BYTES}s", name.encode()[: _NAME_BYTES - 1])
        return fcntl.ioctl(any_socket.fileno(), request, packed)[_NAME_BYTES:]

    try:
        ip = socket.inet_ntoa(ask(_ADDRESS)[4:8])
    except OSError:  # it has no address
        ip = ""
    (flags,) = struct.unpack_from("H", ask(_FLAGS))
    (mtu,) = struct.unpack_from("i", ask(_MTU))
    up, running, loopback = (bool(flags & flag) for flag in (_UP, _RUNNING, _LOOPBACK))
    return Interface(name, ip, ask(_HARDWARE)[2:8].hex(":"), mtu, up, running, loopback)
