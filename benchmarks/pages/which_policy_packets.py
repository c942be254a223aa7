"""A schedule of the page `which-policy`, packet by packet: what jobs take on their places in the testbed.

A workload is simulated as flows under a stack of policies. Then every stretch of every job, from a start or a
move to the next stop, is run in the virtual testbed: from the same moment, on the same servers and switches,
beside the others, through the compiled programs. A job that is longer in packets ends as much later.
"""

from __future__ import annotations

import math
import random
import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Final

from benchmarks.pages.cases import COALESCE_S, LANES, PAYLOAD_BITS, RESENT, WINDOW, alone_s
from bmv2_topos.harness import Call, ResultRow, markdown, selected
from bmv2_topos.testbeds.virtual import VirtualSettings, VirtualTestbed
from bmv2_topos.testbeds.virtual.by_policy import placement_of, ranks_of
from controller.core.allocation import Allocation
from controller.core.compose import networked, submission_of
from controller.core.events import Submitted
from controller.policies.memory.policy import Answer, Question
from controller.policies.registry import SCHEDULER
from controller.simulator.engine import Simulation
from controller.simulator.network.speed import NetworkSettings, NetworkSpeed
from controller.vocabulary import Job, Region, Topology, fabrics, float32_bytes

PART: Final = "packets"
JOBS: Final = 10
ITERATIONS: Final = 48
SEEDS: Final = (1, 2, 3, 4, 5)
GAP_S: Final = 3e-3
SLOTS: Final = 512
SLOW_BPS: Final = 2e9
DELAY_S: Final = 2e-6
MIXED: Final = "mixed link rates"
AMPLE: Final = f"{MIXED}, {4 * SLOTS:,} slots"
NONE: Final = "no switch memory"
KINDS: Final = ("usual", MIXED, AMPLE, NONE)
STACKS: Final[Mapping[str, tuple[str, str, str]]] = {
    "fifo-backfill + locality": ("fifo-backfill", "locality", "shortest-path"),
    "edf + netpack + ecmp-everywhere": ("edf", "netpack", "ecmp-everywhere"),
    "joint": ("joint", SCHEDULER, "shortest-path"),
}
"""Scheduler, placement and routing; slots are shared."""


@dataclass(slots=True)
class Stretch:
    """A job on one place, from `begin_s` on, for some of its iterations; `lasts_s` as flows."""

    job: Job
    begin_s: float
    iterations: float
    lasts_s: float = math.nan


class _Stretches:
    """Watches an allocation: which stretches jobs ran."""

    def __init__(self, allocation: Allocation) -> None:
        self._allocation = allocation
        self.of: dict[str, list[Stretch]] = {}
        self._attained_s: dict[str, float] = {}

    def placed(self, now_s: float, job: Job) -> None:
        """Begin a stretch, and end the job's one before."""
        state = self._allocation.state(job.name)
        left, attained_s = state.iterations_left(now_s), state.attained_s(now_s)
        before = self.of.setdefault(job.name, [])
        if before:
            before[-1].iterations -= left
            before[-1].lasts_s = attained_s - self._attained_s[job.name]
        self._attained_s[job.name] = attained_s
        before.append(Stretch(job, now_s, left))

    def divided(self, now_s: float, question: Question, answer: Answer) -> None:
        """Ignore memory: all jobs share all slots."""


def small(kind: str, seed: int, iterations: int = ITERATIONS) -> tuple[list[Job], Topology]:
    """Return the jobs and the cluster of a kind, for a seed."""
    rng = random.Random(f"{kind.partition(',')[0]} {seed}")
    rtt_s = 2 * 2 * 2 * DELAY_S + COALESCE_S
    slots = 0 if kind == NONE else 4 * SLOTS if kind == AMPLE else SLOTS
    parts = fabrics.Parts(gpus=2, rate_bps=10e9, trunk_bps=10e9, slots=slots, lanes=LANES, rtt_s=rtt_s)
    topology = fabrics.leaf_spine(2, 4, 2, parts)
    if kind in (MIXED, AMPLE):
        slow = {*rng.sample([server.name for server in topology.servers], 4)}
        links = (
            replace(link, rate_bps=SLOW_BPS) if slow & {link.a, link.b} else link for link in topology.links
        )
        topology = replace(topology, links=tuple(links))
    jobs: list[Job] = []
    now_s = 0.0
    for number in range(JOBS):
        job = Job(
            name=f"job{number}",
            workers=rng.choice((2, 4, 6)),
            window=WINDOW,
            iterations=rng.randrange(iterations, 2 * iterations),
            layers_bytes=float32_bytes((rng.choice((8192, 16384)),)),
            compute_s=rng.choice((1e-4, 2e-4)),
            arrival_s=now_s,
            hold_s=PAYLOAD_BITS / 10e9,
        )
        deadline_s = rng.uniform(1.2, 3.0) * job.iterations * alone_s(job)
        jobs.append(replace(job, deadline_s=deadline_s if number % 2 else None))
        now_s += rng.expovariate(1 / GAP_S)
    return jobs, topology


def scenarios(quick: bool) -> Iterator[Call]:
    """Return a call for each kind, stack and seed, of some ten seconds each."""
    for kind in KINDS[:1] if quick else KINDS:
        for name in list(STACKS)[-1:] if quick else STACKS:
            for seed in SEEDS[:1] if quick else SEEDS:
                iterations = 2 if quick else ITERATIONS
                yield Call(
                    labels={"part": PART, "kind": kind, "stack": name, "seed": seed},
                    call=partial(compared, kind, name, seed, iterations),
                )


