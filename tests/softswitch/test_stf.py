"""The STF language, and how scripts fail: each test is about one way.

Files that fill a switch's tables: JSON as the tutorials have it, and commands of simple_switch_CLI.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Literal

import pytest

from softswitch import load
from softswitch.compiler import compile_file, compile_source, ir
from softswitch.engine.pipeline import Pipeline
from softswitch.engine.ports import MemoryPort
from softswitch.engine.switch import Switch
from softswitch.stf import Event, ScriptError, ScriptReport, parse_script, run_script
from softswitch.stf.control import Control
from softswitch.stf.runtime import RuntimeFileError, configure
from softswitch.stf.script import Add, Expect, PacketLine, ScriptCommand, ScriptOperand
from tests.softswitch.lowering import source

PROGRAM = Path(__file__).parents[1] / "p4" / "basic_tables" / "program.p4"


@pytest.fixture(scope="module")
def program() -> ir.Program:
    return compile_file(PROGRAM)


def run(program: ir.Program, script: str) -> ScriptReport:
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
    assert parse_script(text) == [PacketLine(3, 3, b"\x00\xff")]
    assert parse_script("expect 4 0a** $") == [Expect(1, 4, "0A**", True)]
    assert parse_script("expect 4") == [Expect(1, 4, None)]


def test_an_entry_has_priority_matches_arguments_and_label() -> None:
    [entry] = parse_script("add t 5 h.s[1].f:0x1* g:7/8 c.act(x:0b11, y:2) = $A")
    assert entry == Add(
        1,
        "t",
        5,
        (("h.s[1].f", ScriptOperand(0x10, 0xF0, 8)), ("g", ScriptOperand(7, 0, 0, 8))),
        "c.act",
        (("x", 3), ("y", 2)),
        "A",
    )


def test_rates_are_pairs() -> None:
    [command] = parse_script("meter_set_rates m 2 0.000005:4 0.00002:5")
    assert command == ScriptCommand(1, "meter_set_rates", "m", (2,), ((0.000005, 4), (0.00002, 5)))


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
        ("wait now", "'now' after the end of the statement"),
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
        ("add exactly hdr.h.a:1->2 drop()", "the range does not fit key hdr.h.a, which is exact of 16 bits"),
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
        ("expect 2 00\nexpect 2 00", "a packet is missing at port 2"),
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
    assert [failure.message for failure in report.failures] == ["unexpected packet at port 300, 01020304"]


@pytest.mark.parametrize("backend", ["compiled", "interpreter"])
def test_no_packet_accepts_a_dropped_packet_and_an_expected_one(
    backend: Literal["compiled", "interpreter"],
) -> None:
    dropping = compile_source(source("mark_to_drop(standard_metadata);"))
    assert run_script(dropping, parse_script("packet 1 01020304\nno_packet"), backend=backend).passed
    forwarding = compile_source(source("standard_metadata.egress_spec = 9w300;"))
    script = "packet 1 01020304\nno_packet\nexpect 300 01020304"
    assert run_script(forwarding, parse_script(script), backend=backend).passed


LOCALS = """
    register<bit<8>>(4) seen;
    action set(bit<8> x, bit<48> mac) { hdr.h.b = x; seen.write(0, mac[7:0]); }
    table exactly { key = { hdr.h.a: exact; } actions = { set; NoAction; } }
    table longest { key = { hdr.h.a: lpm; } actions = { set; NoAction; } }
    table masked { key = { hdr.h.a: ternary; hdr.h.b: range; } actions = { set; NoAction; } }
