"""The compiled ``p4src/exclusive.p4`` on memory ports, with one job admitted: rank r at port r."""

from __future__ import annotations

import functools
from pathlib import Path

from softswitch.compiler import compile_file, ir
from softswitch.engine.build import build
from softswitch.engine.compiled import CompiledPipeline
from softswitch.engine.ports import MemoryPort
from softswitch.engine.switch import Switch

P4 = Path(__file__).parents[2] / "p4src" / "exclusive.p4"
SLOTS = 64
GROUP = 1


@functools.cache
def built(lanes: int) -> tuple[ir.Program, Path]:
    program = compile_file(P4, defines={"LANES": str(lanes), "SLOTS": str(SLOTS)})
    return program, build(program)


def exact(*values: int) -> tuple[ir.Pattern, ...]:
    return tuple(ir.Pattern("exact", value) for value in values)


def compiled_switch(job: int, *, size: int, slots: int, lanes: int) -> Switch:
    """Return a switch in virtual time; `close` it."""
    program, path = built(lanes)
    pipeline = CompiledPipeline(program, path)
    names = {name.rpartition(".")[2]: name for name in (*program.tables, *program.actions)}

    def insert(table: str, keys: tuple[int, ...], action: str, *arguments: int) -> None:
        invocation = ir.Invocation(names[action], arguments)
        pipeline.insert(names[table], ir.ConstEntry(exact(*keys), invocation, 0))

    generation, counter_row, offset = 1, 1, SLOTS - slots
    insert("job", (job,), "set_job", counter_row, offset, slots, generation, size, (1 << size) - 1, GROUP)
    for rank in range(size):
        insert("member", (job, rank), "set_member", 1 << rank)
        insert("receiver", (job, rank), "deliver", 0x020000000000 + rank, 0x0A000001 + rank, 42592)
    switch = Switch({rank: MemoryPort() for rank in range(size)})
    switch.load(pipeline)
    switch.set_multicast_group(GROUP, [(rank, rank) for rank in range(size)])
    return switch
