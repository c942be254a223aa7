"""Scapy layer of the INA header, to dissect captures. Needs scapy (an optional dependency).

>>> from hostlib.scapy_ina import Ina
>>> rdpcap("capture.pcap")[0][Ina].psn          # doctest: +SKIP
"""

from __future__ import annotations

from scapy.fields import (
    BitEnumField,
    BitField,
    ByteField,
    ConditionalField,
    FieldLenField,
    FieldListField,
    FlagsField,
    IEEEFloatField,
    IntField,
    ShortField,
    SignedIntField,
    XIntField,
    XShortField,
)
from scapy.layers.inet import UDP
from scapy.packet import Packet, bind_bottom_up, bind_layers

from hostlib import wire

_MOST = 0xFFFF
"""Maximum number of lanes in a packet; scapy's default limit for lists is 100."""


def _lanes(packet: Packet) -> int:
    return int(packet.lanes)


def _is_float(packet: Packet) -> bool:
    """Return whether the lanes are unscaled float32."""
    return bool(packet.flags & wire.FLAG_RAW) and not packet.valid & wire.VALID_INT32


class Ina(Packet):
    """INA header (``p4src/include/headers.p4``) with its lanes: `values` (int32), in RAW packets `floats`."""

    name = "INA"
    fields_desc = [  # noqa: RUF012  # scapy's way to declare a layer
        BitField("version", wire.INA_VERSION, 4),
        BitEnumField("kind", wire.KIND_GRADIENT, 4, wire.NAMES_OF_KINDS),
        FlagsField("flags", 0, 8, [wire.NAMES_OF_FLAGS[1 << bit] for bit in range(8)]),
        ShortField("job", 0),
        IntField("psn", 0),
        XIntField("bitmap", 0),
        ByteField("fan_in", 0),
        ByteField("priority", 0),
        ByteField("exponent", 0),
        ByteField("epoch", 0),
        ShortField("valid", 0),
        FieldLenField("lanes", None, count_of="values", fmt="H"),
        XIntField("tag", 0),
        ShortField("node", 0),
        XShortField("target", wire.TARGET_ALL),
        ConditionalField(
            FieldListField("values", [], SignedIntField("value", 0), count_from=_lanes, max_count=_MOST),
            lambda packet: not _is_float(packet),
        ),
        ConditionalField(
            FieldListField("floats", [], IEEEFloatField("value", 0), count_from=_lanes, max_count=_MOST),
            _is_float,
        ),
    ]

    def mysummary(self) -> str:
        """Return scapy's summary line of a packet."""
        return self.sprintf("INA %Ina.kind% job %Ina.job% psn %Ina.psn% %Ina.bitmap% %Ina.flags%")


bind_layers(UDP, Ina, dport=wire.INA_UDP_PORT)
bind_bottom_up(UDP, Ina, sport=wire.INA_UDP_PORT)  # results come from the destination port of gradients
