"""P4Runtime bytestrings: unsigned integers, big endian, in as few bytes as hold them (section 8.3)."""

from softswitch.p4runtime.errors import InvalidArgument


def encode(value: int) -> bytes:
    """Encode `value` canonically: the shortest string; zero is one zero byte."""
    return value.to_bytes(max(1, (value.bit_length() + 7) // 8), "big")


def decode(data: bytes, width: int, what: str) -> int:
    """Decode the value of `what`, which is `width` bits wide; leading zero bytes are allowed.

    Raises InvalidArgument if the string is empty or its value does not fit.
    """
    if not data:
        raise InvalidArgument(f"{what} is empty; a bit<{width}> takes at least one byte (zero is 00)")
    value = int.from_bytes(data, "big")
    if value.bit_length() > width:
        raise InvalidArgument(
            f"{what} is 0x{data.hex()}, {value.bit_length()} bits; it must fit in bit<{width}>,"
            f" at most 0x{(1 << width) - 1:x}"
        )
    return value
