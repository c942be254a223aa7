"""Speed of schedulers and simulators, on clusters of the sizes in papers."""

from __future__ import annotations

import multiprocessing
import os
import random
import resource
import sys
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass, replace
from typing import Annotated, Any

import numpy as np
import typer
from numpy.typing import NDArray

from benchmarks.fill import Seed, show, timed
from bmv2_topos.testbeds.virtual import (
    Placement,
    VirtualSettings,
    VirtualTestbed,
    random_flows,
    shortest_tree,
)
from controller.policies.family import SimulationConfig
from controller.policies.grouping.matching import Pairs, Weigh, match
from controller.policies.grouping.rounds import Profile, group
from controller.simulator.generate import KINDS
from controller.simulator.network import generate
from controller.simulator.network.run import NetworkSettings, NetworkTask, run_network
from controller.simulator.runs import SimulationTask, Source, kind_for, run
from controller.vocabulary import BadSpec, Cluster, Job, fabrics, fat_tree, float32_bytes
from controller.vocabulary import place as spread
from ina.cli import options
from ina.cli.command import Json

Figures = dict[str, float | int | str]
Many = Annotated[int, typer.Option(min=1, max=1_000_000)]

MOST_EXACT = 2_000


def losses_against_exact(profiles: Sequence[Profile], *, members: int | None = None) -> list[float]:
    """Group `profiles`; return the part of an exact matching's weight that each round loses.

    Takes as long as the exact matching: a few seconds for 1,000 jobs, growing with n^3. Raises as `group`.
    """
    found: list[float] = []

    def both(count: int, weigh: Weigh, kinds: Sequence[int], places: NDArray[np.float64] | None) -> Pairs:
        pairs = match(count, weigh, kinds, places)
        exact = _total(weigh, match(count, weigh, exact=True))
        found.append(1.0 - _total(weigh, pairs) / exact if exact else 0.0)
        return pairs

    group(profiles, members=members, matcher=both)
    return found


def _total(weigh: Weigh, pairs: Pairs) -> float:
    return sum(float(weigh(np.array([u]), np.array([v]))[0, 0]) for u, v in pairs)


def profiles(jobs: int, resources: int, kinds: int, seed: int) -> list[Profile]:
    """Return random profiles.

    Args:
        jobs: Number of jobs.
        resources: Number of stages of each.
        kinds: Number of different profiles; 0: all differ.
        seed: Seed of the random numbers.
    """
    rng = random.Random(seed)
    some = [tuple(rng.random() for _ in range(resources)) for _ in range(kinds or jobs)]
    if resources == 4 and kinds == len(KINDS):
        some = list(KINDS.values())
    return [rng.choice(some) for _ in range(jobs)] if kinds else some


def measure_grouping(jobs: int, *, resources: int = 4, kinds: int = 0, seed: int = 0) -> Figures:
    """Group jobs of random `profiles` once, after a small grouping as warm-up."""
    group(profiles(8, resources, 0, seed))
    found: Figures = {"jobs": jobs, "resources": resources, "kinds": kinds}
    given = profiles(jobs, resources, kinds, seed)
    plans, time_s = timed(group, given)
    total = sum(plan.interleaving.efficiency for plan in plans)
    found |= {"groups": len(plans), "time_s": time_s, "jobs_per_s": jobs / time_s}
    return found | {"total_efficiency": total, "mean_efficiency": total / max(1, len(plans))}


def grouping(
    jobs: Many = 1000,
    resources: Annotated[int, typer.Option(min=2, max=6)] = 4,
    kinds: Annotated[int, typer.Option(min=0)] = 0,
    seed: Seed = 0,
    exact: Annotated[bool, typer.Option("--exact")] = False,
    json: Json = False,
) -> None:
    """Group jobs of random stage times in rounds, as Muri does; --exact: and the loss by inexact matching."""
    if exact and jobs > MOST_EXACT:
        raise BadSpec(f"--exact with --jobs {jobs}: compares all pairs, so want at most {MOST_EXACT} jobs")
    found = measure_grouping(jobs, resources=resources, kinds=kinds, seed=seed)
    if exact:
        losses = losses_against_exact(profiles(jobs, resources, kinds, seed))
        found |= {f"loss_round_{number}": loss for number, loss in enumerate(losses, 1)}
    show("grouping", {"seed": seed}, found, as_json=json)


