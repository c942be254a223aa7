"""Tofino's metadata headers, parser errors and port numbers, for both back ends and the traffic manager.

Times are in nanoseconds. Queue depths are in cells of 80 bytes, computed as if all packets of a queue had
equal length.
"""

from __future__ import annotations

from softswitch.compiler import ir
from softswitch.compiler.ir.walk import nodes

NO_PORT = 511
"""``ucast_egress_port`` of a packet without a destination port."""

NO_GROUP = 65534
"""Initial value of ``mcast_grp_a`` and ``mcast_grp_b``: a packet without a group.

On the chip, group 0 is an ordinary group. In the engine, 0 means no group, so the chip's group 0 has this
number there.
"""

CELL = 80
"""Number of bytes in a cell of the packet buffer."""

DROP, NO_MIRROR = 1, 4
"""Bits of ``drop_ctl``: `DROP` drops unicast and multicast packets, `NO_MIRROR` drops the mirror.

The bit between them drops copies to the CPU; this switch makes none.
"""

RECIRCULATING = range(68, 72)
"""Ports of a pipe that lead back into it."""

PORTS_OF_A_PIPE = 128

TM = ("standard_metadata", "ingress_for_tm")
INGRESS_DEPARSER = ("standard_metadata", "ingress_for_deparser")
EGRESS_DEPARSER = ("standard_metadata", "egress_for_deparser")
INGRESS_PARSER = ("standard_metadata", "ingress_from_parser")
EGRESS_PARSER = ("standard_metadata", "egress_from_parser")

_ERRORS = {
    "NoError": 0,
    "NoMatch": 1,
    "PacketTooShort": 2,
    "HeaderTooShort": 2,
    "ParserTimeout": 8,
    "Timeout": 8,
}
_OTHER_ERROR = 4
_HEADER = 8
"""Number of bytes of the intrinsic metadata header in front of a frame in ingress."""


def group_number(group: int) -> int:
    """Return the engine's number for the chip's multicast group `group`; 0 if this is `NO_GROUP`."""
    return NO_GROUP - group if group in (0, NO_GROUP) else group


def is_recirculating(port: int) -> bool:
    """Return True if a port leads back into its pipe."""
    return port % PORTS_OF_A_PIPE in RECIRCULATING


def front_bytes(program: ir.Program) -> int:
    """Return the number of bytes in front of a frame in ingress: intrinsic and port metadata."""
    return _HEADER + (24 if program.architecture == "t2na" else 8)


def passes_over_front(program: ir.Program) -> bool:
    """Return True if the ingress parser extracts the intrinsic metadata, then skips all bytes to the frame.

    If it returns True, the bytes in front of the frame need not exist: the metadata values are set directly.
    """
    match program.states["start"].body:
        case (ir.Extract(header, None), ir.Advance(ir.Const(value=bits)), *_):
            return bits == 8 * (front_bytes(program) - _HEADER) and is_told(header, "ingress")
    return False


def takes_front(program: ir.Program) -> bool:
    """Return True if the egress parser first extracts the intrinsic metadata.

    If it returns True, the metadata need not exist as bytes: the values are set directly.
    """
    match program.egress_states["start"].body:
        case (ir.Extract(header, None), *_):
            return is_told(header, "egress")
    return False


def is_told(header: ir.Expr, gress: str) -> bool:
    """Return True if a header is the intrinsic metadata in front of a packet in `gress` (ingress, egress)."""
    match header:
        case ir.Member(base=ir.Var(name="standard_metadata"), field=field):
            return field == gress
    return False


def egress_header(program: ir.Program) -> ir.Header:
    """Return the type of the intrinsic metadata header in front of a packet in egress."""
    found = dict(program.standard_metadata.fields)["egress"]
    assert isinstance(found, ir.Header)
    return found


def behind_bytes(program: ir.Program) -> int:
    """Return the size of `egress_header` in bytes."""
    bits = sum(type_.width for _, type_ in egress_header(program).fields if isinstance(type_, ir.Bits))
    return (bits + 7) // 8


def error_numbers(program: ir.Program) -> list[int]:
    """Return the value of ``parser_err`` for each of the program's errors."""
    return [_ERRORS.get(name, _OTHER_ERROR) for name in program.errors.members]


def reads_parser_error(program: ir.Program) -> bool:
    """Return True if ingress reads ``parser_err``. If it does not, packets with parser errors are dropped."""
    looked_at = (
        program.ingress,
        program.ingress_deparser,
        tuple(program.actions.values()),
        tuple(program.tables.values()),
    )
    return any(
        isinstance(node, ir.Member)
        and node.field == "parser_err"
        and isinstance(node.base, ir.Member)
        and node.base.field == INGRESS_PARSER[1]
        for node in nodes(looked_at)
    )