def compared(kind: str, stack: str, seed: int, iterations: int = ITERATIONS) -> ResultRow:
    """Return misses and mean completion times of a workload as flows and in packets."""
    jobs, topology = small(kind, seed, iterations)
    stretches, ended_s = as_flows(jobs, topology, STACKS[stack], seed)
    lasts_s = as_packets([each for own in stretches.values() for each in own], topology, seed)
    due = {job.name: job.due_s for job in jobs if job.due_s is not None}
    later_s = {name: sum(lasts_s[id(each)] - each.lasts_s for each in own) for name, own in stretches.items()}
    errors = [
        each.lasts_s / lasts_s[id(each)] - 1
        for own in stretches.values()
        for each in own
        if len(each.job.hosts) > 1 and each.iterations >= 1
    ]
    arrival_s = {job.name: job.arrival_s for job in jobs}
    return {
        "deadlines": len(due),
        "flows_missed": sum(ended_s[name] > due_s for name, due_s in due.items()),
        "packets_missed": sum(ended_s[name] + later_s[name] > due_s for name, due_s in due.items()),
        "flows_s": statistics.fmean(ended_s[name] - arrival_s[name] for name in ended_s),
        "packets_s": statistics.fmean(ended_s[name] + later_s[name] - arrival_s[name] for name in ended_s),
        "error": statistics.median(map(abs, errors)) if errors else 0.0,
        "worst": max(errors, key=abs, default=0.0),
        "stretches": len(errors),
    }


def as_flows(
    jobs: Sequence[Job], topology: Topology, stack: tuple[str, str, str], seed: int
) -> tuple[dict[str, list[Stretch]], dict[str, float]]:
    """Return the stretches of each job under these policies, and when each ends, in seconds."""
    scheduler, placement, routing = stack
    settings = NetworkSettings(
        placement=placement, routing=routing, memory="shared", window=WINDOW, resent=RESENT, seed=seed
    )
    parts = networked(topology, scheduler, settings)
    allocation = parts.allocation
    watcher = _Stretches(allocation)
    allocation.watchers.append(watcher)
    simulation = Simulation(
        [Submitted(job.arrival_s, submission_of(job, allocation.topology), job) for job in jobs],
        parts.servers,
        parts.setup,
        allocation=allocation,
        speed=NetworkSpeed(parts.setup.speed, allocation, settings),
    )
    ended_s = {each.spec.name: each.finish_s for each in simulation.run().jobs}
    for name, own in watcher.of.items():
        own[-1].lasts_s = ended_s[name] - own[-1].begin_s
    return watcher.of, ended_s


def as_packets(stretches: Sequence[Stretch], topology: Topology, seed: int) -> dict[int, float]:
    """Return the seconds that each stretch takes in the testbed, by the object's id.

    A stretch on one server sends nothing: it computes. Parts of iterations are rounded, and counted by the
    mean time of one.
    """
    lasts_s: dict[int, float] = {}
    sending: dict[str, Stretch] = {}
    for number, each in enumerate(stretches):
        if len(each.job.hosts) == 1:
            lasts_s[id(each)] = each.iterations * each.job.compute_s
        elif each.iterations < 0.5:
            lasts_s[id(each)] = each.lasts_s
        else:
            sending[f"{each.job.name}.{number}"] = each
    regions = {switch.name: Region(0, switch.slots) for switch in topology.switches if switch.aggregates}
    ranks, placements = [], []
    for name, each in sending.items():
        job = replace(
            each.job, name=name, iterations=round(each.iterations), arrival_s=each.begin_s, deadline_s=None
        )
        placements.append(placement_of(topology, job, regions, shares=True))
        ranks.append(ranks_of(job, regions, shares=True))
    most = max(switch.slots for switch in topology.switches) or SLOTS
    settings = VirtualSettings(slots=most, lanes=LANES, samples=0, seed=seed)
    report = VirtualTestbed(topology, ranks, placements, settings).run()
    for done in report.jobs:
        assert done.jct_s is not None, f"{done.name} was not done"
        each = sending[done.name]
        lasts_s[id(each)] = done.jct_s * each.iterations / round(each.iterations)
    return lasts_s


def table(rows: Sequence[ResultRow]) -> str:
    """Return the table of flows beside packets."""
    mine = selected(rows, part=PART)
    lines = []
    for kind in dict.fromkeys(str(row["kind"]) for row in mine):
        for name in dict.fromkeys(str(row["stack"]) for row in mine):
            here = selected(mine, kind=kind, stack=name)
            worst = max((float(row["worst"] or 0.0) for row in here), key=abs)
            lines.append(
                [
                    kind,
                    f"`{name}`",
                    str(_sum(here, "packets_missed")),
                    str(_sum(here, "flows_missed")),
                    str(_sum(here, "deadlines")),
                    f"{_mean(here, 'packets_s') * 1e3:.1f}",
                    f"{_mean(here, 'flows_s') * 1e3:.1f}",
                    f"{_mean(here, 'error'):.0%} ({worst:+.0%})",
                ]
            )
    head = ["missed, packets", "missed, flows", "deadlines", "packets, ms", "flows, ms", "error"]
    return markdown(["kind", "policies", *head], lines)


def _sum(rows: Sequence[ResultRow], key: str) -> int:
    return sum(int(row[key] or 0) for row in rows)


def _mean(rows: Sequence[ResultRow], key: str) -> float:
    return statistics.fmean(float(row[key] or 0.0) for row in rows)
