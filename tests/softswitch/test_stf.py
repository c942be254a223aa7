"""The STF language, and how scripts fail: each test is about one way."""

from pathlib import Path
from typing import Literal

import pytest

from softswitch.compiler import compile_file, compile_source, ir
from softswitch.stf import Event, Report, ScriptError, parse_script, run_script
from softswitch.stf.script import Add, Command, Expect, Operand, Packet
from tests.softswitch.lowering import source

PROGRAM = Path(__file__).parents[1] / "p4" / "basic_tables" / "program.p4"


@pytest.fixture(scope="module")
def program() -> ir.Program:
    return compile_file(PROGRAM)


def run(program: ir.Program, script: str) -> Report:
    return run_script(program, parse_script(script), backend="interpreter")


def test_a_trace_tells_each_step_of_a_packet() -> None:
    program = compile_file(PROGRAM)
    events: list[Event] = []
    script = "add exactly h.a:1 h.$valid$:1 to(port:2, mark:9)\npacket 1 00010005\nexpect 2"
    run_script(program, parse_script(script), backend="interpreter", trace=events.append)
    assert [event.kind for event in events] == ["ingress", "state", "extract", "read", "table", "egress"]
    table = events[4].as_json()
    assert (table["name"], table["hit"], table["action"]) == ("I.exactly", True, "I.to")
    assert table["arguments"] == {"port": 2, "mark": 9}
    assert (events[2].details["a"], events[-1].details["port"]) == (1, 2)
    assert str(events[4]).startswith(
        "table   I.exactly hit hdr.h.a=0x1 hdr.h.$valid$=0x1 -> I.to(port=0x2 mark=0x9)"
    )


def test_a_range_is_written_with_both_ends() -> None:
    table = "table t { key = { hdr.h.a: range; } actions = { to; NoAction; } default_action = NoAction(); }"
    locals = f"action to(bit<9> port) {{ meta.standard.egress_spec = port; }} {table}"
    program = compile_source(
        source("t.apply();", locals=locals.replace("meta.standard", "standard_metadata")), name="range.p4"
    )
    script = "add t hdr.h.a:0x10->0x1f to(port:3)\npacket 0 1F000000\nexpect 3 1F000000 $\nno_packet"
    assert run(program, script).passed
    assert not run(program, script.replace("0x1f", "0x1e")).passed


def test_statements_keep_their_lines() -> None:
    text = "\n# a comment\nPACKET 3 00 ff\texpect\n".replace("\texpect", "")
    assert parse_script(text) == [Packet(3, 3, b"\x00\xff")]
    assert parse_script("expect 4 0a** $") == [Expect(1, 4, "0A**", True)]
    assert parse_script("expect 4") == [Expect(1, 4, None)]


def test_an_entry_has_priority_matches_arguments_and_label() -> None:
    [entry] = parse_script("add t 5 h.s[1].f:0x1* g:7/8 c.act(x:0b11, y:2) = $A")
    assert entry == Add(
        1,
        "t",
        5,
        (("h.s[1].f", Operand(0x10, 0xF0, 8)), ("g", Operand(7, 0, 0, 8))),
        "c.act",
        (("x", 3), ("y", 2)),
        "A",
    )


def test_rates_are_pairs() -> None:
    [command] = parse_script("meter_set_rates m 2 0.000005:4 0.00002:5")
    assert command == Command(1, "meter_set_rates", "m", (2,), ((0.000005, 4), (0.00002, 5)))


@pytest.mark.parametrize(
    ("script", "message"),
    [
        ("send 1 00", "unknown statement 'send'"),
        ("packet 1 00f", "two for each byte"),
        ("packet x 00", "the number of a port comes first"),
        ("packet 1 0*", "'*' is not a digit"),
        ("add t a:1 b", "( is expected"),
        ("add t a:1 b(x:1", ", is expected"),
        ("remove 3", "all"),
        ("check_counter c(1) frames == 2", "packets or bytes"),
        ("mc_mgrp_create", "with 0 numbers"),
        ("meter_set_rates m 1", "with 0 rates"),
        ("wait now", "'now' is too much"),
        ("add t a:1.5 b()", "1.5 is not a whole number"),
        ("add t @ b()", "neither name, number nor sign"),
    ],
)
def test_what_cannot_be_read_is_said_with_its_line(script: str, message: str) -> None:
    with pytest.raises(ScriptError) as caught:
        parse_script(f"wait\n{script}")
    assert message in str(caught.value)
    assert caught.value.line == 2


