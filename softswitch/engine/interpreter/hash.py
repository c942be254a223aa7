"""The hash and checksum algorithms of v1model, with BMv2's parameters.

Each takes whole bytes and returns an unsigned number of its own width.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Mapping


def crc16(data: bytes) -> int:
    """CRC-16/ARC: polynomial 0x8005, reflected, starting from 0."""
    remainder = 0
    for byte in data:
        remainder ^= byte
        for _ in range(8):
            remainder = (remainder >> 1) ^ (0xA001 if remainder & 1 else 0)
    return remainder


def csum16(data: bytes) -> int:
    """The Internet checksum (RFC 1071): complement of the one's complement sum of 16-bit words."""
    total = sum(_words(data))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return total ^ 0xFFFF


def xor16(data: bytes) -> int:
    """Exclusive or of the 16-bit words."""
    result = 0
    for word in _words(data):
        result ^= word
    return result


def identity(data: bytes) -> int:
    """The first 64 bits, or all if there are fewer."""
    return int.from_bytes(data[:8], "big")


def _words(data: bytes) -> list[int]:
    padded = data + b"\0" * (len(data) % 2)
    return [int.from_bytes(padded[i : i + 2], "big") for i in range(0, len(padded), 2)]


# BMv2's custom CRCs have the standard parameters until its control plane changes them.
ALGORITHMS: Mapping[str, Callable[[bytes], int]] = {
    "crc32": zlib.crc32,
    "crc32_custom": zlib.crc32,
    "crc16": crc16,
    "crc16_custom": crc16,
    "csum16": csum16,
    "xor16": xor16,
    "identity": identity,
}
