"""The testbed of 32 schedules of faults: switches with the compiled program, and admitted jobs.

Before each schedule the slots and counters are cleared, and the jobs' table rows written anew; nothing is
built again. The next testbed takes over the switches, from a `SwitchPool`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from types import TracebackType
from typing import Self

from bmv2_topos.soak import tofino
from bmv2_topos.soak.programs import GENERATION, SLOT_PREFIX, program_of, slots_of
from bmv2_topos.soak.schedule import JobPlan, SoakTestbed
from bmv2_topos.testbeds.virtual.admission import SlotRequest, VirtualFleet
from bmv2_topos.testbeds.virtual.network import Wire
from controller import Mode, Region
from controller.switches import names
from controller.switches.model import AGEING, COLUMNS, OUTCOMES
from controller.switches.programs import objects
from controller.switches.tofino_rows import COUNTER
from controller.vocabulary import Topology
from softswitch import Switch, load, p4info, parse_port
from softswitch.compiler import ir
from softswitch.engine.pipeline import Pipeline

_PORTS = range(1, 33)
MOVE_PREFIX = f"{names.CHANGE}_"
"""Prefix of the names of registers that hold the progress of jobs' moves to other regions. A job's register
cell has the same index as the job's counter cell."""
_JUNK = 0x5A5A_A5A5
"""Initial value of the lane registers: programs must not rely on zeros."""


class SwitchPool:
    """A pool of switches that run one program, which one testbed after another uses."""

    def __init__(self, program: ir.Program) -> None:
        self.program = program
        self.objects = objects(p4info(program))
        self._free: list[tuple[Switch, Pipeline]] = []
        self._all: list[Switch] = []
        self._rounds = 0

    @classmethod
    def for_program(cls, mode: Mode, own: str | None = None) -> Self:
        """Return a pool of switches that run the user's program `own`; None: p4src's program of `mode`."""
        return cls(program_of(mode, own))

    def acquire(self) -> tuple[Switch, Pipeline]:
        """Return a switch without jobs: one from the pool, or a new switch."""
        if self._free:
            return self._free.pop()
        switch = Switch({port: parse_port("memory") for port in _PORTS})
        self._all.append(switch)
        pipeline = load(self.program)
        switch.load(pipeline)
        for name, register in self.program.registers.items():
            if name.startswith((names.LANE_REGISTERS, tofino.LANE_REGISTERS)):
                for index in range(register.size):
                    pipeline.write_register(name, index, _JUNK)
        return switch, pipeline

    def release(self, switch: Switch, pipeline: Pipeline) -> None:
        """Put a switch without jobs back into the pool."""
        self._free.append((switch, pipeline))

    def next_clock_us(self, low: int) -> int:
        """Return a clock time, in µs, later than all times returned before; its low 32 bits are `low`."""
        self._rounds += 2
        return self._rounds << 32 | low

    @property
    def worn_out(self) -> bool:
        """True if the times of `next_clock_us` may soon exceed the range of a switch's clock."""
        return self._rounds > 1 << 20

    def close(self) -> None:
        """Close all switches of the pool."""
        for switch in self._all:
            switch.close()


