"""Scapy layer of the INA header, so that captures dissect. Needs scapy (an optional dependency).

>>> from hostlib.scapy_ina import Ina
>>> rdpcap("capture.pcap")[0][Ina].psn          # doctest: +SKIP
"""

from __future__ import annotations

from scapy.fields import (
    BitEnumField,
    BitField,
    ByteField,
    FieldLenField,
    FieldListField,
    FlagsField,
    IntField,
    ShortField,
    SignedIntField,
    XIntField,
    XShortField,
)
from scapy.layers.inet import UDP
from scapy.packet import Packet, bind_bottom_up, bind_layers

from hostlib import wire

KINDS = {
    wire.KIND_GRADIENT: "gradient",
    wire.KIND_RESULT: "result",
    wire.KIND_STATUS: "status",
    wire.KIND_PARTIAL: "partial",
    wire.KIND_REMINDER: "reminder",
}
FLAGS = ["resend", "query", "overflow", "disagree", "collision", "ecn", "bypass", "raw"]


class Ina(Packet):
    """INA header (``p4src/include/headers.p4``) with its int32 values."""

    name = "INA"
    fields_desc = [  # noqa: RUF012  # scapy's way to declare a layer
        BitField("version", wire.INA_VERSION, 4),
        BitEnumField("kind", wire.KIND_GRADIENT, 4, KINDS),
        FlagsField("flags", 0, 8, FLAGS),
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
        XShortField("target", wire.ALL),
        FieldListField("values", [], SignedIntField("value", 0), count_from=lambda packet: packet.lanes),
    ]


bind_layers(UDP, Ina, dport=wire.INA_UDP_PORT)
bind_bottom_up(UDP, Ina, sport=wire.INA_UDP_PORT)  # results come from the port that gradients are sent to
