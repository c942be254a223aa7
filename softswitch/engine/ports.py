"""Connections of switch ports.

``memory``              frames come from and go to the program itself, on a clock of its choice
``cpu``                 the same, for packet-in and packet-out
``udp:LOCAL[:PEER]``    one frame is one UDP datagram on 127.0.0.1, to and from UDP port PEER; what others
                        send is dropped. Without PEER the first sender becomes the peer
``socket:FD[:PEER]``    the same on a bound UDP socket that the parent process passes
``shm[:PATH]``          frames in memory that is shared with the client of the Unix socket PATH: another
                        process of this user. Without PATH the socket is in a folder that is made for it
``veth:NAME``, ``if:NAME``   a network interface (needs root)
"""

from __future__ import annotations

from dataclasses import dataclass

MAX_PORT = 510
"""Port numbers are bit<9>, and 511 means drop."""


class SwitchError(Exception):
    """The switch cannot do what was asked.

    SwitchError
    └── PortError   a port specification is wrong, or the port cannot be opened
    """

    exit_code = 1


class PortError(SwitchError):
    """A port specification is wrong, or the port cannot be opened."""


@dataclass(frozen=True, slots=True)
class MemoryPort:
    """A port that the program itself feeds and drains; the CPU port if `cpu`."""

    cpu: bool = False


@dataclass(frozen=True, slots=True)
class UdpPort:
    """A UDP socket on 127.0.0.1; `local` 0 takes a free port."""

    local: int = 0
    peer: int | None = None
    """The UDP port of the far end; None: the first sender becomes the peer."""
    fd: int | None = None
    """A bound socket to take over, instead of one at `local`; it is closed with the switch."""


@dataclass(frozen=True, slots=True)
class SharedPort:
    """Rings of frames in memory that is shared with another process (``runtime/shared_ring.h``)."""

    path: str | None = None
    """Unix socket to connect to; None: one in a private folder."""


@dataclass(frozen=True, slots=True)
class InterfacePort:
    """A packet socket on a network interface of this machine."""

    name: str


PortSpec = MemoryPort | UdpPort | SharedPort | InterfacePort


def parse_port(text: str) -> PortSpec:
    """Read a port specification. Raises PortError, which names the valid forms."""
    kind, _, rest = text.partition(":")
    match kind:
        case "memory" | "cpu" if not rest:
            return MemoryPort(cpu=kind == "cpu")
        case "udp":
            local, colon, peer = rest.partition(":")
            return UdpPort(_udp_number(text, local, 0), _udp_number(text, peer, 1) if colon else None)
        case "socket":
            descriptor, colon, peer = rest.partition(":")
            if not descriptor.isascii() or not descriptor.isdigit() or len(descriptor) > 9:
                raise PortError(f"port {text!r}: {descriptor!r} is not a file descriptor")
            return UdpPort(0, _udp_number(text, peer, 1) if colon else None, int(descriptor))
        case "shm" if rest or text == "shm":
            return SharedPort(rest or None)
        case "veth" | "if" if rest:
            if len(rest) > 15 or "/" in rest or any(c.isspace() for c in rest):
                raise PortError(f"port {text!r}: {rest!r} is not an interface name")
            return InterfacePort(rest)
    raise PortError(
        f"port {text!r}: want memory, cpu, udp:LOCAL[:PEER], socket:FD[:PEER], shm[:PATH], veth:NAME"
        " or if:NAME"
    )


def takes_any_peer(spec: PortSpec) -> bool:
    """Return True if the first sender at this port becomes its peer."""
    return isinstance(spec, UdpPort) and spec.peer is None


def _udp_number(text: str, number: str, lowest: int) -> int:
    if not number.isascii() or not number.isdigit() or not lowest <= int(number) <= 65535:
        raise PortError(f"port {text!r}: {number!r} is not a UDP port ({lowest}..65535)")
    return int(number)
