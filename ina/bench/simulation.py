"""Speed of virtual time, packet by packet, on a fat tree; `ina bench simulation` shows it."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field

from bmv2_topos.testbeds.virtual import (
    Placement,
    VirtualSettings,
    VirtualTestbed,
    random_flows,
    shortest_tree,
)
from controller.vocabulary import Job, fat_tree, float32_bytes
from controller.vocabulary.places import place
from ina.bench.apart import most_memory

TENSORS = (32768, 32768)
"""Elements of a job's two layers."""


@dataclass(frozen=True, slots=True)
class Measured:
    """What a simulation took."""

    hosts: int
    switches: int
    packet_hops: int
    """Packets that passed a link, each counted at each."""
    virtual_s: float
    processor_s: float
    """Of the run."""
    prepared_s: float
    """Of processor time before it: the switches are made, and their tables written."""
    memory_bytes: int
    """The most that the process has had."""
    aggregated_share: float
    hops_per_s: float = field(init=False)
    """Per second of processor time of the run."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "hops_per_s", self.packet_hops / self.processor_s)


def measure_simulation(
    ports: int,
    jobs: int,
    workers: int,
    *,
    iterations: int,
    flows: int,
    seed: int = 0,
    progress: Callable[[float, int, int], None] | None = None,
) -> Measured:
    """Simulate jobs with trees of their own on a fat tree of `ports`-port switches, beside ordinary traffic.

    Each job's tree has another core as its root, in turns, with its fallback server there. A flow has 2 Gb/s,
    a link 10 Gb/s.

    Args:
        ports: Ports of each switch, an even number.
        jobs: Number of jobs.
        workers: Workers of each, each on a host of its own.
        iterations: Iterations of each.
        flows: Number of flows of ordinary traffic.
        seed: Of all that is drawn.
        progress: Told of the virtual time in seconds, the iterations done, and all of them.

    Raises:
        BadSpec: there are not so many hosts, or the number of ports is odd.
        TestbedError: the jobs cannot run there.
    """
    began = time.process_time()
    topology = fat_tree(ports, servers=jobs)
    cores = (ports // 2) ** 2
    entries = [
        Job(
            name=f"job{number}",
            workers=workers,
            window=64,
            numbers="fixed",
            iterations=iterations,
            layers_bytes=float32_bytes(TENSORS),
            compute_s=100e-6,
            jitter=0.05,
        )
        for number in range(1, jobs + 1)
    ]
    placements = [
        Placement(hosts, f"p{number + 1}", shortest_tree(topology, f"s{number % cores + 1}"))
        for number, hosts in enumerate(place(topology, [workers] * jobs))
    ]
    traffic = random_flows(topology, flows, 2e9, seed)
    settings = VirtualSettings(samples=0, seed=seed)
    testbed = VirtualTestbed(topology, entries, placements, settings, flows=traffic)
    ready = time.process_time()
    report = testbed.run(progress)
    return Measured(
        hosts=len(topology.servers_for("worker")),
        switches=len(topology.switches),
        packet_hops=report.packet_hops,
        virtual_s=report.duration_s,
        processor_s=time.process_time() - ready,
        prepared_s=ready - began,
        memory_bytes=most_memory(),
        aggregated_share=report.aggregated_share,
    )
