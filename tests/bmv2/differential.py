"""Runs a scenario on the reference and on the embedded switch, and compares what they made of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from softswitch.compiler import ir
from softswitch.engine.build import load
from softswitch.engine.ports import MemoryPort
from softswitch.engine.switch import Switch
from tests.bmv2.reference import Arrival, Reference
from tests.bmv2.stations import PORTS
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

Backend = Literal["compiled", "interpreter"]

DIRECTLY_COUNTED = ("InaIngress.forwarding.bridge", "InaIngress.forwarding.routes")
MARKING = "InaEgress.marking.threshold"
SET_THRESHOLD = "InaEgress.marking.set_threshold"
# real time on the reference
INCOMPARABLE = ("InaIngress.aggregator.slot_touched",)


@dataclass(frozen=True, slots=True)
class Run:
    """What a switch was really given phase by phase and at the end, and what it made of that."""

    arrivals: list[list[Arrival]]
    registers: list[dict[str, list[int]]]
    sent: dict[int, list[bytes]]
    state: State


def on_reference(program: ir.Program, binary: Path, directory: Path, phases: Sequence[Phase]) -> Run:
    """Run all phases on simple_switch, `binary` being what p4c made of the same source as `program`."""
    with Reference(binary, directory, ports=PORTS, inputs=PORTS) as switch:
        commands = Commands(switch, program)
        arrivals, registers = [], []
        for phase in phases:
            _configure(commands, phase)
            arrivals.append(switch.send(phase.packets))
            registers.append(commands.registers())
        arrivals.append(switch.finish())
        return Run(arrivals, registers, switch.sent(), commands.state(_counted_entries(phases)))


def on_embedded(
    program: ir.Program, backend: Backend, phases: Sequence[Phase], arrivals: Sequence[Sequence[Arrival]]
) -> Run:
    """Run all phases on the embedded switch with what really arrived at the reference."""
    with Switch({port: MemoryPort() for port in PORTS}) as switch:
        embedded = Embedded(load(program, backend=backend), switch)
        registers = []
        for phase, packets in zip(phases, arrivals[:-1], strict=True):
            _configure(embedded, phase)
            embedded.send(packets)
            registers.append(embedded.registers())
        embedded.send(arrivals[-1])
        state = embedded.state(_counted_entries(phases))
        return Run(list(map(list, arrivals)), registers, embedded.sent(), state)


def differences(reference: Run, embedded: Run) -> list[str]:
    """Describe in what two runs differ: the first frame, and every cell of a register or counter."""
    found = []
    if frame := first_difference(reference.sent, embedded.sent):
        found.append(frame)
    for phase, (expected, got) in enumerate(zip(reference.registers, embedded.registers, strict=True)):
        cells = state_differences(_registers_only(expected), _registers_only(got))
        found += [f"after phase {phase}: {cell}" for cell in cells]
    return found + state_differences(_comparable(reference.state), _comparable(embedded.state))


def _registers_only(registers: dict[str, list[int]]) -> State:
    return _comparable(State(registers, {}, {}))


def _comparable(state: State) -> State:
    registers = {name: cells for name, cells in state.registers.items() if name not in INCOMPARABLE}
    return State(registers, state.counters, state.direct)


def _configure(target: Target, phase: Phase) -> None:
    for write in phase.writes:
        target.write(write)
    for group, members in phase.groups.items():
        target.add_group(group, members)
    target.set_default(MARKING, ir.Invocation(SET_THRESHOLD, (phase.mark_from,)))


def _counted_entries(phases: Sequence[Phase]) -> dict[str, list[ir.ConstEntry]]:
    writes = [write for phase in phases for write in phase.writes if write.table in DIRECTLY_COUNTED]
    assert not any(isinstance(write, Delete) for write in writes)
    inserts = [write for write in writes if isinstance(write, Insert)]
    return {table: [write.entry for write in inserts if write.table == table] for table in DIRECTLY_COUNTED}
