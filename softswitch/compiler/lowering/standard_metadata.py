"""The fields of ``standard_metadata_t`` that the target sets and reads.

A copy of v1model.p4 may have them in another order, and more of them; the target knows them by name.
"""

from __future__ import annotations

from softswitch.compiler import ir
from softswitch.compiler.errors import Unsupported
from softswitch.compiler.lowering import types as t
from softswitch.compiler.lowering.scope import TypeName
from softswitch.compiler.lowering.unit import Unit

NAME = "standard_metadata_t"
_WIDTHS = {
    "ingress_port": 9,
    "egress_spec": 9,
    "egress_port": 9,
    "instance_type": 32,
    "packet_length": 32,
    "enq_timestamp": 32,
    "enq_qdepth": 19,
    "deq_timedelta": 32,
    "deq_qdepth": 19,
    "ingress_global_timestamp": 48,
    "egress_global_timestamp": 48,
    "mcast_grp": 16,
    "egress_rid": 16,
    "checksum_error": 1,
    "priority": 3,
}


def standard_metadata(unit: Unit, pos: ir.Position) -> t.StructType:
    """Return the program's ``standard_metadata_t``. Raises CompileError, Unsupported if it does not serve."""
    found = unit.globals.lookup(NAME, pos)
    if not isinstance(found, TypeName) or not isinstance(found.type, t.StructType):
        raise Unsupported(f"a {NAME} that is no struct", found.pos, "v1model.p4 as it comes")
    has = dict(found.type.ir.fields)
    needed: dict[str, ir.Bits | ir.Enum] = {name: ir.Bits(width) for name, width in _WIDTHS.items()}
    for name, wanted in {**needed, "parser_error": unit.errors}.items():
        if name not in has:
            what = f"a {NAME} without {name!r}"
        elif has[name] != wanted:
            what = f"a {NAME} whose {name!r} is {t.describe(found.type.fields[name])}"
        else:
            continue
        raise Unsupported(what, found.pos, f"{t.describe(wanted)} {name}, as in v1model.p4")
    return found.type
