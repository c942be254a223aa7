"""Layout of INA packets on the wire: the header of ``p4src/include/headers.p4``, and numpy dtypes.

All fields are big endian. A *frame* is Ethernet, IPv4, UDP, INA header and `lanes` int32 values; over a
plain UDP socket the library writes only the *payload* (INA header and lanes), and the kernel writes the other
headers.
"""

from __future__ import annotations

import importlib
import ipaddress
import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from hostlib.version import INA_VERSION as INA_VERSION

if TYPE_CHECKING:
    from hostlib.wire.dtypes import HEADER_DTYPE as HEADER_DTYPE
    from hostlib.wire.dtypes import PREFIX_DTYPE as PREFIX_DTYPE
    from hostlib.wire.dtypes import packet_dtype as packet_dtype

INA_UDP_PORT: Final = 42592

KIND_GRADIENT: Final = 1
KIND_RESULT: Final = 2
KIND_STATUS: Final = 3
KIND_PARTIAL: Final = 4
"""A contribution, or a sum of several contributions, on its way to the fallback server."""
KIND_REMINDER: Final = 5
"""A request by the fallback server for missing contributions."""

FLAG_RESEND: Final = 0x01
FLAG_QUERY: Final = 0x02
FLAG_OVERFLOW: Final = 0x04
FLAG_DISAGREE: Final = 0x08
FLAG_COLLISION: Final = 0x10
FLAG_ECN: Final = 0x20
FLAG_BYPASS: Final = 0x40
FLAG_RAW: Final = 0x80
FLAGS_OF_ANSWER: Final = FLAG_RESEND | FLAG_BYPASS
"""Flags with which a worker that already has the result answers a reminder."""

NAMES_OF_KINDS: Final = {
    KIND_GRADIENT: "gradient",
    KIND_RESULT: "result",
    KIND_STATUS: "status",
    KIND_PARTIAL: "partial",
    KIND_REMINDER: "reminder",
}
NAMES_OF_FLAGS: Final = {
    FLAG_RESEND: "resend",
    FLAG_QUERY: "query",
    FLAG_OVERFLOW: "overflow",
    FLAG_DISAGREE: "disagree",
    FLAG_COLLISION: "collision",
    FLAG_ECN: "ecn",
    FLAG_BYPASS: "bypass",
    FLAG_RAW: "raw",
}
"""Names of flags in dissected captures (`hostlib.scapy_ina`, `hostlib.wire.lua_dissector`)."""

ECN_MASK: Final = 3
ECN_CONGESTED: Final = 3
"""ECN field of a frame's IPv4 header: congestion experienced (RFC 3168)."""
STICKY_FLAGS: Final = FLAG_OVERFLOW | FLAG_DISAGREE | FLAG_COLLISION | FLAG_ECN
"""Flags that a sum inherits from its contributions."""

TARGET_BUT: Final = 0x8000
"""Bit of `target`: if it is set, all ranks take the result except the rank that the other bits give."""
TARGET_ALL: Final = 0xFFFF
"""Value of `target` if every rank takes the result: the bit `TARGET_BUT` is set, and the rank in the other
bits does not exist."""
ROOT_NODE: Final = 0
VALID_INT32: Final = 0x8000
"""Bit of `valid` in RAW packets: the lanes are int32, not float32."""

ETHERNET_BYTES: Final = 14
IPV4_BYTES: Final = 20
UDP_BYTES: Final = 8
INA_BYTES: Final = 28
FRAME_PREFIX_BYTES: Final = ETHERNET_BYTES + IPV4_BYTES + UDP_BYTES

MAX_FAN_IN: Final = 32
"""Number of bits of the contribution bitmap, which is the maximum number of children of one switch."""

LANE_COUNTS: Final = (32, 64, 256)
"""Numbers of lanes per packet for which switch programs can be built."""

TYPE_IPV4: Final = 0x0800
PROTO_UDP: Final = 17

_IPV4: Final = struct.Struct("!BBHHHBBH4s4s")
_IPV4_CHECKSUM: Final = 10
_DO_NOT_FRAGMENT: Final = 0x4000
_UDP: Final = struct.Struct("!HHHH")


def version_kind(kind: int) -> int:
    """Return the first byte of an INA header of this kind."""
    return INA_VERSION << 4 | kind


@dataclass(frozen=True, slots=True)
class Endpoints:
    """Addresses in the frames that a worker writes itself."""

    src_mac: str
    dst_mac: str
    src_ip: str
    dst_ip: str
    src_port: int


def frame_prefix(endpoints: Endpoints, payload_bytes: int) -> bytes:
    """Return the Ethernet, IPv4 and UDP headers for a payload of that length; the UDP checksum is absent."""
    if not 0 <= endpoints.src_port <= 0xFFFF:
        raise ValueError(f"UDP source port is {endpoints.src_port}, must be 0..65535")
    ip = _IPV4.pack(
        *(0x45, 0, IPV4_BYTES + UDP_BYTES + payload_bytes, 0, _DO_NOT_FRAGMENT, 64, PROTO_UDP, 0),
        *(ipaddress.IPv4Address(address).packed for address in (endpoints.src_ip, endpoints.dst_ip)),
    )
    return b"".join(
        [
            *(bytes(mac_bytes(endpoints.dst_mac)), bytes(mac_bytes(endpoints.src_mac))),
            TYPE_IPV4.to_bytes(2, "big"),
            ip[:_IPV4_CHECKSUM] + ipv4_checksum(ip).to_bytes(2, "big") + ip[_IPV4_CHECKSUM + 2 :],
            _UDP.pack(endpoints.src_port, INA_UDP_PORT, UDP_BYTES + payload_bytes, 0),
        ]
    )


def mac_bytes(mac: str) -> list[int]:
    """Return the six bytes of ``aa:bb:cc:dd:ee:ff``. Raises ValueError for anything else."""
    parts = [int(part, 16) for part in mac.split(":")]
    if len(parts) != 6 or not all(0 <= part <= 0xFF for part in parts):
        raise ValueError(f"{mac!r} is not a MAC address like 02:00:00:00:00:01")
    return parts


def ipv4_checksum(header: bytes) -> int:
    """Return the checksum of an IPv4 header whose checksum field is zero (RFC 1071)."""
    total: int = sum(struct.unpack(f"!{len(header) // 2}H", header))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return ~total & 0xFFFF


def __getattr__(name: str) -> object:
    """Import array types at their first use: a launcher of workers needs no numpy."""
    if name in ("HEADER_DTYPE", "PREFIX_DTYPE", "packet_dtype"):
        found: object = getattr(importlib.import_module("hostlib.wire.dtypes"), name)
        globals()[name] = found
        return found
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
