"""By what packets can be divided among threads: the slot that is derived is the index that packets meet."""

from __future__ import annotations

from random import Random

import pytest

from softswitch.compiler import compile_source, ir
from softswitch.compiler.slots import FoundSlots, OneThread, SlotFlows, find_slots
from softswitch.engine.build import FLAGS, build_c
from softswitch.engine.compiled import CompiledPipeline
from softswitch.engine.emit_c import emit_c
from softswitch.engine.interpreter import interpreter
from softswitch.engine.trace import Event
from tests.programs import p4src_program
from tests.softswitch.differential import test_aggregation as aggregation
from tests.softswitch.differential.script import parse_entry
from tests.softswitch.differential.traffic import Bench
from tests.softswitch.differential.trial import source as random_source
from tests.softswitch.lowering import lowered, source
from tests.softswitch.tofino.programs import program as tofino_program

QUICK = tuple("-O0" if flag == "-O3" else flag for flag in FLAGS)
JOB, CHANGE = "InaIngress.admission.job", "InaIngress.aggregator.addressing.change"
REGISTER = "register<bit<32>>(64) r; register<bit<8>>(64) q; bit<32> x; bit<8> y;"
GUARDED = "if (hdr.h.isValid()) {{ {0} }}"
READ = "r.read(x, {0}); r.write({0}, x + 1);"


class Watched:
    """A program compiled and interpreted: the slot of each packet beside the indices that it meets."""

    def __init__(self, program: ir.Program) -> None:
        self.compiled = CompiledPipeline(program, build_c(emit_c(program), flags=QUICK))
        self.met: set[int] = set()
        self.oracle = interpreter(program, trace=self._note)
        self.bench = Bench(self.oracle)

    def insert(self, *lines: str) -> None:
        for line in lines:
            for pipeline in (self.compiled, self.oracle):
                pipeline.insert(*parse_entry(pipeline.program, line))

    def send(self, frame: bytes, port: int) -> tuple[int | None, set[int]]:
        """Return the slot by the compiled program, and what registers the interpreter indexed by."""
        self.met.clear()
        slot = self.compiled.slot(frame, port)
        self.bench.send(frame, port)
        return slot, set(self.met)

    def _note(self, event: Event) -> None:
        if event.kind in ("read", "write"):
            index = event.details["index"]
            assert isinstance(index, int)
            self.met.add(index)


@pytest.mark.parametrize(
    ("name", "fields", "empty"),
    [
        ("exclusive", ("ina.job", "ina.psn"), ()),
        ("shared", ("ina.job", "ina.psn"), (CHANGE,)),
        ("atp", ("ina.job", "ina.priority", "ina.psn"), (CHANGE,)),
    ],
)
def test_the_slot_of_our_programs(name: str, fields: tuple[str, ...], empty: tuple[str, ...]) -> None:
    """A job's entry says where its PSNs lie. While a job moves, registers say that, too."""
    found = find_slots(p4src_program(name, LANES=32))
    assert isinstance(found, FoundSlots)
    assert (found.fields, found.tables, found.empty) == (fields, (JOB,), empty)
    assert found.guarded, "packets that are none of ours meet no register"


