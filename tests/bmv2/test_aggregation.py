"""The aggregation programs on the reference and on the embedded switch: the same packets in, the same out."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from softswitch.compiler import compile_file, ir
from tests.bmv2 import differential, exclusive, shared
from tests.bmv2.differential import Backend, Run
from tests.bmv2.reference import compile_p4, compiler_output, missing
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
    """A program, and what the reference made of its scenario."""

    program: Program
    compiled: ir.Program
    reference: Run


@pytest.fixture(scope="module", params=PROGRAMS)
def case(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Case:
    program = PROGRAMS[request.param]
    directory = tmp_path_factory.mktemp(request.param)
    compiled = compile_file(program.source, defines=DEFINES)
    phases = program.phases(compiled)
    binary = compile_p4(program.source, directory, DEFINES)
    return Case(program, compiled, differential.on_reference(compiled, binary, directory, phases))


@pytest.mark.parametrize("lanes", [32, 64, 256])
@pytest.mark.parametrize("name", PROGRAMS)
def test_the_reference_compiler_has_nothing_to_say(name: str, lanes: int, tmp_path: Path) -> None:
    assert compiler_output(PROGRAMS[name].source, tmp_path, {"LANES": str(lanes)}) == ""


def test_the_scenario_meets_every_outcome(case: Case) -> None:
    cells = case.reference.state.counters["InaIngress.outcomes"]
    totals = [sum(packets for packets, _ in cells[outcome::COLUMNS]) for outcome in range(COLUMNS)]
    assert [outcome for outcome, total in enumerate(totals) if total] == case.program.outcomes
    for table in differential.DIRECTLY_COUNTED:
        assert all(packets for packets, _ in case.reference.state.direct[table]), table


@pytest.mark.parametrize("backend", ["compiled", "interpreter"])
def test_the_embedded_switch_does_the_same(backend: Backend, case: Case) -> None:
    phases = case.program.phases(case.compiled)
    embedded = differential.on_embedded(case.compiled, backend, phases, case.reference.arrivals)
    assert differential.differences(case.reference, embedded) == []
