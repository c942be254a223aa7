"""A thin P4Runtime client: entries by name, mastership, nothing about aggregation."""

from controller.p4runtime_shim.client import P4RuntimeClient
from controller.p4runtime_shim.codec import Codec
from controller.p4runtime_shim.rows import Group, Lpm, Range, Row, Ternary
from controller.p4runtime_shim.tls import Tls

__all__ = ["Codec", "Group", "Lpm", "P4RuntimeClient", "Range", "Row", "Ternary", "Tls"]
