"""Builds the frames of docs/reference/protocol.md, well formed and not."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass

from tests.p4.bed import LANES, UDP_PORT, Packet
from tests.softswitch.differential.stimuli import internet_checksum

SWITCH_MAC = 0x02_00_00_00_00_FE
SWITCH_IP = 0x0A_00_00_FE


@dataclass(frozen=True, slots=True)
class Station:
    """A worker, a switch or a fallback server: where it is connected and what it is called."""

    port: int
    mac: int
    ip: int
    udp_port: int = UDP_PORT


INA_BYTES = 28
INA_OFFSET = 14 + 20 + 8
FRAME_BYTES = INA_OFFSET + INA_BYTES + 4 * LANES


@dataclass(frozen=True, slots=True)
class Ipv4:
    """What varies in the IPv4 header; lengths and checksum None are the right ones."""

    src: int
    dst: int = SWITCH_IP
    protocol: int = 17
    ttl: int = 64
    tos: int = 0
    identification: int = 1
    fragment: int = 0x4000
    options: bytes = b""
    total_len: int | None = None
    checksum: int | None = None

    def pack(self, payload: int) -> bytes:
        """Return the header before `payload` bytes."""
        length = 20 + len(self.options) + payload if self.total_len is None else self.total_len
        words = (5 + len(self.options) // 4, self.tos, length, self.identification, self.fragment)
        start = struct.pack(">BBHHHBB", 0x40 | words[0], *words[1:], self.ttl, self.protocol)
        end = struct.pack(">II", self.src, self.dst) + self.options
        checksum = internet_checksum(start + end) if self.checksum is None else self.checksum
        return start + struct.pack(">H", checksum) + end


def frame(
    station: Station,
    ina: Packet,
    values: Sequence[int],
    *,
    ipv4: Ipv4 | None = None,
    udp_length: int | None = None,
    dst_port: int = UDP_PORT,
) -> bytes:
    """Return a whole frame from `station` to the switch; `ipv4` and `udp_length` may contradict the rest.

    The UDP checksum is made up: the switch must not mind.
    """
    payload = ina.header + struct.pack(f">{len(values)}i", *values)
    udp = (station.udp_port, dst_port, udp_length or 8 + len(payload), 0xBEEF)
    datagram = struct.pack(">HHHH", *udp) + payload
    header = (ipv4 or Ipv4(src=station.ip)).pack(len(datagram))
    ethernet = SWITCH_MAC.to_bytes(6, "big") + station.mac.to_bytes(6, "big") + b"\x08\x00"
    return ethernet + header + datagram
