import pytest
from hypothesis import given
from hypothesis import strategies as st

from softswitch.engine.interpreter.externs import ALGORITHMS

CHECK = b"123456789"  # the customary check string of CRC catalogues


@pytest.mark.parametrize(
    ("algorithm", "data", "expected"),
    [
        ("crc32", CHECK, 0xCBF43926),
        ("crc32", b"", 0),
        ("crc32_custom", CHECK, 0xCBF43926),
        ("crc16", CHECK, 0xBB3D),
        ("crc16", b"", 0),
        ("crc16_custom", CHECK, 0xBB3D),
        # the example of RFC 1071, section 3
        ("csum16", bytes.fromhex("0001f203f4f5f6f7"), 0x220D),
        ("csum16", b"", 0xFFFF),
        ("csum16", b"\xff\xff", 0),
        ("csum16", b"\x12", 0xEDFF),
        ("xor16", bytes.fromhex("1234ff00"), 0xED34),
        ("xor16", bytes.fromhex("1234ff"), 0xED34),
        ("identity", bytes.fromhex("0102030405060708"), 0x0102030405060708),
        ("identity", bytes.fromhex("01020304050607080910"), 0x0102030405060708),
        ("identity", bytes.fromhex("0102"), 0x0102),
        ("identity", b"", 0),
    ],
)
def test_known_values(algorithm: str, data: bytes, expected: int) -> None:
    assert ALGORITHMS[algorithm](data) == expected


@given(st.binary(max_size=60).filter(lambda data: len(data) % 2 == 0))
def test_internet_checksum_of_data_and_its_checksum_is_zero(data: bytes) -> None:
    checksum = ALGORITHMS["csum16"](data)
    assert ALGORITHMS["csum16"](data + checksum.to_bytes(2, "big")) == 0
