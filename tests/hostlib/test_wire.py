from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hostlib import wire
from tests.hostlib.virtual_network import endpoints


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


def test_scapy_dissects_a_frame() -> None:
    ether = pytest.importorskip("scapy.layers.l2").Ether
    from scapy.layers.inet import IP, UDP

    from hostlib.scapy_ina import Ina

    packets = np.zeros(1, wire.packet_dtype(32, framed=True))
    prefix = wire.frame_prefix(endpoints(3), wire.INA_BYTES + 128)
    packets.view(np.uint8)[: len(prefix)] = np.frombuffer(prefix, np.uint8)
    packets["version_kind"] = wire.version_kind(wire.KIND_GRADIENT)
    packets["flags"] = wire.FLAG_RESEND | wire.FLAG_RAW
    packets["node"], packets["target"], packets["epoch"] = 3, 0xFFFF, 9
    packets["psn"], packets["lanes"], packets["tag"] = 0x01020304, 32, 0xDEADBEEF
    packets["valid"] = wire.VALID_INT32 | 32
    packets["values"] = np.arange(-16, 16)

    frame = ether(packets.tobytes())
    assert frame[IP].src == "10.0.0.4"
    assert frame[IP].len == len(packets.tobytes()) - 14
    assert (frame[UDP].sport, frame[UDP].dport) == (42592, 42592)
    ina = frame[Ina]
    assert (ina.version, ina.kind, ina.psn, ina.tag) == (2, 1, 0x01020304, 0xDEADBEEF)
    assert (ina.node, ina.target, ina.epoch) == (3, wire.TARGET_ALL, 9)
    assert str(ina.flags) == "resend+raw"
    assert ina.values == list(range(-16, 16))
    assert bytes(ina) == packets.tobytes()[wire.FRAME_PREFIX_BYTES :]

    checksum = frame[IP].chksum
    del frame[IP].chksum
    assert ether(bytes(frame))[IP].chksum == checksum


@pytest.mark.parametrize("mac", ["", "02:00:00:00:00", "02:00:00:00:00:100", "zz:00:00:00:00:00"])
def test_what_is_no_mac_address_is_refused(mac: str) -> None:
    with pytest.raises(ValueError, match=r"MAC|invalid literal"):
        wire.mac_bytes(mac)
