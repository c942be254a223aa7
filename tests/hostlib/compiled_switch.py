"""The compiled programs of ``p4src`` on memory ports, with jobs as the reference switches have them."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Literal

from hostlib import wire
from softswitch.compiler import ir
from softswitch.engine.build import build
from softswitch.engine.compiled import CompiledPipeline
from softswitch.engine.ports import MemoryPort
from softswitch.engine.switch import Switch
from tests.hostlib.reference_switch import Job
from tests.programs import p4src_program

SLOTS = 128

ProgramName = Literal["exclusive", "shared", "atp"]


@functools.cache
def built(name: ProgramName, lanes: int) -> tuple[ir.Program, Path]:
    program = p4src_program(name, LANES=lanes, SLOTS=SLOTS)
    return program, build(program)


def exact(*values: int) -> tuple[ir.Pattern, ...]:
    return tuple(ir.Pattern("exact", value) for value in values)


def compiled_switch(job: int, *, size: int, slots: int, lanes: int) -> Switch:
    """Return an exclusive switch in virtual time with one job, rank r at port r; `close` it."""
    return compiled_from({job: Job(size, slots)}, lanes, "exclusive")


def compiled_from(
    jobs: Mapping[int, Job], lanes: int, name: ProgramName, more_ports: Iterable[int] = ()
) -> Switch:
    """Return a switch in virtual time with these jobs, and ports that none of them uses; `close` it."""
    program, path = built(name, lanes)
    pipeline = CompiledPipeline(program, path)
    names = {full.rpartition(".")[2]: full for full in (*program.tables, *program.actions)}

    def insert(table: str, keys: tuple[int, ...], action: str, *arguments: int) -> None:
        invocation = ir.Invocation(names[action], arguments)
        pipeline.insert(names[table], ir.ConstEntry(exact(*keys), invocation, 0))

    groups: dict[int, list[tuple[int, int]]] = {}
    end = SLOTS
    for row, (number, job) in enumerate(jobs.items(), start=1):
        end -= 0 if name != "exclusive" or job.transit else job.slots
        offset = end if name == "exclusive" else job.offset
        region = 0 if job.transit else job.slots
        result_bitmap = job.full if job.result_bitmap is None else job.result_bitmap
        insert(
            *("job", (number,), "set_job", row, offset, region, job.generation, job.size, job.full, row),
            *(job.node, result_bitmap, job.parent is None and not job.transit, job.transit),
            *(job.preempt, job.ageing, job.window, job.max_age_us),
        )
        groups[row] = []
        for port in job.ports:
            members = job.members_at(port)
            rid = members.bit_length()
            below = job.below.get(port, range(0))
            insert("member", (number, port), "set_member", members, below.start, len(below))
            insert("receiver", (number, rid), *receiver(job, port))
            groups[row].append((port, rid))
        if job.uplink is not None:
            node, bitmap, fan_in = job.parent or (0, 0, 0)
            insert("member", (number, job.uplink), "set_parent")
            insert("receiver", (number, 0), *receiver(job, job.uplink))
            insert(
                *("uplink", (number,), "set_uplink", job.uplink, node, bitmap, fan_in, row),
                *(job.node, job.size),
            )
    ports = set(more_ports) | {port for job in jobs.values() for port in job.ports}
    ports |= {job.uplink for job in jobs.values() if job.uplink is not None}
    switch = Switch({port: MemoryPort() for port in sorted(ports)})
    switch.load(pipeline)
    for group, copies in groups.items():
        switch.set_multicast_group(group, copies)
    return switch


def receiver(job: Job, port: int) -> tuple[str, *tuple[int, ...]]:
    """Return the action that addresses copies for what is at a port, and its arguments."""
    address = 0x020000000000 + port, 0x0A000001 + port, wire.INA_UDP_PORT
    rank, takers = job.rank_at(port), job.takers_at(port)
    if rank is not None:
        return "deliver", *address, rank
    return "pass_on", *address, takers.start, len(takers)
