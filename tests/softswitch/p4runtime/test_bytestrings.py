import pytest
from hypothesis import given
from hypothesis import strategies as st

from softswitch.p4runtime.errors import InvalidArgument
from softswitch.p4runtime.translate import decode, encode


@given(st.integers(0, 2**256))
def test_encoding_is_the_shortest_that_decodes_to_the_same(value: int) -> None:
    data = encode(value)
    assert decode(data, 257, "x") == value
    assert len(data) == 1 or data[0] != 0


@given(st.integers(0, 2**48 - 1), st.integers(0, 10))
def test_leading_zeros_change_nothing(value: int, zeros: int) -> None:
    assert decode(bytes(zeros) + encode(value), 48, "x") == value


@pytest.mark.parametrize(("value", "data"), [(0, b"\0"), (255, b"\xff"), (256, b"\1\0")])
def test_examples_of_the_specification(value: int, data: bytes) -> None:
    assert encode(value) == data


def test_a_value_too_wide_is_refused_with_the_limit() -> None:
    with pytest.raises(InvalidArgument, match=r"port is 0x0200, 10 bits; .* bit<9>, at most 0x1ff"):
        decode(b"\x02\x00", 9, "port")


def test_nothing_is_not_zero() -> None:
    with pytest.raises(InvalidArgument, match="x is empty"):
        decode(b"", 8, "x")
