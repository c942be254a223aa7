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
)
from scapy.layers.inet import UDP
from scapy.packet import Packet, bind_bottom_up, bind_layers

from hostlib.wire import INA_UDP_PORT, INA_VERSION, KIND_GRADIENT, KIND_RESULT, KIND_STATUS

KINDS = {KIND_GRADIENT: "gradient", KIND_RESULT: "result", KIND_STATUS: "status"}
FLAGS = ["resend", "query", "overflow", "disagree"]


class Ina(Packet):
    """INA header (``p4src/include/headers.p4``) with its int32 values."""

    name = "INA"
    fields_desc = [  # noqa: RUF012  # scapy's way to declare a layer
        BitField("version", INA_VERSION, 4),
        BitEnumField("kind", KIND_GRADIENT, 4, KINDS),
        FlagsField("flags", 0, 8, FLAGS),
        ShortField("job", 0),
        IntField("psn", 0),
        XIntField("bitmap", 0),
        ByteField("fan_in", 0),
        ByteField("priority", 0),
        ByteField("exponent", 0),
        ByteField("reserved", 0),
        ShortField("valid", 0),
        FieldLenField("lanes", None, count_of="values", fmt="H"),
        XIntField("tag", 0),
        FieldListField("values", [], SignedIntField("value", 0), count_from=lambda packet: packet.lanes),
    ]


bind_layers(UDP, Ina, dport=INA_UDP_PORT)
bind_bottom_up(UDP, Ina, sport=INA_UDP_PORT)  # results come from the port that gradients are sent to
