"""Undefined behaviour: what the checker finds and what it does not, and what each choice makes of it."""

import random
from itertools import count
from pathlib import Path

import pytest

from softswitch.compiler import Choice, compile_source, find_undefined
from softswitch.engine.build import load
from softswitch.engine.pipeline import Copy
from tests.softswitch.lowering import marked, source

P4SRC = Path(__file__).parents[2] / "p4src"
REGISTER = "register<bit<8>>(16) r;"
ACTIONS = "action a1() {} action a2(bit<8> v) { meta.x = v; }"
TABLE = f"{ACTIONS} table t {{ key = {{ @@; }} actions = {{ a1; a2; }} default_action = a1; }}"
INVALID = "may be invalid"
UNSET = "nothing has set"
BEYOND = "cells, and the index"


def findings(folder: Path, text: str) -> list[tuple[int, int, str]]:
    file = folder / "t.p4"
    file.write_text(text)
    return [(it.pos.line, it.pos.column, it.message) for it in find_undefined(file)]


@pytest.mark.parametrize("name", ["exclusive", "shared", "atp"])
def test_our_programs_depend_on_nothing_undefined(name: str) -> None:
    assert find_undefined(P4SRC / f"{name}.p4", defines={"LANES": "32"}) == []


@pytest.mark.parametrize(
    ("parts", "message"),
    [
        ({"apply": "meta.x = hdr.g.@@a;"}, INVALID),
        ({"apply": "if (!hdr.g.isValid()) { meta.x = hdr.g.@@a; }"}, INVALID),
        ({"apply": "if (hdr.h.isValid() || hdr.g.@@a == 1) { meta.x = 1; }"}, INVALID),
        ({"apply": "if (hdr.h.isValid()) { hdr.h.setInvalid(); meta.x = hdr.h.@@a; }"}, INVALID),
        ({"apply": "meta.x = hdr.h.@@a;"}, INVALID),  # the packet may have been too short
        ({"locals": TABLE.replace("@@", "hdr.g.@@a: ternary"), "apply": "t.apply();"}, INVALID),
        ({"egress": "meta.x = hdr.g.@@a;"}, INVALID),
        (
            {
                "parser": "state start { packet.extract(hdr.h); transition select(hdr.g.@@a) "
                "{ 1: reject; default: accept; } }"
            },
            INVALID,
        ),
        ({"apply": "bit<8> v; meta.x = @@v + 1;"}, UNSET),
        ({"apply": "bit<8> v; if (meta.y == 3) { v = 1; } meta.y = 4; meta.x = @@v + 1;"}, UNSET),
        ({"apply": "bit<8> v; bit<8> w; w = v; meta.x = @@w + 1;"}, UNSET),  # a copy is no use, but tells on
        ({"apply": "bit<8> v; if (hdr.h.isValid() && hdr.h.a == 1) { v = 1; } meta.x = @@v + 1;"}, UNSET),
        ({"declarations": "control X(out bit<8> o) { apply { } }", "locals": "X() x;",
          "apply": "bit<8> v; x.apply(v); meta.x = @@v + 1;"}, UNSET),
        ({"apply": "@@hdr.g.setValid(); hdr.g.a = 1; hdr.g.b = 1; hdr.g.c = 1;"}, UNSET),
        ({"locals": REGISTER, "apply": "if (hdr.h.isValid()) r.@@read(meta.x, (bit<32>)hdr.h.a);"}, BEYOND),
        ({"locals": REGISTER, "apply": "r.@@read(meta.x, 16);"}, BEYOND),
        ({"apply": "if (hdr.h.isValid()) { hdr.s@@[hdr.h.a].a = 1; }"}, BEYOND),
    ],
)  # fmt: skip
def test_what_a_program_depends_on_is_found(tmp_path: Path, parts: dict[str, str], message: str) -> None:
    text = source(**parts)
    plain, line, _ = marked(text)
    found = findings(tmp_path, plain)
    assert [one[0] for one in found] == [line], found
    assert message in found[0][2]


