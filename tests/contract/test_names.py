"""The host library imports nothing of the controller; the names that both have are the same.

Every table, action and parameter that the controller names is in the P4Info of every program variant.

The logical tree that the controller makes of switches is one that workers and fallback servers take.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any, get_args

import pytest
from hypothesis import assume, given

from controller.p4runtime_shim.codec import Codec
from controller.switches import forwarding, names
from controller.switches.jobs import job_row, supporting_rows
from controller.switches.layout import Branch, Deployment, lay_out
from controller.switches.model import COLUMNS, INA_UDP_PORT, OUTCOMES, Admission, Member, Region, Uplink
from controller.switches.target import MulticastGroup, TableEntry
from controller.vocabulary import CONGESTION, ENCODINGS
from controller.vocabulary.job import CONGESTION_GROUP
from hostlib import collectives, windows
from hostlib.config import JobConfig
from hostlib.core import congestion
from hostlib.wire import encodings
from hostlib.wire.tree import Tree
from p4src.programs import LANES
from softswitch.compiler import p4info
from tests import effort
from tests.controller.trees import as_admitted, trees
from tests.programs import p4src_program


def test_a_job_file_names_the_congestion_controls_that_the_host_library_has() -> None:
    assert CONGESTION_GROUP == windows.GROUP
    assert CONGESTION == congestion.CONGESTION_NAMES == tuple(congestion.CONGESTION)
    assert JobConfig.__dataclass_fields__["congestion"].default == CONGESTION[0]


def test_a_job_file_names_the_encodings_that_the_host_library_has() -> None:
    assert ENCODINGS == encodings.ENCODINGS
    assert JobConfig.__dataclass_fields__["numbers"].default == ENCODINGS[0]
    assert set(get_args(collectives.Numbers)) == set(ENCODINGS) - {"fixed"}  # whose scale is a whole job's


OUTCOMES_P4 = Path(__file__).parents[2] / "p4src" / "include" / "outcomes.p4"
PROGRAMS = ("exclusive", "shared", "atp")
WHERE = {
    "JOB_REGISTER": ("shared", "atp"),
    "PRIORITY_REGISTER": ("shared",),
    "SALT_REGISTER": ("atp",),
    "CHANGE": ("shared", "atp"),
    "MOVE": ("shared", "atp"),
    "SETTLED": ("shared", "atp"),
}
"""Programs that have what not all have."""
MAC, IP = "02:00:00:00:00:01", "10.0.0.1"
ADMISSION = Admission(
    job=1,
    counter_row=2,
    region=Region(0, 64),
    generation=3,
    group=2,
    members=(Member(0, 0, MAC, IP, 9000), Member(None, 2, MAC, IP, INA_UDP_PORT, 0b10, range(1, 2))),
    fan_in=2,
    window=32,
    uplink=Uplink(1, MAC, IP),
    result_bitmap=0b11,
)
ENTRIES: list[TableEntry | MulticastGroup] = [
    job_row(ADMISSION),
    *supporting_rows(ADMISSION),
    TableEntry(names.ECN, {}, names.SET_ECN, {"depth": 1}, default=True),
    forwarding.bridge(MAC, 1),
    forwarding.broadcast(1),
    forwarding.flood_unknown(1),
    forwarding.flood_group(1, [0]),
    forwarding.own_address(IP, MAC),
    forwarding.own_mac(MAC),
    forwarding.route(IP, 24, port=1, src=MAC, dst=MAC),
]


VARIANTS = [(program, lanes) for program in PROGRAMS for lanes in effort.some(LANES, every=len(LANES))]
"""More lanes are more registers, of no names that the controller has."""


@pytest.fixture(scope="module", params=VARIANTS, ids=str)
def program(request: pytest.FixtureRequest) -> tuple[str, Any]:
    name, lanes = request.param
    return name, p4info(p4src_program(name, LANES=lanes))


@pytest.fixture
def info(program: tuple[str, Any]) -> Any:
    return program[1]


def test_every_entry_has_all_fields_and_parameters(info: Any) -> None:
    codec = Codec(info)
    tables = {t.preamble.name: t for t in info.tables}
    actions = {a.preamble.name: a for a in info.actions}
    for row in ENTRIES:
        codec.encode(row)
        if isinstance(row, TableEntry):
            table, action = tables[row.table], actions[row.action]
            assert row.default or set(row.match) == {f.name for f in table.match_fields}
            assert set(row.params) == {p.name for p in action.params}
            assert action.preamble.id in {ref.id for ref in table.action_refs}


def test_every_name_is_in_the_program(program: tuple[str, Any]) -> None:
    which, info = program
    known = set(all_names(info))
    prefixes = {names.LANE_REGISTERS}
    for constant, name in vars(names).items():
        if constant in WHERE:
            assert (name in known) == (which in WHERE[constant]), "by this programs are told apart"
        elif constant.isupper() and name not in prefixes:
            assert name in known, f"names.{constant}"
    assert any(name.startswith(names.LANE_REGISTERS) for name in known)


def all_names(info: Any) -> Iterable[str]:
    for objects in (info.tables, info.actions, info.counters, info.registers):
        yield from (o.preamble.name for o in objects)
    yield from (f.name for t in info.tables for f in t.match_fields)


def test_a_counter_row_has_a_column_for_every_outcome(info: Any) -> None:
    (outcomes,) = (c for c in info.counters if c.preamble.name == names.OUTCOMES)
    assert outcomes.size % COLUMNS == 0
    assert max(OUTCOMES.values()) < COLUMNS


def test_the_outcomes_are_those_of_the_programs() -> None:
    source = OUTCOMES_P4.read_text()
    declared = re.search(r"enum bit<(\d+)> outcome_t {([^}]*)}", source)
    assert declared is not None
    numbered = re.findall(r"^ *(\w+) *= (\d+)\b", declared[2], re.MULTILINE)
    assert {name.lower(): int(number) for name, number in numbered} == OUTCOMES
    assert 1 << int(declared[1]) == COLUMNS


@given(trees())
def test_a_worker_finds_the_node_and_the_bit_that_its_switch_knows_it_by(root: Branch) -> None:
    jobs = lay_out(Deployment(root, 8), max_members=10**6)
    assume(all(job.fan_in <= 32 for job in jobs.values()))
    admitted = as_admitted(jobs)
    tree = Tree.of(admitted.tree)
    found: dict[int, tuple[int, Member]] = {}
    for admission in admitted.switches.values():
        found |= {m.rank: (admission.node, m) for m in admission.members if m.rank is not None}
    assert sorted(found) == list(range(tree.size))
    for rank, (node, member) in found.items():
        assert tree.path(rank)[0] == (node, member.bitmap)
