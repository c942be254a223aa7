"""What the compiled pipeline fetches for packets whose turn is yet to come, and that it changes nothing."""

from __future__ import annotations

import random
import re
from pathlib import Path

import pytest

import softswitch
from softswitch.compiler import ir
from softswitch.engine.emit_c.program import emit_c
from softswitch.engine.switch import Switch

PROGRAM = """
#include <core.p4>
#include <v1model.p4>
header first_t {{ bit<16> kind; bit<48> key; }}
header second_t {{ bit<32> address; }}
header long_t {{ {long} }}
struct headers_t {{ first_t first; second_t second; long_t long; second_t[2] stack; }}
struct metadata_t {{ bit<32> made; }}
parser P(packet_in packet, out headers_t hdr, inout metadata_t meta, inout standard_metadata_t sm) {{
    state start {{
        packet.extract(hdr.first);
        transition select(hdr.first.kind) {{ 1: second; 2: long; 3: stack; default: accept; }}
    }}
    state second {{ packet.extract(hdr.second); transition accept; }}
    state long {{ packet.extract(hdr.long); transition accept; }}
    state stack {{ packet.extract(hdr.stack.next); transition stack; }}
}}
control V(inout headers_t hdr, inout metadata_t meta) {{ apply {{ }} }}
control I(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t sm) {{
    action forward(bit<9> port) {{ sm.egress_spec = port; }}
    action drop() {{ mark_to_drop(sm); }}
    table t {{
        key = {{ {key}; }}
        actions = {{ forward; drop; }}
        default_action = drop();
        size = 1 << 20;
    }}
    apply {{ meta.made = hdr.second.address + 1; {apply} }}
}}
control D(packet_out packet, in headers_t hdr) {{ apply {{ packet.emit(hdr); }} }}
control E(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t sm) {{ apply {{ }} }}
V1Switch(P(), V(), I(), E(), V(), D()) main;
"""
LONG = " ".join(f"bit<32> word_{n};" for n in range(40))


def compiled(key: str, apply: str = "t.apply();") -> ir.Program:
    return softswitch.compile_source(PROGRAM.format(key=key, apply=apply, long=LONG), name="ahead.p4")


def ahead(program: ir.Program) -> str:
    """Return the C function that fetches, "" if there is none."""
    found = re.search(r"static void p4_ahead\(.*?\n}", emit_c(program), re.DOTALL)
    return found[0] if found else ""


@pytest.mark.parametrize(
    "key",
    [
        "hdr.first.key: exact",
        "hdr.second.address: lpm",
        "sm.ingress_port: exact",
        'hdr.first.kind ++ 8w1: exact @name("k")',
    ],
)
def test_entries_are_fetched_whose_keys_come_with_the_packet(key: str) -> None:
    assert ahead(compiled(key)).count("p4_fetch") == 1


@pytest.mark.parametrize(
    "key",
    [
        "meta.made: exact",
        "hdr.first.key: ternary",
        "hdr.long.word_3: exact",
        "hdr.stack[1].address: exact",
        "sm.egress_spec: exact",
    ],
)
def test_nothing_is_fetched_where_the_key_is_made_later_or_dear_to_find(key: str) -> None:
    assert ahead(compiled(key)) == ""


def test_conditions_that_come_with_the_packet_decide_what_is_fetched() -> None:
    text = ahead(
        compiled("hdr.first.key: exact", "if (hdr.second.isValid()) { drop(); } else { t.apply(); }")
    )
    assert re.search(r"if \(p->valid.hdr_second\) \{\s*}\s*else \{.*p4_fetch", text, re.DOTALL)
    text = ahead(compiled("hdr.first.key: exact", "if (meta.made == 2) { drop(); } else { t.apply(); }"))
    assert "p4_fetch" in text
    assert "made" not in text


def test_programs_that_aggregate_fetch_by_the_job_of_a_packet() -> None:
    source = Path(__file__).parents[2] / "p4src" / "exclusive.p4"
    program = softswitch.compile_file(source, defines={"LANES": "32"})
    assert "p4_fetch" in ahead(program)


def test_frames_are_forwarded_by_large_tables_as_by_small_ones() -> None:
    """Frames that wait are parsed twice, also those that are too short, and those whose parser never ends."""
    program = compiled("hdr.first.key: exact")
    pipeline = softswitch.load(program, backend="compiled")
    for number in range(20_000):
        entry = ir.ConstEntry(
            (ir.Pattern("exact", 3 * number),), ir.Invocation("I.forward", (1 + number % 2,)), 0
        )
        pipeline.insert("I.t", entry)
    rng = random.Random(4)
    frames = []
    for _ in range(500):
        key, kind = rng.randrange(61_000), rng.choice((0, 1, 2, 3))
        frame = kind.to_bytes(2, "big") + key.to_bytes(6, "big") + bytes(rng.randrange(300))
        frames.append(frame[: rng.choice((len(frame), rng.randrange(1, 9)))])
    with Switch({port: softswitch.parse_port("memory") for port in range(3)}) as switch:
        switch.load(pipeline)
        switch.inject(0, frames, now_us=0)
        got = {port: switch.drain(port) for port in (1, 2)}
    expected: dict[int, list[bytes]] = {1: [], 2: []}
    for frame in frames:
        _, verdict = pipeline.ingress(frame, 0)
        if not verdict.dropped:
            expected[verdict.egress_spec].append(frame)
    assert got == expected
    assert all(map(len, got.values()))
