"""Builds the frames of docs/reference/protocol.md, well formed and not."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass

from tests.softswitch.differential.stimuli import internet_checksum

LANES = 32
INA_UDP_PORT = 42592

GRADIENT, RESULT, STATUS, PARTIAL, REMINDER = 1, 2, 3, 4, 5
RESEND, QUERY, OVERFLOW, DISAGREE = 0x01, 0x02, 0x04, 0x08
COLLISION, ECN, BYPASS, RAW = 0x10, 0x20, 0x40, 0x80
ALL, BUT = 0xFFFF, 0x8000
"""Targets: of an allreduce; of a broadcast, with the rank that does not take it."""

SWITCH_MAC = 0x02_00_00_00_00_FE
SWITCH_IP = 0x0A_00_00_FE


@dataclass(frozen=True, slots=True)
class Station:
    """A worker, a switch or a fallback server: where it is connected and what it is called."""

    port: int
    mac: int
    ip: int
    udp_port: int = INA_UDP_PORT


@dataclass(frozen=True, slots=True)
class Ina:
    """The INA header, field by field."""

    job: int
    psn: int
    bitmap: int
    fan_in: int
    version: int = 2
    kind: int = GRADIENT
    flags: int = 0
    priority: int = 0
    exponent: int = 0
    epoch: int = 0
    valid: int = LANES
    lanes: int = LANES
    tag: int = 0x5EED
    node: int = 0
    target: int = ALL

    def pack(self) -> bytes:
        """Return the 28 bytes."""
        return struct.pack(
            ">BBHIIBBBBHHIHH",
            self.version << 4 | self.kind,
            self.flags,
            self.job,
            self.psn,
            self.bitmap,
            self.fan_in,
            self.priority,
            self.exponent,
            self.epoch,
            self.valid,
            self.lanes,
            self.tag,
            self.node,
            self.target,
        )

    @classmethod
    def unpack(cls, data: bytes) -> Ina:
        """Return the header that starts `data`."""
        fields = struct.unpack_from(">BBHIIBBBBHHIHH", data)
        first, flags, job, psn, bitmap, fan_in, priority, exponent, epoch, valid, lanes, tag = fields[:12]
        return cls(
            job=job,
            psn=psn,
            bitmap=bitmap,
            fan_in=fan_in,
            version=first >> 4,
            kind=first & 15,
            flags=flags,
            priority=priority,
            exponent=exponent,
            epoch=epoch,
            valid=valid,
            lanes=lanes,
            tag=tag,
            node=fields[12],
            target=fields[13],
        )


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


def ethernet(src: int, dst: int, ether_type: int, payload: bytes) -> bytes:
    """Return an Ethernet frame without frame check."""
    return dst.to_bytes(6, "big") + src.to_bytes(6, "big") + ether_type.to_bytes(2, "big") + payload


def udp(src_port: int, dst_port: int, payload: bytes, length: int | None = None) -> bytes:
    """Return a UDP datagram; its checksum is made up, the switch must not mind."""
    return struct.pack(">HHHH", src_port, dst_port, length or 8 + len(payload), 0xBEEF) + payload


def frame(
    station: Station,
    ina: Ina,
    values: Sequence[int],
    *,
    ipv4: Ipv4 | None = None,
    udp_length: int | None = None,
    dst_port: int = INA_UDP_PORT,
) -> bytes:
    """Return a whole frame from `station` to the switch; `ipv4` and `udp_length` may contradict the rest."""
    datagram = udp(
        station.udp_port, dst_port, ina.pack() + struct.pack(f">{len(values)}i", *values), udp_length
    )
    header = ipv4 or Ipv4(src=station.ip)
    return ethernet(station.mac, SWITCH_MAC, 0x0800, header.pack(len(datagram)) + datagram)
