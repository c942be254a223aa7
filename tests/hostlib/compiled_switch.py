"""The compiled programs of ``p4src`` on memory ports, and jobs as they are admitted there."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from hostlib import wire
from hostlib.wire.tree import Tree
from softswitch.compiler import ir
from softswitch.engine.build import build
from softswitch.engine.compiled import CompiledPipeline
from softswitch.engine.ports import MemoryPort
from softswitch.engine.switch import Switch
from tests.programs import p4src_program

SLOTS = 1024
ALL_RANKS = range(wire.TARGET_BUT)

LANES = 32
ProgramName = Literal["exclusive", "shared", "atp"]


@dataclass(frozen=True)
class Job:
    """An admission. By default child b sits at port b, and there is nothing above."""

    size: int
    """Children of the node."""
    slots: int
    generation: int = 0x100
    """Its low byte is the epoch: 0, as workers have it by default."""
    offset: int = 0
    members: Mapping[int, int] | None = None
    """Children by port, as bitmaps: several behind a transit switch."""
    ranks: Mapping[int, int] | None = None
    """Ports at which workers sit, with their ranks; None: those of the children."""
    uplink: int | None = None
    """Port of the parent, or of the fallback server."""
    node: int = 0
    parent: tuple[int, int, int] | None = None
    """Node, own bitmap and fan-in of the parent; None at the root."""
    result_bitmap: int | None = None
    transit: bool = False
    below: Mapping[int, range] = field(default_factory=dict)
    """Nodes of the tree behind ports."""
    ranks_below: Mapping[int, range] = field(default_factory=dict)
    """Ranks among which those behind ports to switches are; all, where nothing is said."""
    preempt: bool = False
    ageing: int = 1
    window: int = 1
    max_age_us: int = 1_000_000

    @property
    def full(self) -> int:
        return (1 << self.size) - 1

    def members_at(self, port: int) -> int:
        if self.members is not None:
            return self.members.get(port, 0)
        return 1 << port if port < self.size else 0

    @property
    def ports(self) -> list[int]:
        return list(range(self.size) if self.members is None else self.members)

    def rank_at(self, port: int) -> int | None:
        return (port if self.ranks is None else self.ranks.get(port)) if port != self.uplink else None

    def takers_at(self, port: int) -> range:
        """Return the ranks for which what is at a port takes results."""
        rank = self.rank_at(port)
        return self.ranks_below.get(port, ALL_RANKS) if rank is None else range(rank, rank + 1)


def admissions(tree: Tree, slots: int, *, fallback: bool = False, **options: Any) -> dict[int, Job]:
    """Return a job's admission for each node of its tree: child b at port b, the uplink after them."""
    jobs = {}
    for node, children in tree.nodes.items():
        parent = None
        if node:
            above, bitmap = tree.parent(-node)
            parent = (above, bitmap, tree.fan_in(above))
        jobs[node] = Job(
            len(children),
            slots,
            ranks={bit: child for bit, child in enumerate(children) if child >= 0},
            uplink=len(children) if node or fallback else None,
            node=node,
            parent=parent,
            result_bitmap=tree.result_bitmap,
            below={bit: _nodes_below(tree, -child) for bit, child in enumerate(children) if child < 0},
            **options,
        )
    return jobs


def _nodes_below(tree: Tree, node: int) -> range:
    """Return a node and all below it, which are numbered in a row."""
    last = node
    while inner := [-child for child in tree.nodes[last] if child < 0]:
        last = max(inner)
    return range(node, last + 1)


@functools.cache
def built(name: ProgramName, lanes: int) -> tuple[ir.Program, Path]:
    program = p4src_program(name, LANES=lanes, SLOTS=SLOTS)
    return program, build(program)


def exact(*values: int) -> tuple[ir.Pattern, ...]:
    return tuple(ir.Pattern("exact", value) for value in values)


class CompiledSwitch(Switch):
    """A switch in virtual time, which goes with the object."""

    def __init__(self, ports: Iterable[int], make_pipeline: Callable[[], CompiledPipeline]) -> None:
        super().__init__({port: MemoryPort() for port in sorted(ports)})
        self._make_pipeline = make_pipeline
        self.forget()

    def forget(self) -> None:
        """Lose all sums, and keep the jobs."""
        self.load(self._make_pipeline())

    def __del__(self) -> None:
        self.close()


def exclusive_switch(job: int, size: int, slots: int, **fields: Any) -> CompiledSwitch:
    """Return an exclusive switch with one job, rank r at port r."""
    return compiled_from({job: Job(size, slots, **fields)}, LANES, "exclusive")


def compiled_from(
    jobs: Mapping[int, Job], lanes: int, name: ProgramName, more_ports: Iterable[int] = ()
) -> CompiledSwitch:
    """Return a switch with these jobs, and ports that none of them uses."""
    ports = set(more_ports) | {port for job in jobs.values() for port in job.ports}
    ports |= {job.uplink for job in jobs.values() if job.uplink is not None}
    switch = CompiledSwitch(ports, lambda: pipeline_of(jobs, lanes, name))
    for row, job in enumerate(jobs.values(), start=1):
        switch.set_multicast_group(row, [(port, job.members_at(port).bit_length()) for port in job.ports])
    return switch


def pipeline_of(jobs: Mapping[int, Job], lanes: int, name: ProgramName) -> CompiledPipeline:
    """Return a program with the entries of these jobs; each one's row and multicast group are its place."""
    program, path = built(name, lanes)
    pipeline = CompiledPipeline(program, path)
    names = {full.rpartition(".")[2]: full for full in (*program.tables, *program.actions)}

    def insert(table: str, keys: tuple[int, ...], action: str, *arguments: int) -> None:
        invocation = ir.Invocation(names[action], arguments)
        pipeline.insert(names[table], ir.ConstEntry(exact(*keys), invocation, 0))

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
        for port in job.ports:
            members = job.members_at(port)
            below = job.below.get(port, range(0))
            insert("member", (number, port), "set_member", members, below.start, len(below))
            insert("receiver", (number, members.bit_length()), *receiver(job, port))
        if job.uplink is not None:
            node, bitmap, fan_in = job.parent or (0, 0, 0)
            insert("member", (number, job.uplink), "set_parent")
            insert("receiver", (number, 0), *receiver(job, job.uplink))
            insert(
                *("uplink", (number,), "set_uplink", job.uplink, node, bitmap, fan_in, row),
                *(job.node, job.size),
            )
    return pipeline


def receiver(job: Job, port: int) -> tuple[str, *tuple[int, ...]]:
    """Return the action that addresses copies for what is at a port, and its arguments."""
    address = 0x020000000000 + port, 0x0A000001 + port, wire.INA_UDP_PORT
    rank, takers = job.rank_at(port), job.takers_at(port)
    if rank is not None:
        return "deliver", *address, rank
    return "pass_on", *address, takers.start, len(takers)
