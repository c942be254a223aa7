"""Files that fill a switch's tables: JSON as the tutorials have it, and commands of simple_switch_CLI."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from softswitch import load
from softswitch.compiler import compile_source, ir
from softswitch.engine.pipeline import Pipeline
from softswitch.engine.ports import MemoryPort
from softswitch.engine.switch import Switch
from softswitch.stf.control import EmbeddedPlane
from softswitch.stf.runtime import RuntimeFileError, configure
from tests.softswitch.lowering import source

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
def program() -> ir.Program:
    return compile_source(source("exactly.apply(); longest.apply(); masked.apply();", locals=LOCALS))


class Noted(EmbeddedPlane):
    """The plane of a switch, with the copies that were asked for."""

    def __init__(self, switch: Switch, pipeline: Pipeline) -> None:
        super().__init__(switch, pipeline)
        self.groups: dict[int, Any] = {}
        self.sessions: dict[int, Any] = {}

    def set_multicast_group(self, group: int, members: Any) -> None:
        super().set_multicast_group(group, members)
        self.groups[group] = list(members)

    def set_clone_session(self, session: int, members: Any, truncate: int = 0) -> None:
        super().set_clone_session(session, members, truncate)
        self.sessions[session] = (list(members), truncate)


@pytest.fixture
def plane(program: ir.Program) -> Iterator[Noted]:
    pipeline = load(program, backend="interpreter")
    with Switch({1: MemoryPort()}) as switch:
        switch.load(pipeline)
        yield Noted(switch, pipeline)


def written(folder: Path, name: str, text: str) -> Path:
    path = folder / name
    path.write_text(text)
    return path


def entries(plane: Noted) -> dict[str, list[tuple[Any, ...]]]:
    return {
        table.removeprefix("C."): [
            (*((each.kind, each.value, each.mask) for each in entry.patterns), *entry.invocation.args)
            for entry in plane.entries(table)
        ]
        for table in ("C.exactly", "C.longest", "C.masked")
    }


@pytest.mark.parametrize(
    ("name", "text"), [("s1-runtime.json", json.dumps(JSON)), ("s1-commands.txt", COMMANDS)]
)
def test_both_kinds_of_files_say_the_same(
    name: str, text: str, program: ir.Program, plane: Noted, tmp_path: Path
) -> None:
    configure(written(tmp_path, name, text), program, plane)
    assert entries(plane) == {
        "exactly": [(("exact", 5, 0), 0x10, 0x0800_0000_0111)],
        "longest": [(("mask", 0x10, 0xF0), 1, 2)],
        "masked": [(("mask", 3, 3), ("range", 1, 9), 3, 4)],
    }
    assert plane.groups[1] == [(2, 3), (4, 0)]
    as_json = name.endswith(".json")
    assert plane.sessions[5] == (([(6, 1)], 64) if as_json else ([(6, 0)], 0))
    assert plane.read_register("C.seen", 1) == (0 if as_json else 9)


def test_bmv2_takes_smaller_priorities_first(program: ir.Program, plane: Noted, tmp_path: Path) -> None:
    text = "table_add masked set 0&&&0 0->255 => 1 0 20\ntable_add masked set 0&&&0 0->255 => 2 0 10\n"
    configure(written(tmp_path, "c.txt", text), program, plane)
    first = max(plane.entries("C.masked"), key=lambda entry: entry.priority)
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
        ("r.json", "{", "it is no JSON"),
        ("r.json", "[]", "want an object with table_entries, multicast_group_entries"),
        ("r.json", '{"table_entries": [{}]}', "table_entries[0]: KeyError: 'table'"),
        ("r.json", entry(priority=0), "priority is 0; table C.masked needs one of 1 or more"),
        ("r.json", entry(match={"hdr.h.a": 7}), "key hdr.h.a is 7; it is ternary: want a list of two"),
        ("r.json", entry(match={"hdr.h.z": [7, 3]}), "no key 'hdr.h.z' in table C.masked"),
        ("r.json", entry(action_params={"x": 1}), "no value for parameter 'mac' of C.set"),
        ("r.json", entry(action_name="C.go"), "no action 'C.go'"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_named_by_its_place(
    name: str, text: str, said: str, program: ir.Program, plane: Noted, tmp_path: Path
) -> None:
    path = written(tmp_path, name, text)
    with pytest.raises(RuntimeFileError) as told:
        configure(path, program, plane)
    assert said in str(told.value)
    assert str(told.value).startswith(f"{path}: ")