def measure_cluster(
    jobs: int, servers: int, gap_s: float, scheduler: str, settings: NetworkSettings, *, gpus: int = 8
) -> Figures:
    """Simulate jobs of 1 to 16 workers, `gap_s` apart, in racks of 16 servers under eight spines.

    Raises SimulationFailed, as `run_network`.
    """
    parts = fabrics.Parts(gpus=gpus, trunk_bps=200e9)
    topology = fabrics.leaf_spine(8, max(1, servers // 16), min(servers, 16), parts)
    batch = generate.generate(jobs, topology, seed=settings.seed, gap_s=gap_s)
    task = NetworkTask(jobs=batch, topology=topology, scheduler=scheduler, settings=settings)
    done, time_s = timed(run_network, task)
    metrics = done.metrics
    return {
        "jobs": jobs,
        "servers": len(topology.servers),
        "gpus": topology.gpus,
        "time_s": time_s,
        "processor_s": done.cpu_s,
        "makespan_s": metrics.makespan_s,
        "gpu_busy": metrics.gpu_busy,
    }


@dataclass(frozen=True, slots=True)
class Case:
    """A simulation to measure: jobs of a scheduling policy, or of a cluster with a network.

    `servers` is 0 for eight nodes without a network; `target_s` is the processor time that it should need.
    """

    policy: str
    jobs: int
    target_s: float
    servers: int = 0


CASES = (
    Case("muri-s", 10_000, 8.0),
    Case("weave-s", 10_000, 8.0),
    Case("weave-s", 50_000, 60.0),
    Case("fifo-backfill", 10_000, 8.0, servers=256),
)
LARGE = Case("fifo-backfill", 100_000, 600.0, servers=2048)
"""A simulation that takes minutes; jobs arrive eight times as fast, for eight times as many servers."""


def schedulers(
    *,
    large: bool = False,
    share: Annotated[float, typer.Option(min=0.001, max=1)] = 1.0,
    seed: Seed = 0,
    json: Json = False,
) -> None:
    """Simulate long traces by schedulers and by a cluster, each in a process of its own.

    Jobs of schedulers are generated, at a load of 0.9 on eight nodes of eight GPUs. The ratio is processor
    time over its target: at most 1, the target is met. It grows by half and more while others use the same
    processors. --share simulates this share of the jobs, against that share of the targets.
    """
    found = {}
    for case in (*CASES, *([LARGE] if large else [])):
        part = replace(case, jobs=max(1, round(case.jobs * share)), target_s=case.target_s * share)
        processor_s, memory_bytes = _apart(_processor_s, part, seed)
        where = f", {part.servers} servers" if part.servers else ""
        found[f"{part.policy}, {part.jobs} jobs{where}"] = {
            **asdict(part),
            "processor_s": processor_s,
            "memory_bytes": memory_bytes,
            "ratio": processor_s / part.target_s,
        }
    show("schedulers", {"load": os.getloadavg()[0], "seed": seed}, found, as_json=json)


def _processor_s(case: Case, seed: int) -> float:
    if case.servers:
        settings = NetworkSettings(placement="netpack", memory="shared", routing="shortest-path", seed=seed)
        done = measure_cluster(case.jobs, case.servers, 2.0 * 256 / case.servers, case.policy, settings)
        return float(done["processor_s"])
    source = Source(count=case.jobs, load=0.9, seed=seed, kind=kind_for([case.policy]))
    return run(SimulationTask(case.policy, source, SimulationConfig(Cluster.uniform(8, 8), seed=seed))).cpu_s


def simulation(
    radix: Annotated[int, typer.Option(min=2, max=32)] = 16,
    jobs: Annotated[int, typer.Option(min=1, max=1000)] = 100,
    workers: Annotated[int, typer.Option(*options.WORKERS, min=1, max=1024)] = 8,
    iterations: Annotated[int, typer.Option(min=1)] = 3,
    flows: Annotated[int, typer.Option(min=0)] = 100,
    seed: Seed = 0,
    json: Json = False,
) -> None:
    """Simulate jobs packet by packet on a fat tree of `radix` ports a switch: 16 ports make 1,024 hosts.

    Jobs share slots; each has a tree of its own, whose root is a core switch; an iteration is two sums of 128
    KiB, each compared with the exact one; a flow of ordinary packets sends 2 Gb/s. A packet hop is a packet
    that passes a link; hops are per second of processor time.
    """
    began = time.process_time()
    topology = fat_tree(radix, servers=jobs)
    cores = (radix // 2) ** 2
    entries = [
        Job(
            name=f"job{number}",
            workers=workers,
            window=64,
            numbers="fixed",
            iterations=iterations,
            layers_bytes=float32_bytes((32768, 32768)),
            compute_s=100e-6,
            jitter=0.05,
        )
        for number in range(1, jobs + 1)
    ]
    placements = [
        Placement(hosts, f"p{number + 1}", shortest_tree(topology, f"s{number % cores + 1}"))
        for number, hosts in enumerate(spread(topology, [workers] * jobs))
    ]
    traffic = random_flows(topology, flows, 2e9, seed)
    testbed = VirtualTestbed(
        topology, entries, placements, VirtualSettings(samples=0, seed=seed), flows=traffic
    )
    ready = time.process_time()
    report = testbed.run()
    processor_s = time.process_time() - ready
    found: Figures = {
        "hosts": len(topology.servers_for("worker")),
        "switches": len(topology.switches),
        "packet_hops": report.packet_hops,
        "hops_per_s": report.packet_hops / processor_s,
        "processor_s": processor_s,
        "prepared_s": ready - began,
        "virtual_s": report.duration_s,
        "memory_bytes": most_memory(),
        "aggregated_share": report.aggregated_share,
    }
    setup = {"radix": radix, "jobs": jobs, "workers": workers, "iterations": iterations, "flows": flows}
    show("simulation", {**setup, "seed": seed}, found, as_json=json)


def _apart(work: Callable[..., float], *arguments: Any) -> tuple[float, int]:
    """Call a function in a new process; return its result, and the process's peak memory in bytes."""
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool:
        return pool.submit(work, *arguments).result(), pool.submit(most_memory).result()


def most_memory() -> int:
    """Return the peak memory of this process in bytes."""
    unit = 1024 if sys.platform != "darwin" else 1  # kilobytes, on macOS bytes
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit
