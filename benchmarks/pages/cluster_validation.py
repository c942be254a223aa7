"""Validation of the flow-level simulator: completion times beside the packet testbed's.

Each scenario is run packet by packet in the virtual testbed, and as flows: one to sixteen jobs on one switch
or on two racks, with a policy for switch memory. Nothing is fitted to a scenario: the flows know
only the frame's size, the window, and a round trip, from the topology.
"""

from __future__ import annotations

import math
import random
import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Final

import numpy as np

from bmv2_topos.harness import Call, Experiment, ResultRow, columns, grouped, markdown, number
from bmv2_topos.testbeds.virtual import (
    Placement,
    Reallocation,
    RunningJob,
    VirtualSettings,
    VirtualTestbed,
    build,
)
from bmv2_topos.testbeds.virtual.report import JobReport
from controller.policies.memory.policy import MemoryProblem
from controller.policies.registry import MEMORIES
from controller.policies.settings import FRAME_BYTES
from controller.simulator.network.run import NetworkResult, NetworkSettings, NetworkTask, simulate_network
from controller.vocabulary import Job, Region, Topology, float32_bytes
from controller.vocabulary.graphs import with_memory

PACKETS: Final = "packets"
FLOWS: Final = "average"
"""Names of a run's columns: times in packets, and as flows."""
SHARED: Final = "shared"
POLICIES: Final = (SHARED, "static", "deadline", "preemptive")
SWITCH, RACKS, SETS = "switch", "racks", "policies"
"""First words of the scenarios' names."""
SAID: Final = {SWITCH: "one switch", RACKS: "two racks", SETS: "sets under policies"}
COUNTS: Final = (1, 2, 3, 4, 6, 8, 12, 16)
"""Jobs of random scenarios."""
QUICK: Final = ("racks 32", "policies 2")
WINDOW: Final = 64
LANES: Final = 64
COALESCE_S: Final = 5e-6
PAYLOAD_BITS: Final = LANES * 32
RESENT: Final = 0.005
"""Part of a link's packets that is sent again for each further job that fills it, as counted in the testbed
on two racks: 0.5 %, in scenarios with even numbers and with odd numbers."""
FORWARD: Final = 1 / 3
"""Part of computing before gradients can be ready, in the testbed."""
SAME: Final = 0.01
"""Times that differ by less have the same rank."""


@dataclass(frozen=True, slots=True)
class Case:
    """Jobs on one switch, or on racks (`shape`), with a number of slots at each, and deadlines in seconds."""

    name: str
    jobs: tuple[Job, ...]
    slots: int
    memory: str = SHARED
    shape: tuple[int, ...] | None = None
    deadlines: tuple[float | None, ...] = ()


def cases() -> Iterator[Case]:
    """Yield all scenarios: random ones, and sets of jobs under each policy, so that policies can be ranked.

    The random ones are 1 to 16 jobs on one switch or two racks, with ample or scarce memory.
    """
    for seed in range(40):
        rng = random.Random(seed)
        count = COUNTS[seed % 8]
        shape = (2, 2) if seed % 3 == 2 else None
        jobs = tuple(
            Job(
                name=f"job{number}",
                workers=rng.choice((2, 3, 4)) if shape is None else 4,
                window=WINDOW,
                iterations=rng.randrange(4, 10),
                layers_bytes=float32_bytes(
                    tuple(rng.choice((4096, 8192, 16384, 32768)) for _ in range(rng.choice((1, 2, 3))))
                ),
                compute_s=rng.choice((1e-4, 2e-4, 4e-4)),
                jitter=rng.choice((0.0, 0.05, 0.1)),
                congestion="aimd",
                arrival_s=rng.choice((0.0, 1e-3, 2e-3)),
            )
            for number in range(1, count + 1)
        )
        slots = rng.choice((32 * count, 64 * count, 8192, 8192))
        yield Case(f"{RACKS if shape else SWITCH} {seed}", jobs, slots, SHARED, shape)
    for seed in range(6):
        rng = random.Random(1000 + seed)
        count = (4, 8)[seed % 2]
        jobs = tuple(
            Job(
                name=f"job{number}",
                workers=4,
                window=WINDOW,
                iterations=6,
                layers_bytes=float32_bytes((rng.choice((8192, 16384)),)),
                compute_s=rng.choice((1e-4, 3e-4)),
                jitter=0.1,
                congestion="aimd",
            )
            for number in range(1, count + 1)
        )
        slots = rng.choice((16, 24, 32)) * count
        times_s = [alone_s(job) * job.iterations for job in jobs]
        deadlines = tuple(
            time_s * rng.uniform(1.15, 1.6) if number < count // 2 else None
            for number, time_s in enumerate(times_s)
        )
        for memory in POLICIES:
            yield Case(f"{SETS} {seed}", jobs, slots, memory, None, deadlines)


def alone_s(job: Job) -> float:
    """Return the time of an iteration of a job alone, from its packets."""
    wire_bits = (sum(job.tensors) / LANES + WINDOW) * (LANES * 4 + FRAME_BYTES) * 8
    return job.compute_s * (1 + skew(job)) + wire_bits / 10e9 + 10e-6


def skew(job: Job) -> float:
    """Return the mean delay of the slowest rank, as part of computing: each pass is drawn anew."""
    if not job.jitter:
        return 0.0
    draws = np.random.default_rng(0).uniform(-job.jitter, job.jitter, (4096, job.workers, 2))
    passes = draws @ np.array([FORWARD, 1 - FORWARD])
    return float(passes.max(axis=1).mean())


def scenarios(quick: bool) -> Iterator[Call]:
    """Return all runs."""
    for case in cases():
        if not quick or case.name in QUICK:
            labels: ResultRow = {
                "case": case.name,
                "memory": case.memory,
                "jobs": len(case.jobs),
                "slots": case.slots,
            }
            elements = sum(job.workers * job.iterations * sum(job.tensors) for job in case.jobs)
            yield Call(labels=labels, call=partial(both_ways, case), elements=elements)


def described(case: Case) -> tuple[list[Job], Topology, Topology, tuple[Placement, ...]]:
    """Return a scenario's jobs and cluster as in files, and the testbed's.

    A skewed job holds its slots for as long as its whole window takes on the link.
    """
    topology, placements = build(case.jobs, case.shape, servers=True)
    rtt_s = 2 * (2 if case.shape else 1) * 2 * topology.links[0].delay_s + COALESCE_S
    plain = with_memory(topology, slots=case.slots, gpus=1)
    switches = tuple(replace(each, lanes=LANES, rtt_s=rtt_s) for each in plain.switches)
    held_s = WINDOW * (PAYLOAD_BITS + FRAME_BYTES * 8) / topology.links[0].rate_bps
    deadlines = case.deadlines or (None,) * len(case.jobs)
    jobs = [
        Job(
            name=job.name,
            workers=job.workers,
            layers_bytes=tuple(4 * elements for elements in job.tensors),
            iterations=job.iterations,
            compute_s=job.compute_s,
            overlap=(1 - FORWARD) * (1 - 1 / len(job.tensors)),
            arrival_s=job.arrival_s,
            deadline_s=deadline_s,
            skew_s=skew(job) * job.compute_s,
            hold_s=held_s if job.jitter else PAYLOAD_BITS / 10e9,
            servers=placement.workers,
            fallback=placement.server,
        )
        for job, placement, deadline_s in zip(case.jobs, placements, deadlines, strict=True)
    ]
    return jobs, replace(plain, switches=switches), topology, placements


def as_flows(case: Case) -> NetworkResult:
    """Run a scenario in the flow-level simulator."""
    jobs, cluster, _, _ = described(case)
    settings = NetworkSettings(memory=case.memory, window=WINDOW, resent=RESENT, period_s=0.0, margin=0.0)
    return simulate_network(NetworkTask(jobs, cluster, "fifo-backfill", settings))


def as_packets(case: Case) -> dict[str, JobReport]:
    """Run a scenario packet by packet; return the results of the completed jobs."""
    jobs, cluster, topology, placements = described(case)
    settings = VirtualSettings(slots=max(case.slots, 1), lanes=LANES, samples=0)
    policy = _Divide(case.memory, jobs, cluster)
    allocation = None if case.memory == SHARED else Reallocation(policy, period_s=50e-6)
    report = VirtualTestbed(topology, case.jobs, placements, settings, allocation=allocation).run()
    return {job.name: job for job in report.jobs if job.jct_s is not None}


