"""The feature programs of tests/softswitch on the reference and on the embedded switch."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from softswitch.engine.build import load

from softswitch.compiler import compile_file, ir
from softswitch.engine.ports import MemoryPort
from softswitch.engine.switch import Switch
from tests.bmv2.reference import Arrival, Reference, ToolFailed, compile_p4
from tests.bmv2.targets import (
    Commands,
    Delete,
    Embedded,
    Insert,
    Modify,
    Target,
    Write,
    first_difference,
    state_differences,
)
from tests.softswitch.differential import script

pytestmark = pytest.mark.bmv2

FEATURES = Path(__file__).parents[1] / "softswitch" / "features"
PORTS = range(32)
VARIANTS = 50

# What the two cannot agree on, and why.
REFUSED_BY_REFERENCE: dict[str, str] = {}
DIFFERENT: dict[str, str] = {}

Step = Callable[[Target], None] | Arrival
"""A change of the configuration, or a packet."""


def steps(program: ir.Program, lines: list[script.Line]) -> Iterator[Step]:
    """Translate a packet script; what it expects is not used, the other switch says what to expect."""
    for line in lines:
        words = line.rest.split()
        match line.command:
            case "packet":
                yield int(words[0]), bytes.fromhex("".join(words[1:]))
            case "group" | "session" as command:
                yield _replication(command, int(words[0]), [script.parse_copy(word) for word in words[1:]])
            case "add" | "modify" | "delete" as command:
                make = {"add": Insert, "modify": Modify, "delete": Delete}[command]
                table, entry = script.parse_entry(program, line.rest)
                yield _write(make(table, entry))
            case "default":
                yield _default(program, line.rest)
            case "write":
                register = script.resolve(program.registers, words[0])
                yield _register(register, int(words[1], 0), int(words[2], 0))
            case _:
                pass


def _replication(command: str, number: int, members: list[tuple[int, int]]) -> Step:
    if command == "group":
        return lambda target: target.add_group(number, members)
    return lambda target: target.add_session(number, members)


def _write(write: Write) -> Step:
    return lambda target: target.write(write)


def _default(program: ir.Program, text: str) -> Step:
    table, _, call = text.partition("=>")
    name = script.resolve(program.tables, table.strip())
    invocation = script.parse_call(program, name, call) if call else program.tables[name].default
    return lambda target: target.set_default(name, invocation)


def _register(name: str, index: int, value: int) -> Step:
    return lambda target: target.write_register(name, index, value)


def variants(seed: str, packets: list[Arrival], count: int) -> Iterator[Arrival]:
    """Yield packets like the given ones: some bits changed, or longer.

    Not cut short: the fields of a header that is not valid are undefined, and programs here read them.
    """
    rng = random.Random(seed)
    for _ in range(count):
        port, frame = rng.choice(packets)
        changed = bytearray(frame)
        for _ in range(rng.randrange(4)):
            changed[rng.randrange(len(changed))] ^= rng.choice((1 << rng.randrange(8), rng.randrange(256)))
        if rng.random() < 0.25:
            changed += rng.randbytes(rng.randrange(1, 40))
        yield port, bytes(changed)


@pytest.mark.parametrize("name", sorted(path.parent.name for path in FEATURES.glob("*/program.p4")))
def test_both_switches_do_the_same(name: str, tmp_path: Path) -> None:
    source = FEATURES / name / "program.p4"
    if name in REFUSED_BY_REFERENCE:
        with pytest.raises(ToolFailed):
            compile_p4(source, tmp_path)
        return
    binary = compile_p4(source, tmp_path)
    program = compile_file(source)
    plan = list(steps(program, list(script.read((source.parent / "packets.txt").read_text()))))
    packets = [step for step in plan if isinstance(step, tuple)]
    plan += variants(name, packets, VARIANTS)
    inputs = sorted({port for port, _ in packets})
    with (
        Reference(binary, tmp_path, ports=PORTS, inputs=inputs) as reference,
        Switch({port: MemoryPort() for port in PORTS}, engine="python") as switch,
    ):
        commands = Commands(reference, program)
        embedded = Embedded(load(program, backend="interpreter"), switch)
        for step in plan:
            if isinstance(step, tuple):
                # one at a time: with several, what recirculates would race with what arrives
                embedded.send(reference.send([step]))
            else:
                step(commands)
                step(embedded)
        embedded.send(reference.finish())
        different = first_difference(reference.sent(), embedded.sent())
        differences = state_differences(commands.state({}), embedded.state({}))
    if name in DIFFERENT:
        assert different or differences, f"{name} differs no more; take it off the list"
        return
    assert different == ""
    assert differences == []
