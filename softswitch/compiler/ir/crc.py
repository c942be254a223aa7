"""Cyclic redundancy checks with any polynomial, and the names that denote them in the IR."""

from __future__ import annotations

from dataclasses import dataclass

_PREFIX = "crc:"


@dataclass(frozen=True, slots=True)
class Crc:
    """A CRC of `width` bits, 8 to 64.

    `polynomial` omits the highest term. The bits of `polynomial` are in normal order, even if `reflected`.
    """

    width: int
    polynomial: int
    initial: int
    final_xor: int
    reflected: bool

    @property
    def name(self) -> str:
        """The name of this CRC as the algorithm of a ``hash`` call in the IR."""
        known = next((name for name, crc in _NAMED.items() if crc == self), None)
        numbers = (self.width, self.polynomial, self.initial, self.final_xor, int(self.reflected))
        return known or _PREFIX + ":".join(f"{number:x}" for number in numbers)

    @classmethod
    def parse(cls, name: str) -> Crc | None:
        """Return the CRC that a `name` such as ``crc:20:…`` describes; None for any other name."""
        if not name.startswith(_PREFIX):
            return None
        width, polynomial, initial, final_xor, reflected = (
            int(number, 16) for number in name.removeprefix(_PREFIX).split(":")
        )
        return cls(width, polynomial, initial, final_xor, bool(reflected))

    def of(self, data: bytes) -> int:
        """Return the checksum of bytes."""
        top, full = 1 << (self.width - 1), (1 << self.width) - 1
        remainder = self.initial
        for byte in data:
            remainder ^= (mirrored(byte, 8) if self.reflected else byte) << (self.width - 8)
            for _ in range(8):
                remainder = ((remainder << 1) ^ (self.polynomial if remainder & top else 0)) & full
        if self.reflected:
            remainder = mirrored(remainder, self.width)
        return remainder ^ self.final_xor


def mirrored(number: int, width: int) -> int:
    """Return a number with its `width` bits in the opposite order."""
    return int(f"{number:0{width}b}"[::-1], 2)


STANDARD = {
    "CRC8": Crc(8, 0x07, 0, 0, reflected=False),
    "CRC16": Crc(16, 0x8005, 0, 0, reflected=True),
    "CRC32": Crc(32, 0x04C11DB7, 0xFFFFFFFF, 0xFFFFFFFF, reflected=True),
    "CRC64": Crc(64, 0x42F0E1EBA9EA3693, 0, 0, reflected=False),
}
"""Tofino's CRC algorithms whose name fixes the polynomial."""

_NAMED = {"crc16": STANDARD["CRC16"], "crc32": STANDARD["CRC32"]}