@pytest.mark.parametrize(
    ("script", "message"),
    [
        ("add nowhere a:1 to()", "no table 'nowhere'"),
        ("add exactly zz:1 to()", "no key 'zz'"),
        ("add exactly hdr.h.a:1 fly()", "no action 'fly'"),
        ("add exactly hdr.h.a:1 to(port:1)", "no value for parameter 'mark'"),
        ("add exactly hdr.h.a:1 drop(x:1)", "no parameter 'x'"),
        ("add exactly hdr.h.a:0x10000 drop()", "does not fit in the 16 bits"),
        ("add exactly hdr.h.a:0x1* drop()", "which is exact"),
        ("add exactly hdr.h.a:1->2 drop()", "a range for key hdr.h.a, which is exact of 16 bits"),
        ("add longest hdr.h.a:1/17 NoAction()", "a prefix of 17 bits"),
        ("register_read cells 8", "has 8 cells"),
        ("mc_node_associate 1 0", "no multicast node 0"),
        ("check_counter hits($B)", "name an entry"),
        ("packet 600 00", "ports are 0 to 510"),
        ("meter_get_rates m 1", "no meter 'm'"),
    ],
)
def test_what_the_program_does_not_have_is_said(program: ir.Program, script: str, message: str) -> None:
    with pytest.raises(ScriptError, match="line 1") as caught:
        run(program, script)
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("expectation", "message"),
    [
        ("expect 2 ffff", "port 2: got"),
        ("expect 2 00010255$", "bytes, not 4"),
        ("expect 2 0001025500aabb", "bytes, not 7"),
        ("expect 2 00\nexpect 2 00", "nothing more left at port 2"),
        ("expect 3", ""),
        ("check_counter seen(2) packets == 3", "has 1 packets, not == 3"),
    ],
)
def test_what_differs_is_a_failure(program: ir.Program, expectation: str, message: str) -> None:
    start = "add exactly h.a:1 h.valid:1 to(port:2, mark:0x55)\npacket 2 0001020300\n"
    report = run(program, start + expectation)
    assert not report.passed
    assert message in report.failures[0].message


def test_readings_are_reported(program: ir.Program) -> None:
    report = run(program, "register_write cells 3 9\nregister_read cells 3")
    assert [(reading.line, reading.text) for reading in report.readings] == [(2, "I.cells[3] = 9")]


METERED = """\
        c.execute_meter(0, hdr.h.a);
        t.apply();
    """
METERS = """\
    meter(4, MeterType.packets) c;
    direct_meter<bit<8>>(MeterType.packets) d;
    action f() { d.read(hdr.h.b); }
    table t { key = { hdr.h.c: exact; } actions = { f; @defaultonly NoAction; } meters = d; }
"""


@pytest.mark.parametrize(
    ("script", "message"),
    [
        ("meter_set_rates c 1 1:2", "meter_set_rates with 1 rates; want two, committed and peak"),
        ("meter_set_rates c 1 2:5 1:5", "committed rate 2 is above peak rate 1; want the smaller one first"),
        ("meter_set_rates c 4 1:5 1:5", "C.c has 4 cells, so no index 4"),
        ("meter_array_set_rates d 1:5 1:5", "meter C.d is direct: scripts set the rates of arrays only"),
    ],
)
def test_rates_that_a_meter_cannot_have_are_refused(script: str, message: str) -> None:
    with pytest.raises(ScriptError) as caught:
        run(compile_source(source(METERED, locals=METERS), name="t.p4"), script)
    assert caught.value.message == message


def test_rates_are_read_as_they_were_set() -> None:
    script = "meter_get_rates c 2\nmeter_set_rates c 2 0.5:10 2:20\nmeter_get_rates c 2"
    report = run(compile_source(source(METERED, locals=METERS), name="t.p4"), script)
    assert [reading.text for reading in report.readings] == ["C.c[2] = no rates", "C.c[2] = 0.5:10 2:20"]


@pytest.mark.parametrize("backend", ["compiled", "interpreter"])
def test_no_packet_looks_at_ports_that_nothing_names(backend: Literal["compiled", "interpreter"]) -> None:
    program = compile_source(source("standard_metadata.egress_spec = 9w300;"))
    report = run_script(program, parse_script("packet 1 01020304\nno_packet"), backend=backend)
    assert [failure.message for failure in report.failures] == ["nobody expected, at port 300, 01020304"]


@pytest.mark.parametrize("backend", ["compiled", "interpreter"])
def test_no_packet_accepts_a_dropped_packet_and_an_expected_one(
    backend: Literal["compiled", "interpreter"],
) -> None:
    dropping = compile_source(source("mark_to_drop(standard_metadata);"))
    assert run_script(dropping, parse_script("packet 1 01020304\nno_packet"), backend=backend).passed
    forwarding = compile_source(source("standard_metadata.egress_spec = 9w300;"))
    script = "packet 1 01020304\nno_packet\nexpect 300 01020304"
    assert run_script(forwarding, parse_script(script), backend=backend).passed
