"""Speed of the allocation policies on clusters of the sizes that papers use."""

from __future__ import annotations

import random
import time
from dataclasses import dataclass, replace

from controller.placement.flows import flows_of
from controller.placement.policies import POLICIES as PLACEMENTS
from controller.placement.policy import place
from controller.placement.trees import tree_of
from controller.placement.waterfill import Reading, waterfill
from controller.routing.policies import POLICIES as ROUTINGS
from controller.routing.policy import Question, score
from controller.simulator.network import generate
from controller.vocabulary import Job, Topology, fabrics


@dataclass(frozen=True, slots=True)
class Filling:
    """One water-filling: `build_s` is the time to make flows of the jobs, `processor_s` of both steps."""

    jobs: int
    links: int
    nodes: int
    build_s: float
    fill_s: float
    processor_s: float
    smallest_bps: float


def measure_waterfill(
    jobs: int = 10_000, links: int = 5_000, *, reading: Reading = "spill", seed: int = 0
) -> Filling:
    """Fill a leaf-spine with jobs of two to eight servers, whose trees are known.

    Args:
        jobs: Number of jobs.
        links: Approximate number of links.
        reading: Model of full memory; see `controller.placement.waterfill`.
        seed: Of the random jobs.
    """
    leaves = max(2, round(links / 50))
    cluster = fabrics.leaf_spine(16, leaves, max(1, round(links / leaves) - 16), fabrics.Parts(slots=65536))
    rng = random.Random(seed)
    placed = [_spread(cluster, f"j{number}", rng.choice((2, 3, 4, 8)), rng) for number in range(jobs)]
    placed = [replace(job, tree=tree_of(cluster, job)) for job in placed]
    begin, processor = time.perf_counter(), time.process_time()
    flows = flows_of(cluster, placed)
    built = time.perf_counter()
    steady = waterfill(flows, reading)
    end = time.perf_counter()
    processor = time.process_time() - processor
    smallest = float(steady.rate_bps.min(initial=float("inf")))
    return Filling(jobs, len(cluster.links), len(flows.job), built - begin, end - built, processor, smallest)


@dataclass(frozen=True, slots=True)
class Placing:
    """One batch placed; `value` is the GPUs that compute, on average."""

    servers: int
    gpus: int
    jobs: int
    policy: str
    time_s: float
    processor_s: float
    value: float
    waiting: int


def measure_placement(
    servers: int = 1000, jobs: int = 100, *, gpus: int = 8, policy: str = "netpack", seed: int = 0
) -> Placing:
    """Place a batch of jobs of 2 to 64 workers in racks of 40 servers under eight spines.

    Args:
        servers: Number of servers.
        jobs: Number of jobs.
        gpus: GPUs of each server.
        policy: Name of the placement policy.
        seed: Of the random jobs and of the policy.
    """
    cluster = fabrics.leaf_spine(8, max(1, servers // 40), min(servers, 40), fabrics.Parts(gpus=gpus))
    rng = random.Random(seed)
    sizes = [size for size in (2, 4, 8, 16, 32, 64) if size <= cluster.gpus]
    batch = [replace(job, workers=rng.choice(sizes)) for job in generate.generate(jobs, cluster, seed=seed)]
    begin, processor = time.perf_counter(), time.process_time()
    placed = place(cluster, batch, PLACEMENTS[policy], seed=seed)
    time_s, processor_s = time.perf_counter() - begin, time.process_time() - processor
    return Placing(
        len(cluster.servers),
        cluster.gpus,
        jobs,
        policy,
        time_s,
        processor_s,
        placed.state.value,
        len(placed.waiting),
    )


@dataclass(frozen=True, slots=True)
class Routing:
    """One run of a routing policy; `smallest_bps` is the least rate of a job."""

    switches: int
    servers: int
    jobs: int
    policy: str
    time_s: float
    processor_s: float
    smallest_bps: float
    total_bps: float


def measure_routing(
    k: int = 8,
    hosts: int = 6,
    jobs: int = 1,
    *,
    programmable: float = 1.0,
    draws: int = 8,
    policy: str = "grid",
    seed: int = 0,
) -> Routing:
    """Route jobs on a fat-tree; a single job takes all servers, one of several takes sixteen.

    Args:
        k: Ports of a switch.
        hosts: Servers at each edge switch.
        jobs: Number of jobs.
        programmable: Fraction of the switches that can sum.
        draws: Random draws of the policy.
        policy: Name of the routing policy.
        seed: Of the random servers, switches and draws.
    """
    cluster = fabrics.fat_tree(k, hosts, fabrics.Parts(programmable=programmable, seed=seed))
    rng = random.Random(seed)
    size = len(cluster.servers) if jobs == 1 else min(16, len(cluster.servers))
    placed = tuple(_spread(cluster, f"j{number}", size, rng) for number in range(jobs))
    question = Question(cluster, placed, draws, random.Random(seed))
    begin, processor = time.perf_counter(), time.process_time()
    trees = ROUTINGS[policy](question)
    time_s, processor_s = time.perf_counter() - begin, time.process_time() - processor
    worth = score(question.evaluate(trees))
    return Routing(
        len(cluster.switches),
        len(cluster.servers),
        jobs,
        policy,
        time_s,
        processor_s,
        float(worth[0]),
        float(worth[1]),
    )


def _spread(cluster: Topology, name: str, servers: int, rng: random.Random) -> Job:
    hosts = rng.sample([server.name for server in cluster.servers], servers)
    return Job(
        name=name,
        workers=servers,
        layers_bytes=(100_000_000,),
        servers=tuple(hosts),
        iterations=1,
        compute_s=0.0,
    )