@pytest.mark.parametrize(
    "parts",
    [
        {"apply": "if (hdr.g.isValid()) { meta.x = hdr.g.a; }"},
        {"apply": "if (hdr.g.isValid() && hdr.g.a == 1) { meta.x = 1; }"},
        {"apply": "if (!hdr.g.isValid() || hdr.g.a == 1) { meta.x = 1; }"},
        {"apply": "meta.x = hdr.h.isValid() ? hdr.h.a : 0;"},
        {"apply": "if (standard_metadata.parser_error == error.NoError) { meta.x = hdr.h.a; }"},
        {"apply": "meta.t = hdr.g.isValid(); if (!hdr.g.isValid()) { return; } meta.x = hdr.g.a;"},
        {"apply": "bit<8> v; if (meta.w == 0) { v = 1; } else { v = 2; } meta.x = v + 1;"},
        {"apply": "bit<8> v; bit<8> w; w = v;"},
        {"apply": "hdr.g.setValid(); hdr.g = { 1, 2, 3, 4 };"},
        {"locals": REGISTER, "apply": "if (hdr.h.isValid()) { r.read(meta.x, (bit<32>)hdr.h.a[3:0]); }"},
        {"locals": REGISTER, "apply": "if (hdr.h.isValid()) { r.read(meta.x, (bit<32>)hdr.h.a & 15); }"},
        {"locals": REGISTER,
         "apply": "if (hdr.h.isValid() && hdr.h.a < 16) { r.read(meta.x, (bit<32>)hdr.h.a); }"},
        {"locals": REGISTER + TABLE.replace("@@", "meta.y: exact"),  # the control plane's is trusted
         "apply": "t.apply(); r.read(meta.x, (bit<32>)meta.x);"},
        {"parser": "state start { packet.extract(hdr.h); transition select(hdr.h.a) "
                   "{ 1: more; default: accept; } } state more { packet.extract(hdr.g); transition accept; }",
         "apply": "if (hdr.g.isValid()) { meta.x = hdr.h.a; }"},  # one header implies another
        {"parser": "state start { packet.extract(hdr.h); transition select(hdr.h.a) "
                   "{ 1: more; default: accept; } } state more { packet.extract(hdr.g); transition accept; }",
         "apply": "if (hdr.h.isValid() && hdr.h.a == 1 && standard_metadata.parser_error == error.NoError) "
                  "{ meta.x = hdr.g.a; }"},
        {"parser": "state start { packet.extract(hdr.s.next); transition select(hdr.s.last.a) "
                   "{ 1: start; default: accept; } }",
         "apply": "if (hdr.s[1].isValid()) { meta.x = hdr.s[0].a; }"},
        {"apply": "for (bit<8> i = 0; i < 3; i = i + 1) { if (hdr.s[i].isValid()) { meta.x = i; } }"},
    ],
)  # fmt: skip
def test_what_is_sure_is_not_found(tmp_path: Path, parts: dict[str, str]) -> None:
    assert findings(tmp_path, source(**parts)) == []


APPLY = """
    bit<8> v;
    meta.y = hdr.g.a;                       // b: a field of an invalid header
    hdr.h.b = meta.y;
    hdr.h.c = v;                            // c: what nothing has set
    bit<8> w = 7;
    r.read(w, (bit<32>)hdr.h.a);            // d: a register beyond its end
    hdr.h.d = w;
    hdr.g.b = 5;
    hdr.g.setValid();                       // its fields, that of them that was written before, too
    t.apply();
"""
OWN_KEY = TABLE.replace("@@", "hdr.s[0].a: exact").replace("a1; a2; } default", "a1; a2; } size = 4; default")


def outputs(choice: Choice | None, backend: str, frames: list[bytes]) -> list[bytes | None]:
    program = compile_source(source(APPLY, locals=REGISTER + OWN_KEY), name="t.p4", undefined=choice)
    pipeline = load(program, backend=backend, seed=3)  # type: ignore[arg-type]
    left = []
    for frame, now_us in zip(frames, count(), strict=False):
        packet, _ = pipeline.ingress(frame, 1, now_us)
        left.append(pipeline.egress(packet, Copy(egress_port=1))[0])
    return left


@pytest.mark.parametrize(
    ("choice", "expected"),
    [
        (None, "c8 00 00 00 00 05 00 00"),
        (Choice.ZERO, "c8 00 00 00 00 00 00 00"),
        (Choice.BMV2, "c8 00 00 07 00 05 00 00"),
    ],
)
def test_each_choice_is_as_it_says(choice: Choice | None, expected: str) -> None:
    frame = bytes.fromhex("c8010203")
    assert outputs(choice, "interpreter", [frame]) == [bytes.fromhex(expected)]


@pytest.mark.parametrize("choice", list(Choice))
def test_both_back_ends_choose_alike(choice: Choice) -> None:
    rng = random.Random(5)
    frames = [rng.randbytes(rng.randrange(2, 12)) for _ in range(40)]
    assert outputs(choice, "compiled", frames) == outputs(choice, "interpreter", frames)


def test_random_values_differ_from_packet_to_packet() -> None:
    left = outputs(Choice.RANDOM, "interpreter", [bytes.fromhex("c8010203")] * 8)
    columns = list(zip(*(frame for frame in left if frame is not None), strict=True))
    assert {column[0] for column in columns[:1]} == {0xC8}
    assert all(len(set(column)) > 1 for column in columns[1:])
