"""The aggregation programs on the reference and on the embedded switch: the same packets in, the same out."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from controller.switches.programs import p4c_output
from p4src.messages import p4info_pb2
from softswitch.compiler import compile_file, ir, p4info
from tests import effort
from tests.bmv2 import differential, exclusive, shared
from tests.bmv2.differential import Backend, Run
from tests.bmv2.reference import compiler_output, missing
from tests.bmv2.targets import Phase

pytestmark = [
    pytest.mark.bmv2,
    pytest.mark.skipif(bool(missing()), reason=f"not on PATH: {missing()}"),
]

P4SRC = Path(__file__).parents[2] / "p4src"
# few slots, so that all of them can be compared
DEFINES = {"LANES": "32", "SLOTS": "64"}
COLUMNS = 32


@dataclass(frozen=True, slots=True)
class Program:
    """A program, what it is given, and the outcomes that it can count."""

    source: Path
    phases: Callable[[ir.Program], list[Phase]]
    outcomes: list[int]


PROGRAMS = {
    "exclusive": Program(P4SRC / "exclusive.p4", exclusive.phases, exclusive.OUTCOMES),
    "shared": Program(P4SRC / "shared.p4", shared.phases, shared.OUTCOMES),
    "atp": Program(P4SRC / "atp.p4", shared.phases, shared.OUTCOMES_OF_ATP),
}


@dataclass(frozen=True, slots=True)
class Case:
    """A program, what the reference's compiler made of it, and the reference of its scenario."""

    program: Program
    compiled: ir.Program
    complaints: str
    p4info: p4info_pb2.P4Info
    reference: Run


@pytest.fixture(scope="module", params=PROGRAMS)
def case(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Case:
    program = PROGRAMS[request.param]
    directory = tmp_path_factory.mktemp(request.param)
    compiled = compile_file(program.source, defines=DEFINES)
    phases = program.phases(compiled)
    complaints = compiler_output(program.source, directory, DEFINES)
    info = p4c_output(program.source, directory).p4info
    binary = directory / f"{request.param}.json"
    reference = differential.on_reference(compiled, binary, directory, phases)
    return Case(program, compiled, complaints, info, reference)


def test_the_reference_compiler_has_nothing_to_say(case: Case) -> None:
    assert case.complaints == ""


WIDER = [(name, lanes) for lanes in (256, 64) for name in PROGRAMS]


@pytest.mark.parametrize(("name", "lanes"), effort.some(WIDER, every=len(WIDER)))
def test_nor_has_it_of_more_lanes(name: str, lanes: int, tmp_path: Path) -> None:
    """How many there are is a matter of `p4src/include/each_lane.p4`, which all programs have."""
    assert compiler_output(PROGRAMS[name].source, tmp_path, {"LANES": str(lanes)}) == ""


def comparable(info: p4info_pb2.P4Info) -> p4info_pb2.P4Info:
    """Leave out what may differ: order, padding of values, and the names of an enum's values (which are
    numbers for everything here).
    """
    for message in info.tables:
        for argument in message.initial_default_action.arguments:
            argument.value = argument.value.lstrip(b"\0") or b"\0"
    for kind in ("tables", "actions", "counters", "direct_counters", "registers"):
        messages = sorted(getattr(info, kind), key=lambda message: message.preamble.id)
        del getattr(info, kind)[:]
        getattr(info, kind).extend(messages)
    info.type_info.ClearField("serializable_enums")
    if not info.type_info.ByteSize():
        info.ClearField("type_info")
    return info


def test_the_reference_compiler_gives_the_same_p4info(case: Case) -> None:
    assert comparable(p4info(case.compiled)) == comparable(case.p4info)


def test_the_scenario_meets_every_outcome(case: Case) -> None:
    cells = case.reference.state.counters["InaIngress.outcomes"]
    totals = [sum(packets for packets, _ in cells[outcome::COLUMNS]) for outcome in range(COLUMNS)]
    assert [outcome for outcome, total in enumerate(totals) if total] == case.program.outcomes
    for table in differential.DIRECTLY_COUNTED:
        assert all(packets for packets, _ in case.reference.state.direct[table]), table


# the interpreter: test_programs.py has it beside the reference, differential/test_aggregation.py beside C
@pytest.mark.parametrize("backend", ["compiled", pytest.param("interpreter", marks=effort.if_thorough())])
def test_the_embedded_switch_does_the_same(backend: Backend, case: Case) -> None:
    phases = case.program.phases(case.compiled)
    embedded = differential.on_embedded(case.compiled, backend, phases, case.reference.arrivals)
    assert differential.differences(case.reference, embedded) == []
