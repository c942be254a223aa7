"""A fat-tree of 16 hosts in virtual time: four jobs, each rooted at a core of its own, or all at one.

``python -m benchmarks.fat_tree`` prints JSON: virtual time of an iteration, processor time that it took, and
packets of workers per second of processor time.
"""

from __future__ import annotations

import json
import statistics
import time

from bmv2_topos.testbeds.virtual import Placement, VirtualSettings, VirtualTestbed, shortest_tree
from controller.vocabulary import Job, float32_bytes
from controller.vocabulary.catalog import fat_tree
from controller.vocabulary.places import place

JOBS, WORKERS, ITERATIONS = 4, 4, 5
TENSORS = (32768, 32768)


def run(*, one_core: bool) -> dict[str, float]:
    """Run the jobs, their trees rooted at one core or at four."""
    topology = fat_tree(4, servers=JOBS)
    jobs = [
        Job(
            name=f"job{number}",
            workers=WORKERS,
            window=64,
            numbers="fixed",
            iterations=ITERATIONS,
            layers_bytes=float32_bytes(TENSORS),
            compute_s=100e-6,
            jitter=0.05,
        )
        for number in range(1, JOBS + 1)
    ]
    cores = ["s1"] * JOBS if one_core else [f"s{number}" for number in range(1, JOBS + 1)]
    placements = [
        Placement(hosts, f"p{1 if one_core else number}", shortest_tree(topology, core))
        for number, (hosts, core) in enumerate(
            zip(place(topology, [WORKERS] * JOBS), cores, strict=True), start=1
        )
    ]
    testbed = VirtualTestbed(topology, jobs, placements, VirtualSettings(samples=0))
    began = time.process_time()
    report = testbed.run()
    busy_s = time.process_time() - began
    packets = sum(job.sent_packets for job in report.jobs)
    return {
        "iteration_s": statistics.fmean(job.mean_iteration_s for job in report.jobs),
        "aggregated_share": statistics.fmean(job.aggregated_share for job in report.jobs),
        "packets": packets,
        "processor_s": busy_s,
        "packets_per_processor_s": packets / busy_s,
    }


def main() -> None:
    """Print both runs."""
    print(
        json.dumps({name: run(one_core=name == "one core") for name in ("four cores", "one core")}, indent=1)
    )


if __name__ == "__main__":
    main()