class RunningTestbed:
    """A `SoakTestbed` that is up: its jobs are admitted, and every port has its far end."""

    def __init__(self, testbed: SoakTestbed, pool: SwitchPool) -> None:
        self.testbed = testbed
        self.pool = pool
        self.switches: dict[str, Switch] = {}
        self.pipelines: dict[str, Pipeline] = {}
        for switch in testbed.topology.switches:
            self.switches[switch.name], self.pipelines[switch.name] = pool.acquire()
        self.wires, self.host_ports = _wires(testbed.topology)
        self.ways = {name: _ways(testbed, name) for name in self.switches}
        """By switch and job: ports by which the job's packets can leave the switch. Partial sums that the
        job's packets evict leave by these ports, too."""
        self.fleet = VirtualFleet(
            testbed.topology, self.switches, self.pipelines, pool.objects, slots=slots_of(testbed.program)
        )
        self._as_built = False
        """True while all jobs still have their first admission, so that `prepare` only updates their rows."""
        self._counted = False
        """True if the counters have been read and reset since the last schedule began."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        for job in list(self.fleet.jobs):
            self.remove(job)
        for name, switch in self.switches.items():
            self.pool.release(switch, self.pipelines[name])

    # ------------------------------------------------------------------ jobs

    def prepare(self, plans: Mapping[int, JobPlan]) -> None:
        """Clear slots, counters and ports, and admit the jobs of a schedule."""
        if self._as_built:
            for plan in plans.values():
                self._update_job(plan)
        else:
            for job in list(self.fleet.jobs):
                self.remove(job)
            for plan in plans.values():
                self.admit(plan, plan.generation)
            self._as_built = not self.testbed.tofino  # on Tofino, a job has many rows
        for name, pipeline in self.pipelines.items():
            if self.testbed.tofino:
                tofino.clear_slots(pipeline)
                continue
            self._clear_slots(pipeline)
            self._forget_moves(pipeline)
            self.mark_all(name, False)
        if not self._counted:
            self.collect_outcomes()
        self._counted = False
        self.strays()

    def _clear_slots(self, pipeline: Pipeline) -> None:
        registers = [name for name in self.pool.program.registers if name.startswith(SLOT_PREFIX)]
        for index in range(self.pool.program.registers[GENERATION].size):
            if pipeline.read_register(GENERATION, index):
                for register in registers:
                    pipeline.write_register(register, index, 0)

    def _forget_moves(self, pipeline: Pipeline) -> None:
        program = self.pool.program
        for row in range(1, len(self.testbed.placements) + 1):
            for register in program.registers:
                if register.startswith(MOVE_PREFIX):
                    pipeline.write_register(register, row, 0)
            if names.SETTLED in program.counters:
                pipeline.write_counter(names.SETTLED, row, 0, 0)

    def _update_job(self, plan: JobPlan) -> None:
        """Rewrite a job's rows in the job tables for the next schedule; its other entries stay the same."""
        for name, admission in self.fleet.jobs[plan.number].switches.items():
            changed = replace(admission, generation=plan.generation)
            if self.testbed.program == "shared":
                everything = Region(0, 0 if admission.transit else slots_of(self.testbed.program))
                changed = replace(
                    changed,
                    region=everything if plan.region is None or admission.transit else plan.region,
                    window=plan.window,
                    preempt=plan.preempt,
                    ageing=AGEING if plan.preempt else 0,
                    max_age_us=plan.max_age_us,
                )
            self.fleet.rewrite(name, changed)

    def admit(self, plan: JobPlan, generation: int) -> None:
        """Admit a job to the switches of its tree, with this generation."""
        request = SlotRequest(
            self.testbed.placements[plan.number - 1],
            window=plan.window,
            slots=self.testbed.slots[plan.number - 1],
            preempt=plan.preempt,
            region=plan.region,
            max_age_us=plan.max_age_us,
        )
        self.fleet.place(plan.number, request, generation)
        self._as_built = False

    def remove(self, job: int) -> None:
        """Remove a job from all its switches."""
        self.fleet.withdraw(job)
        self._as_built = False

    def mark_all(self, switch: str, marks: bool) -> None:
        """Make a switch mark every packet (ECN) or, if `marks` is False, only packets that met a queue."""
        marking = ir.Invocation(names.SET_ECN, (0,)) if marks else None
        self.pipelines[switch].set_default(names.ECN, marking)

    def strays(self) -> dict[str, int]:
        """Discard packets that left by ports outside their job's `ways`; return their number by switch."""
        return {
            name: sum(len(switch.drain_batch(port)[1]) for port in self.wires[name])
            for name, switch in self.switches.items()
        }

    def collect_outcomes(self) -> dict[str, Counter[str]]:
        """Return the number of packets since the last call, by switch and outcome; reset the counters."""
        self._counted = True
        taken = {}
        rows = range(len(self.testbed.placements) + 1)
        counter = COUNTER if self.testbed.tofino else names.OUTCOMES
        for name, pipeline in self.pipelines.items():
            found: Counter[str] = Counter()
            for row in rows:
                for outcome, column in OUTCOMES.items():
                    packets = pipeline.read_counter(counter, row * COLUMNS + column)[0]
                    if packets:
                        found[outcome] += packets
                        pipeline.write_counter(counter, row * COLUMNS + column, 0, 0)
            taken[name] = found
        return taken


def _wires(topology: Topology) -> tuple[dict[str, dict[int, Wire]], dict[str, tuple[str, int, int]]]:
    """Return two maps: by switch and port, the far end; by host, its switch, port and link number."""
    numbers = {(link.a, link.b): number for number, link in enumerate(topology.links)}
    wires: dict[str, dict[int, Wire]] = {}
    hosts: dict[str, tuple[str, int, int]] = {}
    for name, ports in topology.ports.items():
        wires[name] = {}
        for port, link in ports.items():
            other, number = link.other(name), numbers[link.a, link.b]
            if other in topology.ports:
                wires[name][port] = Wire(number, other, topology.port_to(other, name))
            else:
                wires[name][port] = Wire(number, other)
                hosts[other] = (name, port, number)
    return wires, hosts


def _ways(testbed: SoakTestbed, switch: str) -> dict[int, tuple[int, ...]]:
    topology = testbed.topology
    servers = {placement.server for placement in testbed.placements}
    up = [
        port
        for port, link in topology.ports[switch].items()
        if link.other(switch) == topology.parents[switch] or link.other(switch) in servers
    ]
    ways = {}
    for job, placement in enumerate(testbed.placements, start=1):
        paths = [(host, *topology.way(topology.rack_of[host], topology.root)) for host in placement.workers]
        below = {path[path.index(switch) - 1] for path in paths if switch in path}
        ways[job] = (*sorted(topology.port_to(switch, node) for node in below), *up)
    return ways
