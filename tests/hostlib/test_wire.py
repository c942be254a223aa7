from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hostlib import wire


@pytest.mark.parametrize("lanes", wire.LANE_COUNTS)
def test_a_packet_has_no_padding(lanes: int) -> None:
    assert wire.packet_dtype(lanes, framed=False).itemsize == 28 + 4 * lanes
    assert wire.packet_dtype(lanes, framed=True).itemsize == 70 + 4 * lanes


@given(
    st.fixed_dictionaries(
        {
            name: st.integers(0, 2 ** (8 * wire.HEADER_DTYPE[name].itemsize) - 1)
            for name in wire.HEADER_DTYPE.names or ()
        }
    ),
    st.lists(st.integers(-(2**31), 2**31 - 1), min_size=32, max_size=32),
)
def test_every_field_survives_the_wire_big_endian(fields: dict[str, int], values: list[int]) -> None:
    dtype = wire.packet_dtype(32, framed=False)
    packets = np.zeros(2, dtype)
    for name, value in fields.items():
        packets[name][1] = value
    packets["values"][1] = values
    data = packets.tobytes()
    decoded = np.frombuffer(data, dtype)[1]
    assert {name: int(decoded[name]) for name in fields} == fields
    assert decoded["values"].tolist() == values
    assert data[dtype.itemsize + 4 : dtype.itemsize + 8] == fields["psn"].to_bytes(4, "big")


@pytest.mark.parametrize("mac", ["", "02:00:00:00:00", "02:00:00:00:00:100", "zz:00:00:00:00:00"])
def test_what_is_no_mac_address_is_refused(mac: str) -> None:
    with pytest.raises(ValueError, match=r"MAC|invalid literal"):
        wire.mac_bytes(mac)
