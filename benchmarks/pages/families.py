"""Kinds of clusters and jobs on which whole stacks of policies are compared: a workload for each seed.

The usual cluster has two spines and four racks of four servers with four GPUs, on links of 100 Gb/s and 200
Gb/s between switches, of 2,048 slots each. The usual jobs are 24 of ResNet-50, VGG-16 and BERT-base with 2 to
12 workers, which arrive at random; half of them have deadlines of 1.2 to 3 times their times alone. Each
family changes one thing, except the last one, from the page on deadlines: jobs of four workers on twelve
servers at one switch, with deadlines of 1.5 times their times alone. The fat-tree, the slow links between
switches and the overload were added after all policies were made, and before a last change of `joint`.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from benchmarks.pages.deadlines import Setting, jobs_of
from controller.simulator.network.generate import generate
from controller.vocabulary import Job, Topology, fabrics

SEEDS: Final = (3, 5001, 4, 5002, 5, 5003, 6, 5004, 7, 5005)
"""Seeds; every other one was drawn after all policies were fixed."""
ONE_SWITCH: Final = "one switch, tight deadlines"
JOBS: Final = 24
MODELS: Final = ("resnet50", "vgg16", "bert-base")
SLACKS: Final = (1.2, 3.0)
HOLD_S: Final = 40e-6
SLOW_BPS: Final = 10e9
PARTS: Final = fabrics.Parts(gpus=4, slots=2048, trunk_bps=200e9)


@dataclass(frozen=True, slots=True)
class Family:
    """How a family differs from the usual.

    Attributes:
        sizes: Numbers of workers, drawn with equal chances.
        gap_s: Mean time between arrivals; 0: all at once.
        parts: The cluster's parts.
        slow: Fraction of servers with links of a tenth of the rate.
        giant: Whether one job in the middle has as many workers as half of the GPUs.
        models: Models of the jobs.
        slacks: Range of the deadlines, relative to jobs' times alone.
        fat_tree: Whether the servers are in a fat-tree of switches with four ports, two at each edge.
    """

    sizes: Sequence[int] = (2, 4, 8, 12)
    gap_s: float = 10.0
    parts: fabrics.Parts = PARTS
    slow: float = 0.0
    giant: bool = False
    models: Sequence[str] = MODELS
    slacks: tuple[float, float] = SLACKS
    fat_tree: bool = False


FAMILIES: Final[Mapping[str, Family]] = {
    "usual": Family(),
    "odd sizes": Family(sizes=(3, 5, 7, 11, 13)),
    "one giant": Family(giant=True),
    "all at once": Family(gap_s=0.0),
    "all small": Family(sizes=(1, 2, 3, 4), gap_s=3.0),
    "dense": Family(models=("vgg16",), gap_s=15.0),
    "mixed link rates": Family(slow=0.5, gap_s=20.0),
    "5 % of switches sum": Family(parts=replace(PARTS, programmable=0.05), gap_s=15.0),
    "no switch memory": Family(parts=replace(PARTS, programmable=0.0), gap_s=15.0),
    "GPUs are scarce": Family(parts=replace(PARTS, slots=8192), gap_s=5.0),
    "memory is scarce": Family(parts=replace(PARTS, gpus=8, slots=512), models=("vgg16",), gap_s=12.0),
    "fat-tree": Family(fat_tree=True),
    "slow links between switches": Family(parts=replace(PARTS, trunk_bps=25e9), gap_s=15.0),
    "overloaded": Family(parts=replace(PARTS, gpus=2), gap_s=5.0, slacks=(1.2, 2.0)),
}
LATER: Final[Mapping[str, Family]] = {
    "very tight deadlines": Family(slacks=(1.1, 1.4)),
    "loose deadlines, crowded": Family(gap_s=4.0, slacks=(2.0, 5.0)),
    "some slow links, odd sizes": Family(sizes=(3, 5, 7, 11, 13), slow=0.25, gap_s=15.0),
    "fat-tree, 20 % sum": Family(parts=replace(PARTS, programmable=0.2), fat_tree=True, gap_s=12.0),
    "single servers and halves": Family(sizes=(1, 2, 24), gap_s=15.0),
    "BERT, little memory": Family(models=("bert-base",), parts=replace(PARTS, slots=512), gap_s=20.0),
}
"""Families drawn after `joint` and `on-time` had learnt to doubt given durations."""


NAMES: Final = (*FAMILIES, ONE_SWITCH)


def workload(name: str, seed: int) -> tuple[list[Job], Topology]:
    """Return the jobs and the cluster of a family for a seed."""
    if name == ONE_SWITCH:
        return jobs_of(10_000 + seed, Setting(memory=2.0, slack=1.5, gpus=2))
    family = {**FAMILIES, **LATER}[name]
    rng = random.Random(f"{name} {seed}")
    parts = replace(family.parts, seed=seed)
    topology = fabrics.fat_tree(4, 2, parts) if family.fat_tree else fabrics.leaf_spine(2, 4, 4, parts)
    if family.slow:
        topology = slowed(topology, family.slow, rng)
    jobs = generate(JOBS, topology, seed=seed, models=family.models, gap_s=family.gap_s)
    return [_dressed(job, number, family, topology, rng) for number, job in enumerate(jobs)], topology


def slowed(topology: Topology, share: float, rng: random.Random) -> Topology:
    """Return a cluster where a share of the servers, drawn, have links of a tenth of the rate."""
    names = [server.name for server in topology.servers]
    slow = {*rng.sample(names, round(share * len(names)))}
    links = (replace(link, rate_bps=SLOW_BPS) if slow & {link.a, link.b} else link for link in topology.links)
    return replace(topology, links=tuple(links))


def _dressed(job: Job, number: int, family: Family, topology: Topology, rng: random.Random) -> Job:
    """Return the job with its size, its hold time and, every other time, a deadline."""
    workers = rng.choice(family.sizes)
    if family.giant and number == JOBS // 2:
        workers = topology.gpus // 2
    goodput_bps = family.parts.rate_bps * 256 / 326
    deadline_s = rng.uniform(*family.slacks) * job.iterations * job.iteration_at_s(goodput_bps)
    due = rng.random() < 0.5
    return replace(job, workers=workers, hold_s=HOLD_S, deadline_s=deadline_s if due else None)
