"""Tables that decide alike, one after the other: compiled to one decision where that makes no difference."""

from __future__ import annotations

import re

import pytest

from softswitch.engine.emit_c.program import emit_c
from tests.softswitch.differential.compare import Pair
from tests.softswitch.differential.traffic import Sent

from .tofino.programs import frame, program

REGISTERS = "".join(f"Register<bit<16>, bit<1>>(2) r{i};" for i in range(3)) + "".join(
    f"""RegisterAction<bit<16>, bit<1>, bit<16>>(r{i}) add_{i} = {{
        void apply(inout bit<16> cell, out bit<16> result) {{ cell = cell + {i + 1}; result = cell; }} }};
    action count_{i}() {{ meta.counted = meta.counted + add_{i}.execute(0); }}
    action keep_{i}() {{ meta.kept = meta.kept + {1 << i}; }}
    """
    for i in range(3)
)
TABLE = """table t{0} {{
    key = {{ {1}: ternary; }}
    actions = {{ count_{0}; keep_{0}; NoAction; }}
    const default_action = {3};
    const entries = {{ {2} }}
}}"""
ROWS = "1: count_{0}(); 2 &&& 3: keep_{0}();"
METADATA = "bit<16> counted; bit<16> kept;"
TELL = "hdr.ethernet.src = meta.kept ++ meta.counted ++ 16w0; tm.ucast_egress_port = 2;"


def joined(*tables: str) -> tuple[Pair, str]:
    """Return a program with these tables, and what its ingress is as C."""
    source = program(
        metadata=METADATA,
        ingress_start="packet.extract(hdr.ethernet); meta = {...}; transition accept;",
        ingress_locals=REGISTERS + "".join(tables),
        ingress="".join(f"t{i}.apply();" for i in range(len(tables))) + TELL,
    )
    text = re.search(r"void run_ingress\(.*?\n}", emit_c(source), re.DOTALL)
    assert text is not None
    return Pair(source), text[0]


def test_one_decision_for_all_of_them_runs_their_actions_in_order() -> None:
    tables = [TABLE.format(i, "hdr.ethernet.kind", ROWS.format(i), "NoAction") for i in range(3)]
    pair, ingress = joined(*tables)
    assert "apply_" not in ingress
    for kind, src in ((1, 6 << 16), (2, 7 << 32), (1, 12 << 16), (6, 7 << 32), (3, 0)):
        assert pair.send(frame(kind=kind), 1) == [Sent(2, frame(src=src, kind=kind))]
    pair.compare_state()


@pytest.mark.parametrize(
    ("second", "why"),
    [
        (("hdr.ethernet.kind", ROWS.format(1), "keep_1"), ""),
        (("hdr.ethernet.kind", "2: keep_1(); 1: count_1();", "NoAction"), "other rows"),
        (("hdr.ethernet.dst", ROWS.format(1), "NoAction"), "another key"),
        (("meta.kept", ROWS.format(1), "NoAction"), "a key that an action changes"),
    ],
    ids=["another default", "other rows", "another key", "a key that an action changes"],
)
def test_tables_that_may_decide_otherwise_are_applied(second: tuple[str, str, str], why: str) -> None:
    first = "meta.kept" if "changes" in why else "hdr.ethernet.kind"
    pair, ingress = joined(TABLE.format(0, first, ROWS.format(0), "keep_0"), TABLE.format(1, *second))
    assert ("apply_" in ingress) == bool(why)
    for kind in (1, 2, 6, 3, 1):
        pair.send(frame(kind=kind), 1)
    pair.compare_state()
