"""Programs of p4src, compiled once for all test processes, and copies as researchers make them."""

from __future__ import annotations

import shutil
from pathlib import Path

from softswitch.compiler import ir
from softswitch.engine.cache import compile_once, preprocess_once

# --------------------------------------------------------------------- programs, compiled once for al


P4SRC = Path(__file__).parents[1] / "p4src"


def p4src_program(name: str, **defines: object) -> ir.Program:
    """Return a program of p4src, such as shared, compiled with definitions such as ``LANES=32``."""
    return program_of(P4SRC / f"{name}.p4", **defines)


def program_of(path: Path, **defines: object) -> ir.Program:
    """Return the program of a file, compiled with these definitions."""
    text = preprocess_once(path, defines={key: str(value) for key, value in defines.items()})
    return compile_once(text, name=str(path))


# --------------------------------------------------------------------- programs as researchers make t


Edit = tuple[str, str, str]
"""A file, a text that it has once, and what is to stand there instead."""

COUNTER: Edit = (
    "include/pipeline.p4",
    "            count(meta.outcome);\n            reply",
    "            ways.count((bit<32>)meta.way);\n            count(meta.outcome);\n            reply",
)
DECLARED: Edit = (
    "include/pipeline.p4",
    "    Admission() admission;\n",
    "    counter(5, CounterType.packets_and_bytes) ways;\n"
    "    register<bit<32>>(4) last_psn;\n"
    "    Admission() admission;\n",
)
"""Packets, and bytes, by where they go: one of four ways, so that the last cell stays zero."""
TABLE: tuple[Edit, ...] = (
    (
        "include/marking.p4",
        "    apply {\n",
        "    direct_counter(CounterType.packets) seen;\n"
        "    action note() { seen.count(); }\n"
        "    table watched {\n"
        "        key = { hdr.ina.job: exact; }\n"
        "        actions = { note; }\n"
        "        default_action = note;\n"
        "        counters = seen;\n"
        "    }\n\n"
        "    apply {\n        watched.apply();\n",
    ),
)
EVICTION: Edit = (
    "include/eviction.p4",
    "ina.priority > slot.priority ? 1w1",
    "ina.job != slot.job ? 1w1",
)
"""Whoever comes takes another job's slot."""
REGISTER: Edit = (
    "include/pipeline.p4",
    "            ways.count",
    "            last_psn.write((bit<32>)meta.way, hdr.ina.psn);\n            ways.count",
)
WITHOUT_PRIORITY: Edit = (
    "include/shared_aggregator.p4",
    "    register<bit<8>>(SLOTS)  slot_priority;\n",
    '    @name("slot_rank") register<bit<8>>(SLOTS)  slot_priority;\n',
)
WITHOUT_UPLINK: Edit = ("include/uplink.p4", "    table uplink {", '    @name("way_up") table uplink {')
COUNTING = (DECLARED, COUNTER, REGISTER, *TABLE)


def copied(folder: Path, *edits: Edit) -> Path:
    """Return a folder with the programs of p4src and their includes, edited."""
    folder.mkdir(parents=True, exist_ok=True)
    for path in P4SRC.glob("*.p4"):
        shutil.copy(path, folder)
    shutil.copytree(P4SRC / "include", folder / "include", dirs_exist_ok=True)
    for name, old, new in edits:
        text = (folder / name).read_text()
        assert text.count(old) == 1, f"{name} has {text.count(old)} of {old!r}"
        (folder / name).write_text(text.replace(old, new))
    return folder


def with_ingress(body: str) -> str:
    """Return a program that parses nothing and has nothing but this in its ingress."""
    return f"""
#include <core.p4>
#include <v1model.p4>
struct headers_t {{}}
struct metadata_t {{}}
parser P(packet_in p, out headers_t h, inout metadata_t m, inout standard_metadata_t s) {{
    state start {{ transition accept; }}
}}
control C(inout headers_t h, inout metadata_t m) {{ apply {{}} }}
control I(inout headers_t h, inout metadata_t m, inout standard_metadata_t s) {{
{body}
}}
control E(inout headers_t h, inout metadata_t m, inout standard_metadata_t s) {{ apply {{}} }}
control D(packet_out p, in headers_t h) {{ apply {{}} }}
V1Switch(P(), C(), I(), E(), C(), D()) main;
"""
