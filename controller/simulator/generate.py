"""A small generator of jobs, for tests, examples and scaling curves; none of its numbers is measured.

There are eight kinds of jobs, two for each bottleneck resource. Durations are log-uniform. Arrivals are
Poisson, at the rate that results in the requested load of the cluster.
"""

from __future__ import annotations

import math
import random
from dataclasses import replace

from controller.policies.scheduling.errors import BadSpec
from controller.policies.scheduling.policy import Submission
from controller.vocabulary import Cluster

KINDS: dict[str, tuple[float, float, float, float]] = {
    "images-small": (0.70, 0.10, 0.06, 0.02),
    "images-medium": (0.50, 0.20, 0.12, 0.07),
    "agent-actor": (0.01, 0.50, 0.02, 0.01),
    "agent-value": (0.02, 0.44, 0.01, 0.01),
    "language-small": (0.01, 0.01, 0.17, 0.05),
    "language-large": (0.01, 0.01, 0.42, 0.10),
    "dense-wide": (0.04, 0.04, 0.07, 0.12),
    "dense-deep": (0.05, 0.04, 0.08, 0.14),
}
"""Seconds per iteration on storage, CPU, GPU and network, by the name of each kind of job."""

SIZES = ((1, 0.6), (2, 0.12), (4, 0.14), (8, 0.12), (16, 0.02))
"""Pairs of a job's number of GPUs and its frequency; numbers too large for a cluster are left out."""


def generate(
    jobs: int,
    cluster: Cluster,
    *,
    load: float = 1.2,
    seed: int = 0,
    shortest_s: float = 60.0,
    longest_s: float = 86400.0,
    three_stages: bool = False,
) -> list[Submission]:
    """Return synthetic jobs.

    Args:
        jobs: Number of jobs.
        cluster: The servers. Each of its virtual clusters gets the same number of jobs.
        load: Offered load, as a multiple of the cluster's capacity.
        seed: Seed of all random draws.
        shortest_s: Shortest duration of a job.
        longest_s: Longest duration of a job.
        three_stages: Whether to count loading and preprocessing as one stage, as in Muri's traces.

    Raises BadSpec for options out of range.
    """
    if jobs < 0 or not load > 0 or not 0 < shortest_s <= longest_s:
        raise BadSpec(
            f"{jobs} jobs at load {load}, {shortest_s} s to {longest_s} s: want 0 or more jobs, "
            "a load above 0, and durations above 0 in rising order"
        )
    if cluster.virtual:
        parts = {vc: cluster.part(vc) for vc in cluster.virtual}
        specs = []
        for number, (vc, part) in enumerate(parts.items()):
            share = round(jobs * (number + 1) / len(parts)) - round(jobs * number / len(parts))
            made = generate(
                share,
                part,
                load=load,
                seed=seed + number,
                shortest_s=shortest_s,
                longest_s=longest_s,
                three_stages=three_stages,
            )
            specs += [replace(spec, name=f"{vc}-{spec.name}", vc=vc) for spec in made]
        return sorted(specs, key=lambda spec: spec.arrival_s)
    rng = random.Random(seed)
    hurry = random.Random(f"deadlines {seed}")
    sizes = [(size, share) for size, share in SIZES if size <= cluster.gpus]
    names = list(KINDS)
    drawn = []
    for _ in range(jobs):
        gpus = rng.choices([size for size, _ in sizes], [share for _, share in sizes])[0]
        duration_s = round(math.exp(rng.uniform(math.log(shortest_s), math.log(longest_s))), 1)
        drawn.append((gpus, duration_s, rng.choice(names), rng.expovariate(1.0), rng.randrange(2)))
    service_s = sum(gpus * duration_s for gpus, duration_s, *_ in drawn)
    gap_s = service_s / (load * cluster.gpus * max(1, jobs))
    specs = []
    now_s = 0.0
    for number, (gpus, duration_s, kind, gap, priority) in enumerate(drawn):
        storage, cpu, gpu, network = KINDS[kind]
        network *= 0.0 if gpus == 1 else 1.0 + math.log2(gpus) / 4
        stages = (storage + cpu, gpu, network) if three_stages else (storage, cpu, gpu, network)
        # a framework overlaps some of a job's own stages, but never the longest with itself
        iteration_s = round(max(*stages, 0.9 * sum(stages)), 6)
        specs.append(
            Submission(
                name=f"j{number}",
                arrival_s=now_s,
                gpus=gpus,
                iterations=max(1.0, round(duration_s / iteration_s)),
                iteration_s=iteration_s,
                stages_s=stages,
                model=kind,
                restart_s=float(5 + len(kind) % 7),
                estimate_s=duration_s,
                opportunistic=priority > 0,
                user=f"u{number % 7}",
                deadline_s=round(duration_s * hurry.uniform(1.5, 6.0), 1) if hurry.randrange(2) else None,
            )
        )
        now_s = round(now_s + gap * gap_s, 1)
    return specs
