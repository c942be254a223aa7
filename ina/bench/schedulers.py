"""Speed of schedulers on long traces, and of the simulated cluster, against what they should need."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from controller.policies.families.base import SimulationConfig
from controller.simulator.network.settings import NetworkSettings
from controller.simulator.runs import Source, Task, kind_for, run
from controller.vocabulary import Cluster
from ina.bench.apart import apart
from ina.bench.cluster import measure_cluster

LOAD = 0.9
"""Offered load of generated jobs, as a multiple of the capacity of eight nodes of eight GPUs."""

LIMIT_BYTES = 2 << 30
"""How much memory a simulation may take."""


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
"""A cluster that takes minutes; jobs arrive eight times as fast, for eight times as many servers."""


@dataclass(frozen=True, slots=True)
class Figure:
    """What a case needed: processor time, without making the jobs, and the process's most memory."""

    case: Case
    processor_s: float
    memory_bytes: int

    @property
    def ratio(self) -> float:
        """Processor time relative to its target; at most 1 meets it."""
        return self.processor_s / self.case.target_s


def measure_schedulers(
    cases: Sequence[Case], *, seed: int = 0, say: Callable[[str], None] = lambda text: None
) -> list[Figure]:
    """Simulate one case after the other, each in a process of its own.

    Args:
        cases: What to simulate.
        seed: Of the generated jobs.
        say: Told of each case when it is done.

    Raises RunFailed, as `controller.simulator.runs.run`.
    """
    found: list[Figure] = []
    for case in cases:
        begun_s = time.monotonic()
        found.append(Figure(case, *apart(case.policy, _processor_s, case, seed)))
        say(f"{case.policy}, {case.jobs:,} jobs: {time.monotonic() - begun_s:.0f} s")
    return found


def _processor_s(case: Case, seed: int) -> float:
    if case.servers:
        settings = NetworkSettings(placement="netpack", memory="shared", routing="shortest-path", seed=seed)
        gap_s = 2.0 * 256 / case.servers
        simulated = measure_cluster(
            case.jobs, case.servers, gap_s=gap_s, scheduler=case.policy, settings=settings, seed=seed
        )
        return simulated.processor_s
    source = Source(count=case.jobs, load=LOAD, seed=seed, kind=kind_for([case.policy]))
    return run(Task(case.policy, source, SimulationConfig(Cluster.uniform(8, 8), seed=seed))).cpu_s
