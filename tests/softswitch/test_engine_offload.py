"""Superframes against scapy: what comes out of a split is what a stack would have sent piece by piece."""

from __future__ import annotations

import ctypes
import random

import pytest
from scapy.layers.inet import IP, TCP, UDP
from scapy.layers.inet6 import IPv6
from scapy.layers.l2 import Dot1Q, Ether
from scapy.packet import Packet, Raw

from softswitch.engine.build import RUNTIME, build_c

FLAGS = ("-std=gnu11", "-O2", "-shared", "-fPIC", "-Wall", "-Wextra", "-Werror")

NEEDS_CHECKSUM, TCP4, TCP6, UDP_ANY = 1, 1, 4, 5
_Sink = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_uint32)


class Offload(ctypes.Structure):
    _fields_ = [
        ("flags", ctypes.c_uint8),
        ("type", ctypes.c_uint8),
        ("header_bytes", ctypes.c_uint16),
        ("segment_bytes", ctypes.c_uint16),
        ("checksum_start", ctypes.c_uint16),
        ("checksum_offset", ctypes.c_uint16),
    ]


def split(offload: Offload, frame: bytes) -> list[bytes]:
    library = ctypes.CDLL(str(build_c((RUNTIME / "engine_offload.c").read_text(), flags=FLAGS)))
    out: list[bytes] = []
    buffer = ctypes.create_string_buffer(frame, len(frame))
    sink = _Sink(lambda _, data, length: out.append(ctypes.string_at(data, length)))
    refused = library.offload_split(ctypes.byref(offload), buffer, len(frame), sink, None)
    assert refused == (-1 if not out else 0)
    return out


ETHER = Ether(src="02:00:00:00:00:01", dst="02:00:00:00:00:02")
CASES = [
    (ETHER / IP(src="10.0.0.1", dst="10.0.0.2", id=65535), UDP(sport=1, dport=2), UDP_ANY),
    (ETHER / IP(src="10.0.0.1", dst="10.0.0.2", tos=3), TCP(seq=2**32 - 500, flags="FPACE"), TCP4),
    (ETHER / Dot1Q(vlan=5) / IP(src="10.0.0.1", dst="10.0.0.2"), UDP(sport=1, dport=2), UDP_ANY),
    (ETHER / IPv6(src="fd00::1", dst="fd00::2"), UDP(sport=1, dport=2), UDP_ANY),
    (ETHER / IPv6(src="fd00::1", dst="fd00::2"), TCP(options=[("Timestamp", (1, 2))]), TCP6),
]


def expected(below: Packet, transport: Packet, payload: bytes, size: int) -> list[bytes]:
    """What a stack without offload would have sent."""
    frames = []
    for index, at in enumerate(range(0, len(payload), size)):
        ip, own = below.copy(), transport.copy()
        if IP in ip:
            ip[IP].id = (ip[IP].id + index) % 65536
        if TCP in own:
            own.seq = (own.seq + at) % 2**32
            if at + size < len(payload):
                own.flags = str(own.flags).replace("F", "").replace("P", "")
            if index:
                own.flags = str(own.flags).replace("C", "")
        frames.append(bytes(ip / own / Raw(payload[at : at + size])))
    return frames


@pytest.mark.parametrize(("below", "transport", "kind"), CASES, ids=["udp", "tcp", "vlan", "udp6", "tcp6"])
@pytest.mark.parametrize(("size", "length"), [(1000, 9500), (1, 5), (700, 1400), (1000, 400), (33, 2000)])
def test_split(below: Packet, transport: Packet, kind: int, size: int, length: int) -> None:
    payload = random.Random(size).randbytes(length)
    whole = bytes(below / transport / Raw(payload))
    offload = Offload(NEEDS_CHECKSUM, kind, 0, size, len(bytes(below)), 16 if TCP in transport else 6)
    assert split(offload, whole) == expected(below, transport, payload, size)


def test_an_unfinished_checksum_is_finished() -> None:
    below, payload = CASES[0][0], b"odd length payload!"
    whole = bytearray(bytes(below / UDP(sport=1, dport=2) / Raw(payload)))
    complete = bytes(whole)
    # What a stack leaves for the device: the sum of the pseudo header.
    pseudo = sum(int.from_bytes(whole[i : i + 2], "big") for i in range(26, 34, 2)) + 17 + 8 + len(payload)
    whole[40:42] = ((pseudo & 0xFFFF) + (pseudo >> 16)).to_bytes(2, "big")
    assert split(Offload(NEEDS_CHECKSUM, 0, 0, 0, 34, 6), bytes(whole)) == [complete]


@pytest.mark.parametrize(
    ("offload", "frame"),
    [
        (Offload(0, UDP_ANY, 0, 0, 0, 0), bytes(CASES[0][0] / UDP() / Raw(b"x" * 100))),
        (Offload(0, 3, 0, 100, 0, 0), bytes(CASES[0][0] / UDP() / Raw(b"x" * 100))),
        (Offload(0, UDP_ANY, 0, 100, 0, 0), bytes(ETHER) + b"x" * 100),
        (Offload(NEEDS_CHECKSUM, 0, 0, 0, 90, 20), bytes(100)),
    ],
    ids=["segment-of-0", "fragmentation-offload", "not-ip", "checksum-beyond-the-end"],
)
def test_what_cannot_be_split_is_refused(offload: Offload, frame: bytes) -> None:
    assert split(offload, frame) == []
