"""Writes the ingress of a program for Tofino as one for v1model, so that what it decides can be run.

Each ``execute`` of a register's action becomes a read, the action's body and a write. What only a chip has is
left out: its parser, its egress, its traffic manager's second group, and any order of stages.
"""

from __future__ import annotations

import re

from tests.p4.test_tna import CONTROL, TNA, blocks, text_of

HEAD = "#include <core.p4>\n#include <v1model.p4>\n"
TAIL = """
parser Arriving(packet_in packet, out tna_headers_t hdr, inout tna_metadata_t meta,
                inout standard_metadata_t intrinsic) {
    state start {
        packet.extract(hdr.ethernet);
        packet.extract(hdr.ipv4);
        packet.extract(hdr.udp);
        packet.extract(hdr.ina);
        transition select(hdr.ina.lanes) {
            LANES:   parse_lanes;
            default: accept;
        }
    }
    state parse_lanes {
        packet.extract(hdr.lanes);
        transition accept;
    }
}
control Unchecked(inout tna_headers_t hdr, inout tna_metadata_t meta) { apply {} }
control Leave(inout tna_headers_t hdr, inout tna_metadata_t meta,
              inout standard_metadata_t intrinsic) { apply {} }
control Departing(packet_out packet, in tna_headers_t hdr) { apply { packet.emit(hdr); } }
V1Switch(Arriving(), Unchecked(), Deciding(), Leave(), Unchecked(), Departing()) main;
"""
PARAMETERS = re.compile(r"in ingress_intrinsic_metadata_t intrinsic,[^)]*for_tm\)")
WORDS = {
    "intrinsic, for_deparser, for_tm)": "intrinsic)",
    "for_deparser.drop_ctl = 1;": "mark_to_drop(intrinsic);",
    "for_tm.ucast_egress_port": "intrinsic.egress_spec",
    "for_tm.mcast_grp_a": "intrinsic.mcast_grp",
    "for_tm.mcast_grp_b = GROUP_OF_SELF;": "meta.frees = 1;",
    "PortId_t": "bit<9>",
    "control Ingress(": "control Deciding(",
    "Hash<index_t>(HashAlgorithm_t.XOR16) addressing;": "",
    "addressing.get({ meta.position, meta.place })": "(meta.position ^ meta.place)",
    "Counter<bit<32>, bit<13>>(": "counter(",
    "CounterType_t.PACKETS": "CounterType.packets",
    "outcomes.count(meta.counter_row ++ (bit<5>)meta.outcome)": (
        "outcomes.count((bit<32>)(meta.counter_row ++ (bit<5>)meta.outcome))"
    ),
}
ACTION = (
    r"RegisterAction<(?P<kind>.+?), index_t, (?P<gives>.+?)>\((?P<register>\w+)\) (?P<name>\w+) = \{\s*"
    r"void apply\(inout \S+ (?P<value>\w+)(?:, out \S+ (?P<result>\w+))?\)\s*"
)


def as_v1model(program: str) -> str:
    """Return the text of ``p4src/tna/PROGRAM.p4`` for v1model."""
    whole = text_of(TNA / f"{program}.p4")
    text = "\n".join(
        (
            text_of(TNA / "include" / f"{program}_slot.p4"),
            text_of(TNA / "include" / "leaving.p4"),
            whole[whole.index("control Ingress(") : whole.index("Pipeline(Ingress")],
        )
    )
    text = PARAMETERS.sub("inout standard_metadata_t intrinsic)", text)
    for tofino, v1model in WORDS.items():
        text = text.replace(tofino, v1model)
    for _, body in blocks(text, CONTROL):
        text = text.replace(body, _with_reads_and_writes(body))
    return HEAD + text + TAIL


def _with_reads_and_writes(text: str) -> str:
    actions = [(match, body) for match, body in blocks(text, ACTION)]
    for match, body in actions:
        text = text.replace(match[0] + body + "}\n    };", "")
    for match, body in actions:
        call = re.compile(rf"(?:([\w.]+) = )?\b{match['name']}\.execute\(([\w.]+)\);")
        for found in list(call.finditer(text)):
            text = text.replace(found[0], _inline(match, body, found[1], found[2]))
    return re.sub(r"\bRegister<(.+?), index_t>\(SLOTS[^)]*\)", r"register<\1>(SLOTS)", text)


def _inline(action: re.Match[str], body: str, target: str | None, index: str) -> str:
    names = {action["value"]: f"{action['name']}_value", action["result"]: f"{action['name']}_result"}
    for old, new in names.items():
        if old:
            body = re.sub(rf"(?<![.\w]){old}\b(?!\()", new, body)
    body = re.sub(r"\bmax\((.+?), (.+?)\)", r"(\1 > \2 ? \1 : \2)", body)
    value, result, register = names[action["value"]], f"{action['name']}_result", action["register"]
    return (
        f"{action['kind']} {value}; {action['gives']} {result}; {register}.read({value}, (bit<32>){index});"
        f"{body} {register}.write((bit<32>){index}, {value}); " + (f"{target} = {result};" if target else "")
    )