@pytest.mark.parametrize("name", ["exclusive", "shared", "atp"])
def test_packets_of_our_programs_meet_the_slot_that_is_foretold(name: str) -> None:
    watched = Watched(p4src_program(name, LANES=32))
    watched.insert(*aggregation.ENTRIES)
    random, met, without = Random(5), 0, 0
    for number in range(400):
        if number % 10:
            frame, port = aggregation.aggregation(random, 32, number // 4)
        else:
            frame, port = aggregation.ordinary(random), 1
        if number % 23 == 0:
            frame = frame[: random.randrange(len(frame))]
        slot, indices = watched.send(frame, port)
        assert indices <= {slot}, frame.hex()
        met += bool(indices)
        without += slot is None
    assert met > 100
    assert without > 20


@pytest.mark.parametrize(
    ("apply", "guarded"),
    [
        (GUARDED.format(READ.format("(bit<32>)hdr.h.a")), True),
        (READ.format("(bit<32>)hdr.h.a"), False),
        (READ.format("(bit<32>)(hdr.h.a[5:2] ++ hdr.h.b[7:7])"), False),
        (READ.format("(bit<32>)standard_metadata.ingress_port"), True),
        ("meta.w = hdr.h.a < 7 ? 32w3 : (bit<32>)hdr.h.b; " + READ.format("meta.w"), False),
        ("if (hdr.h.a == 1) { meta.w = 5; } else if (hdr.h.b == 2) { meta.w = 9; }"
         + READ.format("meta.w"), False),
        ("switch (hdr.h.a) { 1: { meta.w = 4; } 2: { meta.w = (bit<32>)hdr.h.c; } default: { meta.w = 8; } }"
         + READ.format("meta.w"), False),
        ("hash(meta.w, HashAlgorithm.crc32, 32w0, { hdr.h.a, hdr.h.b }, 32w64);"
         + READ.format("meta.w"), False),
        # what another register holds may be written, as long as no index depends on it
        ("q.read(y, (bit<32>)hdr.h.a); hdr.h.b = y;" + READ.format("(bit<32>)hdr.h.a"), False),
        # what is changed after it was read, and the other way round
        ("meta.w = (bit<32>)hdr.h.a; hdr.h.a = 77;" + READ.format("meta.w"), False),
        # a copy of a whole header
        ("hdr.g = hdr.h;" + READ.format("(bit<32>)hdr.g.c"), False),
        # an access that an index of its own guards, and one that is more general
        ("if (hdr.h.a > 3) { meta.w = (bit<32>)hdr.h.b; " + READ.format("meta.w") + "}"
         + READ.format("meta.w"), False),
    ],
)  # fmt: skip
def test_the_slot_is_the_index_that_registers_are_met_at(apply: str, guarded: bool) -> None:
    program = lowered(apply, locals=REGISTER)
    found = find_slots(program)
    assert isinstance(found, FoundSlots)
    assert found.guarded == guarded
    assert not found.empty
    watched, random, met = Watched(program), Random(1), 0
    for _ in range(150):
        frame = bytes(
            random.choice((0, 1, 2, 3, 9, 200, 255)) for _ in range(random.choice((0, 3, 4, 4, 4, 7)))
        )
        slot, indices = watched.send(frame, random.choice((0, 1, 5)))
        assert indices <= {slot}, frame.hex()
        met += bool(indices)
    assert met > 50


TABLES = """
    action place(bit<32> base, bit<8> more) { meta.w = base + (bit<32>)more; }
    action aside() { meta.w = 63; }
    table exactly { key = { hdr.h.a: exact; } actions = { place; aside; } default_action = aside; }
    table prefixes { key = { hdr.h.a: lpm; } actions = { place; aside; } default_action = place(7, 1); }
    table masks {
        key = { hdr.h.a: ternary; hdr.h.b: range; } actions = { place; aside; } default_action = aside;
    }
    table plain { actions = { place; aside; } default_action = place(9, 2); }
    table fixed {
        key = { hdr.h.a: ternary; } actions = { place; aside; }
        const entries = { 1 &&& 3: place(4, 5); 2: aside(); }
        default_action = place(30, 3);
    }
"""


@pytest.mark.parametrize(
    ("table", "entries"),
    [
        ("exactly", ("exactly 1 => place(10, 2)", "exactly 2 => aside()", "exactly 3 => place(20, 0)")),
        ("prefixes", ("prefixes 0/7 => place(10, 2)", "prefixes 0x80/1 => place(40, 1)")),
        ("masks", ("masks prio=5 1&&&1 0..9 => place(10, 2)", "masks prio=9 2&&&2 0..255 => place(50, 2)")),
        ("plain", ()),
        ("fixed", ()),
    ],
)
def test_the_entry_that_a_packet_hits_says_its_slot(table: str, entries: tuple[str, ...]) -> None:
    program = lowered(f"{table}.apply();" + READ.format("meta.w"), locals=REGISTER + TABLES)
    found = find_slots(program)
    assert isinstance(found, FoundSlots)
    assert found.tables == (f"C.{table}",)
    watched, random, seen = Watched(program), Random(2), set()
    watched.insert(*entries)
    for number in range(200):
        if number == 100 and table != "fixed":
            for pipeline in (watched.compiled, watched.oracle):
                pipeline.set_default(f"C.{table}", ir.Invocation("C.place", (33, 4)))
        frame = bytes(random.choice((0, 1, 2, 3, 9, 200)) for _ in range(4))
        slot, indices = watched.send(frame, 1)
        assert indices == {slot}, frame.hex()
        seen |= indices
    assert len(seen) >= 2 + (table not in ("plain",))


HIT = "action go() {{ {0} }} table t {{ key = {{ hdr.h.b: exact; }} actions = {{ go; NoAction; }} {1} }}"
CONST = "const default_action = NoAction;"


def test_a_table_behind_which_registers_decide_has_to_be_empty() -> None:
    """As `change` of shared.p4: while it has entries, all packets belong to one thread."""
    decides = HIT.format("q.read(y, (bit<32>)hdr.h.c); meta.w = (bit<32>)y;", CONST)
    apply = "meta.w = (bit<32>)hdr.h.a; t.apply();" + READ.format("meta.w")
    program = lowered(apply, locals=REGISTER + decides)
    found = find_slots(program)
    assert isinstance(found, FoundSlots)
    assert found.empty == ("C.t",)
    assert found.fields == ("h.a",)
    assert CompiledPipeline(program, build_c(emit_c(program), flags=QUICK)).one_thread is None
    other = find_slots(lowered(apply, locals=REGISTER + decides.replace(CONST, "default_action = NoAction;")))
    assert isinstance(other, OneThread), "a default action that may become another one"


def test_programs_that_keep_nothing_need_no_slot() -> None:
    program = lowered("standard_metadata.egress_spec = 3;")
    assert find_slots(program) == SlotFlows()
    compiled = CompiledPipeline(program, build_c(emit_c(program), flags=QUICK))
    assert compiled.one_thread is None
    assert compiled.slot(bytes(64), 0) is None


@pytest.mark.parametrize(
    ("why", "parts"),
    [
        ("is the same for all packets", {"apply": READ.format("5")}),
        ("have different indices", {"apply": "r.read(x, (bit<32>)hdr.h.a); q.read(y, (bit<32>)hdr.h.b);"}),
        ("depends on what C.q holds", {"apply": "q.read(y, (bit<32>)hdr.h.a); r.read(x, (bit<32>)y);"}),
        ("depends on random", {"apply": "random(meta.w, 32w0, 32w9);" + READ.format("meta.w")}),
        ("standard_metadata.packet_length", {"apply": READ.format("standard_metadata.packet_length")}),
        ("an element of a header stack", {"apply": READ.format("(bit<32>)hdr.s[0].a")}),
        ("pass ingress twice: resubmit", {
            "apply": READ.format("(bit<32>)hdr.h.a") + "resubmit_preserving_field_list(8w0);",
        }),
        ("loop", {"apply": "for (bit<8> i = 0; i < 3; i = i + 1) { meta.x = i; }" + READ.format("meta.w")}),
        ("takes what has no constant length", {
            "apply": READ.format("(bit<32>)hdr.h.a"),
            "parser": "state start { packet.advance(8); packet.extract(hdr.h); transition accept; }",
        }),
        ("may stop in front of them", {
            "apply": READ.format("(bit<32>)hdr.h.a"),
            "parser": """state start { packet.extract(hdr.g); verify(hdr.g.a == 1, error.NoMatch);
                         packet.extract(hdr.h); transition accept; }""",
        }),
        ("depends on hdr.h.a", {
            "apply": READ.format("(bit<32>)hdr.h.a"),
            "parser": "state start { packet.extract(hdr.h); hdr.h.a = hdr.h.b; transition accept; }",
        }),
        ("decides by more than fields that it has taken", {
            "apply": READ.format("(bit<32>)hdr.h.a"),
            "parser": """state start { packet.extract(hdr.g); hdr.g.a = hdr.g.b;
                         transition select(hdr.g.a) { 1: more; default: accept; } }
                         state more { packet.extract(hdr.h); transition accept; }""",
        }),
        ("direct meter", {
            "apply": "t.apply();",
            "locals": "direct_meter<bit<32>>(MeterType.bytes) m; bit<32> x; "
            "action go() { m.read(x); } table t { key = { hdr.h.b: exact; } actions = { go; } meters = m; }",
        }),
    ],
)  # fmt: skip
def test_programs_for_one_thread_say_why(why: str, parts: dict[str, str]) -> None:
    program = lowered(**{"locals": REGISTER, **parts})
    found = find_slots(program)
    assert isinstance(found, OneThread)
    assert why in found.why
    assert CompiledPipeline(program, build_c(emit_c(program), flags=QUICK)).one_thread == found.why


@pytest.mark.parametrize("guard", ["{0}", GUARDED])
def test_a_header_is_taken_also_where_the_next_one_of_its_state_does_not_fit(guard: str) -> None:
    parser = "state start { packet.extract(hdr.h); packet.extract(hdr.g); transition accept; }"
    program = lowered(guard.format(READ.format("(bit<32>)hdr.h.a")), locals=REGISTER, parser=parser)
    watched = Watched(program)
    for frame in (bytes((7, 0, 0)), bytes((7, 0, 0, 0)), bytes((7, 0, 0, 0, 0)), bytes((7,)) * 8):
        slot, indices = watched.send(frame, 1)
        assert indices <= {slot}, frame
        assert 7 in indices or len(frame) < 4


def test_programs_for_tofino_run_on_one_thread() -> None:
    program = tofino_program()
    assert find_slots(program) == OneThread("programs for Tofino are not divided")


def test_registers_of_egress_keep_a_program_on_one_thread() -> None:
    text = source(egress="bit<8> y; q.read(y, (bit<32>)hdr.h.a);")
    head, control, body = text.partition("control E(")
    body = body.replace("apply {", "register<bit<8>>(64) q; apply {", 1)
    found = find_slots(compile_source(head + control + body, name="egress.p4"))
    assert isinstance(found, OneThread)
    assert "E.q is used in egress" in found.why


@pytest.mark.parametrize("seed", range(1, 13))
def test_any_program_gets_an_answer(seed: int) -> None:
    """Random programs use registers in egress, or pass ingress twice."""
    program = compile_source(random_source(seed), name=f"seed{seed}.p4")
    assert isinstance(find_slots(program), OneThread)


def test_parsers_are_followed_by_the_tests_that_they_make() -> None:
    parser = """state start { packet.extract(hdr.g); transition select(hdr.g.a, hdr.g.b[3:0]) {
                    (1, _): near; (2 &&& 6, 1..4): far; default: accept; } }
                state near { packet.extract(hdr.h); transition accept; }
                state far { transition far2; }
                state far2 { packet.extract(hdr.s[0]); packet.extract(hdr.h); transition accept; }"""
    parser = parser.replace("packet.extract(hdr.s[0]);", "")
    program = lowered(GUARDED.format(READ.format("(bit<32>)hdr.h.a")), locals=REGISTER, parser=parser)
    assert isinstance(find_slots(program), FoundSlots)
    watched, random, met = Watched(program), Random(3), 0
    for _ in range(300):
        frame = bytes(random.choice((0, 1, 2, 3, 9, 200, 255)) for _ in range(random.choice((4, 7, 8, 12))))
        slot, indices = watched.send(frame, 1)
        assert indices <= {slot}, frame.hex()
        assert (slot is None) == (not indices)
        met += bool(indices)
    assert met > 30
