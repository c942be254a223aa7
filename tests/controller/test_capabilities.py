"""What a program offers to jobs is read from its P4Info, and what it lacks is named."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from controller.errors import ProgramMismatch
from controller.switches import names
from controller.switches.capabilities import capabilities
from controller.switches.model import Feature
from controller.switches.programs import objects
from controller.switches.target import ProgramInfo, TableInfo
from softswitch import p4info
from tests.programs import COUNTING, EVICTION, WITHOUT_PRIORITY, copied, p4src_program, program_of


def described(name: str) -> ProgramInfo:
    return objects(p4info(p4src_program(name, LANES=32)))


@pytest.fixture(scope="module")
def shared() -> ProgramInfo:
    return described("shared")


def without(of: Mapping[str, Any], name: str) -> dict[str, Any]:
    assert name in of
    return {key: value for key, value in of.items() if key != name}


@pytest.mark.parametrize(
    ("program", "mode", "salted", "lacks"),
    [
        ("exclusive", "exclusive", False, {Feature.PREEMPTION, Feature.MOVES}),
        ("shared", "shared", False, set()),
        ("atp", "shared", True, {Feature.PREEMPTION}),
    ],
)
def test_the_programs_are_told_apart_by_what_they_have(
    program: str, mode: str, salted: bool, lacks: set[Feature]
) -> None:
    found = capabilities(described(program), "it")
    assert (found.mode, found.salted, found.lacks.keys()) == (mode, salted, lacks)
    assert (found.lanes, found.slots, found.jobs, found.max_members) == (32, 8192, 255, 32)


def test_more_counters_registers_and_tables_and_another_eviction_rule_offer_the_same(
    tmp_path: Path, shared: ProgramInfo
) -> None:
    path = copied(tmp_path, *COUNTING, EVICTION) / "shared.p4"
    edited = objects(p4info(program_of(path, LANES=32)))
    assert edited.tables.keys() - shared.tables.keys() == {"InaEgress.marking.watched"}
    assert edited.counters.keys() - shared.counters.keys() == {"InaIngress.ways"}
    assert edited.registers.keys() - shared.registers.keys() == {"InaIngress.last_psn"}
    assert capabilities(edited, "it") == capabilities(shared, "it")


def test_a_program_without_priorities_serves_jobs_that_want_none(tmp_path: Path) -> None:
    path = copied(tmp_path, WITHOUT_PRIORITY) / "shared.p4"
    found = capabilities(objects(p4info(program_of(path, LANES=32))), "the program mine.p4")
    assert found.shared
    found.require(Feature.MOVES)
    with pytest.raises(ProgramMismatch) as refused:
        found.require(Feature.PREEMPTION)
    assert str(refused.value) == (
        "the program mine.p4 lacks register 'InaIngress.aggregator.slot_priority', which jobs with preemption"
        " need"
    )


def test_what_every_job_needs_is_named_each_by_its_name(shared: ProgramInfo) -> None:
    job = shared.tables[names.JOB]
    set_job = shared.actions[names.SET_JOB]

    def with_table(name: str, table: TableInfo) -> ProgramInfo:
        return replace(shared, tables={**shared.tables, name: table})

    cases = {
        "table 'InaIngress.uplink.uplink'": replace(shared, tables=without(shared.tables, names.UPLINK)),
        "counter 'InaIngress.outcomes'": replace(shared, counters=without(shared.counters, names.OUTCOMES)),
        "register 'InaIngress.aggregator.slot_psn'": replace(
            shared, registers=without(shared.registers, names.SLOT_REGISTER)
        ),
        "register 'InaIngress.aggregator.lanes.lane_0'": replace(
            shared,
            registers={
                name: size for name, size in shared.registers.items() if names.LANE_REGISTERS not in name
            },
        ),
        "match field 'hdr.ina.job' of table 'InaIngress.admission.job'": with_table(
            names.JOB, replace(job, keys={})
        ),
        "match field 'hdr.ina.job' of table 'InaIngress.admission.job' of kind exact or optional (it"
        " is lpm)": (with_table(names.JOB, replace(job, keys={names.JOB_KEY: "lpm"}))),
        "a table 'InaIngress.admission.job' without match field 'hdr.ina.node', for which the controller"
        " has no value": with_table(names.JOB, replace(job, keys={**job.keys, "hdr.ina.node": "exact"})),
        "action 'InaIngress.admission.set_job' in table 'InaIngress.admission.job'": with_table(
            names.JOB, replace(job, actions=frozenset({names.NO_ACTION}))
        ),
        "parameter 'window' of action 'InaIngress.admission.set_job'": replace(
            shared, actions={**shared.actions, names.SET_JOB: without(set_job, "window")}
        ),
        "an action 'InaIngress.admission.set_job' without parameter 'weight', for which the controller has no"
        " value": replace(shared, actions={**shared.actions, names.SET_JOB: {**set_job, "weight": 8}}),
    }
    for lacking, program in cases.items():
        with pytest.raises(ProgramMismatch) as refused:
            capabilities(program, "the program mine.p4")
        said = f"the program mine.p4 is not one for aggregation: it lacks {lacking}"
        assert str(refused.value) == said


def test_a_program_that_wants_lanes_in_all_contributions_lacks_what_needs_none(shared: ProgramInfo) -> None:
    program = replace(shared, tables=without(shared.tables, names.LANE_WORK))
    assert capabilities(program, "it").lacks == {Feature.SHARDS: f"table '{names.LANE_WORK}'"}


def test_of_much_that_is_missing_some_is_named() -> None:
    with pytest.raises(ProgramMismatch, match=r"it lacks table .*job', table .*uplink', .* and 3 more$"):
        capabilities(ProgramInfo({}, {}, {}, {}), "the program fwd.p4")


def test_a_shared_program_whose_jobs_cannot_move_is_shared(shared: ProgramInfo) -> None:
    program = replace(shared, tables=without(shared.tables, names.CHANGE))
    found = capabilities(program, "it")
    assert found.shared
    assert found.lacks == {Feature.MOVES: f"table '{names.CHANGE}'"}
