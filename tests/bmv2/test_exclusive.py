"""p4src/exclusive.p4 on the reference and on the embedded switch: the same packets in, the same out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import pytest

from softswitch.compiler import compile_file, ir
from softswitch.engine.build import load
from softswitch.engine.ports import MemoryPort
from softswitch.engine.switch import Switch
from tests.bmv2 import scenario
from tests.bmv2.reference import Arrival, Reference, compile_p4
from tests.bmv2.targets import (
    Commands,
    Delete,
    Embedded,
    Insert,
    Phase,
    State,
    Target,
    first_difference,
    state_differences,
)

pytestmark = pytest.mark.bmv2

EXCLUSIVE = Path(__file__).parents[2] / "p4src" / "exclusive.p4"
# few slots, so that all of them can be compared
DEFINES = {"LANES": "32", "SLOTS": "64"}
OUTCOMES = 18
DIRECTLY_COUNTED = ("InaIngress.forwarding.bridge", "InaIngress.forwarding.routes")


@dataclass(frozen=True, slots=True)
class Run:
    """What the reference was given, phase by phase and at the end, and what it made of that."""

    arrivals: list[list[Arrival]]
    last_arrivals: list[Arrival]
    sent: dict[int, list[bytes]]
    state: State


def configure(target: Target, phase: Phase) -> None:
    for write in phase.writes:
        target.write(write)
    for group, members in phase.groups.items():
        target.add_group(group, members)


def counted_entries(phases: Sequence[Phase]) -> dict[str, list[ir.ConstEntry]]:
    inserts = [write for phase in phases for write in phase.writes if isinstance(write, Insert)]
    assert not any(
        write.table in DIRECTLY_COUNTED for p in phases for write in p.writes if isinstance(write, Delete)
    )
    return {table: [w.entry for w in inserts if w.table == table] for table in DIRECTLY_COUNTED}


@pytest.fixture(scope="module")
def program() -> ir.Program:
    return compile_file(EXCLUSIVE, defines=DEFINES)


@pytest.fixture(scope="module")
def reference_run(tmp_path_factory: pytest.TempPathFactory, program: ir.Program) -> Run:
    directory = tmp_path_factory.mktemp("reference")
    binary = compile_p4(EXCLUSIVE, directory, DEFINES)
    phases = scenario.phases()
    with Reference(binary, directory, ports=scenario.PORTS, inputs=scenario.PORTS) as switch:
        commands = Commands(switch, program)
        arrivals = []
        for phase in phases:
            configure(commands, phase)
            arrivals.append(switch.send(phase.packets))
        last_arrivals = switch.finish()
        return Run(arrivals, last_arrivals, switch.sent(), commands.state(counted_entries(phases)))


@pytest.mark.parametrize("lanes", [32, 64, 256])
def test_the_reference_compiler_takes_it_as_it_is(lanes: int, tmp_path: Path) -> None:
    compile_p4(EXCLUSIVE, tmp_path, {"LANES": str(lanes)})


def test_the_scenario_meets_every_outcome(reference_run: Run) -> None:
    cells = reference_run.state.counters["InaIngress.outcomes"]
    totals = [sum(packets for packets, _ in cells[outcome::32]) for outcome in range(32)]
    assert [outcome for outcome, total in enumerate(totals) if total] == list(range(OUTCOMES))
    for table in DIRECTLY_COUNTED:
        assert all(packets for packets, _ in reference_run.state.direct[table]), table


@pytest.mark.parametrize("backend", ["compiled", "interpreter"])
def test_the_embedded_switch_does_the_same(
    backend: Literal["compiled", "interpreter"], program: ir.Program, reference_run: Run
) -> None:
    phases = scenario.phases()
    engine: Literal["native", "python"] = "native" if backend == "compiled" else "python"
    with Switch({port: MemoryPort() for port in scenario.PORTS}, engine=engine) as switch:
        embedded = Embedded(load(program, backend=backend), switch)
        for phase, arrivals in zip(phases, reference_run.arrivals, strict=True):
            configure(embedded, phase)
            embedded.send(arrivals)
        embedded.send(reference_run.last_arrivals)
        assert first_difference(reference_run.sent, embedded.sent()) == ""
        assert state_differences(reference_run.state, embedded.state(counted_entries(phases))) == []