"""
JSON = {
    "target": "bmv2",
    "p4info": "build/none.p4info",
    "table_entries": [
        {"table": "C.exactly", "match": {"hdr.h.a": 5}, "action_name": "C.set",
         "action_params": {"x": "0x10", "mac": "08:00:00:00:01:11"}},
        {"table": "C.exactly", "default_action": True, "action_name": "NoAction", "action_params": {}},
        {"table": "C.longest", "match": {"hdr.h.a": [16, 4]}, "action_name": "C.set",
         "action_params": {"x": 1, "mac": 2}},
        {"table": "C.masked", "match": {"hdr.h.a": [7, 3], "hdr.h.b": [1, 9]}, "priority": 7,
         "action_name": "C.set", "action_params": {"x": 3, "mac": 4}},
    ],
    "multicast_group_entries": [
        {"multicast_group_id": 1, "replicas": [{"egress_port": 2, "instance": 3}, {"egress_port": 4}]}
    ],
    "clone_session_entries": [
        {"clone_session_id": 5, "replicas": [{"egress_port": 6, "instance": 1}], "packet_length_bytes": 64}
    ],
}  # fmt: skip
COMMANDS = """
# as people write them
table_add C.exactly C.set 5 => 0x10 08:00:00:00:01:11
table_set_default exactly NoAction
table_add longest set 0x10/4 => 1 2   # the rest of a line
table_add masked set 7&&&3 1->9 => 3 4 10
table_dump exactly
mc_mgrp_create 1
mc_node_create 3 2
mc_node_create 0 4
mc_node_associate 1 0
mc_node_associate 1 1
mirroring_add 5 6
register_write seen 1 9
"""


@pytest.fixture(scope="module")
def table_program() -> ir.Program:
    return compile_source(source("exactly.apply(); longest.apply(); masked.apply();", locals=LOCALS))


class Noted(Control):
    """The control plane of a switch, with the copies that were asked for."""

    def __init__(self, switch: Switch, pipeline: Pipeline) -> None:
        super().__init__(pipeline.program, pipeline, self)
        self.pipeline = pipeline
        self.groups: dict[int, Any] = {}
        self.sessions: dict[int, Any] = {}
        self._switch = switch

    def set_multicast_group(self, group: int, members: Any) -> None:
        self._switch.set_multicast_group(group, members)
        self.groups[group] = list(members)

    def set_clone_session(self, session: int, members: Any, truncate: int = 0) -> None:
        self._switch.set_clone_session(session, members, truncate)
        self.sessions[session] = (list(members), truncate)


@pytest.fixture
def plane(table_program: ir.Program) -> Iterator[Noted]:
    pipeline = load(table_program, backend="interpreter")
    with Switch({1: MemoryPort()}) as switch:
        switch.load(pipeline)
        yield Noted(switch, pipeline)


def entries(plane: Noted) -> dict[str, list[tuple[Any, ...]]]:
    return {
        table.removeprefix("C."): [
            (*((each.kind, each.value, each.mask) for each in entry.patterns), *entry.invocation.args)
            for entry in plane.pipeline.entries(table)
        ]
        for table in ("C.exactly", "C.longest", "C.masked")
    }


@pytest.mark.parametrize(
    ("name", "text"), [("s1-runtime.json", json.dumps(JSON)), ("s1-commands.txt", COMMANDS)]
)
def test_both_kinds_of_files_say_the_same(
    name: str, text: str, plane: Noted, write_file: Callable[[str, str], Path]
) -> None:
    configure(write_file(name, text), plane)
    assert entries(plane) == {
        "exactly": [(("exact", 5, 0), 0x10, 0x0800_0000_0111)],
        "longest": [(("mask", 0x10, 0xF0), 1, 2)],
        "masked": [(("mask", 3, 3), ("range", 1, 9), 3, 4)],
    }
    assert plane.groups[1] == [(2, 3), (4, 0)]
    as_json = name.endswith(".json")
    assert plane.sessions[5] == (([(6, 1)], 64) if as_json else ([(6, 0)], 0))
    assert plane.pipeline.read_register("C.seen", 1) == (0 if as_json else 9)


def test_bmv2_takes_smaller_priorities_first(plane: Noted, write_file: Callable[[str, str], Path]) -> None:
    text = "table_add masked set 0&&&0 0->255 => 1 0 20\ntable_add masked set 0&&&0 0->255 => 2 0 10\n"
    configure(write_file("c.txt", text), plane)
    first = max(plane.pipeline.entries("C.masked"), key=lambda entry: entry.priority)
    assert first.invocation.args[0] == 2


def entry(**changes: Any) -> str:
    return json.dumps({"table_entries": [JSON["table_entries"][3] | changes]})  # type: ignore[operator]


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("c.txt", "\ntable_add none set 1 =>", "line 2: no table 'none'; the program has C.exactly"),
        ("c.txt", "table_add exactly set 1 2 => 3 4", "line 1: 2 keys for table C.exactly; it has 1"),
        ("c.txt", "table_add exactly set 1 => 3", "line 1: 1 values for action C.set; it takes x, mac"),
        ("c.txt", "table_add exactly set 256 => 3 4", "key hdr.h.a is 256, which does not fit in its 8 bits"),
        ("c.txt", "table_add exactly set 1 => red 4", "parameter x is 'red'; want a number or an address"),
        ("c.txt", "table_add longest set 1 => 3 4", "'1' for key hdr.h.a, which is lpm: want VALUE/LENGTH"),
        ("c.txt", "table_add masked set 1 2->3 => 3 4 5", "which is ternary: want A&&&B"),
        ("c.txt", "table_add masked set 1&&&1 2->3 =>", "needs a priority, after the action's values"),
        ("c.txt", "act_prof_create x", "line 1: 'act_prof_create' with 1 arguments; want one of table_add"),
        ("c.txt", "table_add exactly set 1 => 1 1\n" * 2, "line 2: "),
        ("r.json", "{", "is not JSON"),
        ("r.json", "[]", "want an object with table_entries, multicast_group_entries"),
        ("r.json", '{"table_entries": [{}]}', "table_entries[0]: KeyError: 'table'"),
        ("r.json", entry(priority=0), "priority is 0; table C.masked needs a priority of 1 or more"),
        ("r.json", entry(match={"hdr.h.a": 7}), "key hdr.h.a is 7; it is ternary: want a list of two"),
        ("r.json", entry(match={"hdr.h.z": [7, 3]}), "no key 'hdr.h.z' in table C.masked"),
        ("r.json", entry(action_params={"x": 1}), "no value for parameter 'mac' of C.set"),
        ("r.json", entry(action_name="C.go"), "no action 'C.go'"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_named_by_its_place(
    name: str,
    text: str,
    said: str,
    plane: Noted,
    write_file: Callable[[str, str], Path],
) -> None:
    path = write_file(name, text)
    with pytest.raises(RuntimeFileError) as told:
        configure(path, plane)
    assert said in str(told.value)
    assert str(told.value).startswith(f"{path}: ")