class _Divide:
    """Applies a memory policy to the testbed's controllers, when jobs start or end."""

    def __init__(self, memory: str, jobs: Sequence[Job], topology: Topology) -> None:
        self._memory = memory
        self._jobs = {job.name: job for job in jobs}
        self._topology = topology
        self._seen: tuple[str, ...] = ()
        self._held: dict[str, dict[str, Region]] = {}

    def __call__(self, time_s: float, running: Mapping[str, RunningJob]) -> dict[str, dict[str, Region]]:
        names = tuple(running)
        if names == self._seen:
            return {}
        self._seen = names
        remaining = []
        for name, seen in running.items():
            job = self._jobs[name]
            left = max(1, seen.entry.iterations - len(seen.ends_ns))
            late = job.due_s is not None and job.due_s <= time_s
            remaining.append(replace(job, iterations=left, deadline_s=None if late else job.deadline_s))
        problem = MemoryProblem(tuple(remaining), self._topology, time_s, "measured", self._held)
        division = MEMORIES[self._memory](problem)
        self._held = {name: dict(regions) for name, regions in division.regions.items()}
        return {
            name: {at: self._held[name].get(at, Region(0, 0)) for at in running[name].regions}
            for name in names
        }


def both_ways(case: Case) -> ResultRow:
    """Return each job's completion times, packet by packet and as flows."""
    row: dict[str, float | int | None] = {
        f"{name}.{PACKETS}_s": packet.jct_s for name, packet in as_packets(case).items()
    }
    return row | {f"{each.spec.name}.{FLOWS}_s": each.jct_s for each in as_flows(case).result.jobs}


def times(rows: Sequence[ResultRow], way: str) -> list[float]:
    """Return the completion times of all jobs of all rows, by `PACKETS` or by `FLOWS`."""
    return [number(row, name) for row in rows for name in row if name.endswith(f".{way}_s")]


def errors(rows: Sequence[ResultRow]) -> list[float]:
    """Return the relative errors of all completion times as flows, signed, the smallest first."""
    found = (
        number(row, f"{name.removesuffix(f'.{PACKETS}_s')}.{FLOWS}_s") / number(row, name) - 1
        for row in rows
        for name in row
        if name.endswith(f".{PACKETS}_s")
    )
    return sorted(found, key=abs)


def correlation(rows: Sequence[ResultRow]) -> float:
    """Return the rank correlation of policies in packets and as flows, in the rows of one set of jobs."""
    a, b = (_ranks([statistics.fmean(times([row], way)) for row in rows]) for way in (PACKETS, FLOWS))
    if np.std(a) == 0 or np.std(b) == 0:
        return 1.0 if np.std(a) == np.std(b) else 0.0
    return float(np.corrcoef(a, b)[0, 1])


def _ranks(values: Sequence[float]) -> list[float]:
    """Return the ranks of values; nearly equal values have the same rank."""
    return [
        sum(other < value * (1 - SAME) for other in values)
        + (sum(abs(other / value - 1) <= SAME for other in values) - 1) / 2
        for value in values
    ]


def tables(rows: Sequence[ResultRow]) -> str:
    """Return all tables."""
    sets = [row for row in rows if str(row["case"]).startswith(SETS)]
    parts = {
        "Errors of completion times": _errors(rows),
        "Mean completion times by policy, packets / flows, ms": _by_set(sets),
    }
    return "\n\n".join(f"### {title}\n\n{table}" for title, table in parts.items())


def _errors(rows: Sequence[ResultRow]) -> str:
    groups: dict[str, list[ResultRow]] = {"all": list(rows)}
    for row in rows:
        kind = str(row["case"]).split()[0]
        name = f"{kind}, {row['memory']}" if kind == SETS else SAID[kind]
        groups.setdefault(name, []).append(row)
    cells = []
    for name, chosen in groups.items():
        found = errors(chosen)
        size = [abs(error) for error in found]
        shown = (statistics.median(size), size[math.ceil(0.95 * len(size)) - 1], size[-1])
        counts = [str(len(chosen)), str(len(size))]
        mean = f"{statistics.fmean(found):+.1%}"
        cells.append([name, *counts, *(f"{each:.1%}" for each in shown), mean])
    return markdown(["scenarios", "number", "jobs", "median error", "p95", "worst", "mean, signed"], cells)


def _by_set(rows: Sequence[ResultRow]) -> str:
    cells, ranks = [], []
    for (case,), group in grouped(rows, "case").items():
        means = ([1e3 * statistics.fmean(times([row], way)) for way in (PACKETS, FLOWS)] for row in group)
        ranks.append(correlation(group))
        cells.append(
            [case, *(f"{packets:.2f} / {flows:.2f}" for packets, flows in means), f"{ranks[-1]:.2f}"]
        )
    mean = ["mean", *[""] * len(POLICIES), f"{statistics.fmean(ranks):.2f}"]
    return markdown(["jobs", *POLICIES, "rank correlation"], [*cells, mean])


EXPERIMENT = Experiment(
    name="cluster-validation",
    title="The flow-level simulator beside packets",
    scenarios=scenarios,
    measure=columns,
    tables=tables,
)
