"""The feature programs of tests/softswitch on the reference and on the embedded switch."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from softswitch.compiler import compile_file, ir
from softswitch.engine.build import load
from softswitch.engine.ports import MAX_PORT, MemoryPort
from softswitch.engine.switch import Switch
from tests.bmv2.reference import Arrival, Reference, compile_p4, missing
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

pytestmark = [pytest.mark.bmv2, pytest.mark.skipif(bool(missing()), reason=f"not on PATH: {missing()}")]

FEATURES = Path(__file__).parents[1] / "softswitch" / "features"
NAMES = sorted(path.stem for path in FEATURES.glob("*.p4"))
PORTS = range(32)
VARIANTS = 50

# What the reference cannot be asked, and why.
NOT_COMPARED = {
    "nested_controls": "p4c refuses for BMv2 a table that is applied at two places of a control",
    "parser_errors": "BMv2 has neither NoMatch nor reject; p4c drops assignments before a failing verify",
    "parser_loop": "BMv2 has no ParserTimeout and loops for ever",
    "registers": "BMv2 reads int<W> cells back unsigned; beyond the end it leaves the target as it was",
    "stack_index": "simple_switch cannot load a computed index of a header stack that is assigned to",
    "subparsers": "p4c loses what a parser that is called has extracted when it then fails",
}

Step = Callable[[Target], None] | Arrival
"""A change of the configuration, or a packet."""


def steps(program: ir.Program, lines: list[script.Line]) -> Iterator[Step]:
    """Translate a packet script; what it expects is not used, the other switch says what to expect."""
    for line in lines:
        words = line.rest.split()
        match line.command:
            case "packet" if int(words[0]) <= MAX_PORT:
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


def test_what_is_not_compared_is_still_there() -> None:
    assert NOT_COMPARED.keys() <= set(NAMES)


@pytest.mark.parametrize("name", [name for name in NAMES if name not in NOT_COMPARED])
def test_both_switches_do_the_same(name: str, tmp_path: Path) -> None:
    source = FEATURES / f"{name}.p4"
    binary = compile_p4(source, tmp_path)
    program = compile_file(source)
    plan = list(steps(program, list(script.read(script.packets_of(source)))))
    packets = [step for step in plan if isinstance(step, tuple)]
    plan += variants(name, packets, VARIANTS)
    inputs = sorted({port for port, _ in packets})
    ports = sorted({*PORTS, *inputs})
    with (
        # the filler is a whole packet: fields of headers that are not valid are undefined
        Reference(binary, tmp_path, ports=ports, inputs=inputs, filler=packets[0][1]) as reference,
        Switch({port: MemoryPort() for port in ports}) as switch,
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
        assert first_difference(reference.sent(), embedded.sent()) == ""
        assert state_differences(commands.state({}), embedded.state({})) == []
