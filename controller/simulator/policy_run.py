"""Simulations of policies by name, in each virtual cluster if the cluster is divided."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from controller.policies import registry
from controller.policies.family import SimulationConfig
from controller.policies.scheduling.errors import BadSpec
from controller.policies.scheduling.model import Submission
from controller.simulator.engine import PolicyRun
from controller.simulator.record import Curves, SimulationResult
from controller.vocabulary import Cluster

# ---------------------------------------------------------------------------
# Clusters that are divided into virtual clusters: each has its own nodes and its own queue.
#
# They share nothing, so each is a separate simulation; their results are combined.


@dataclass(frozen=True, slots=True)
class PartitionedRun(PolicyRun):
    """One policy run for each virtual cluster; `policy` and `speed` belong to the first virtual cluster.

    Attributes:
        parts: The policy runs, by virtual cluster.
    """

    parts: Mapping[str, PolicyRun] = field(default_factory=dict)

    def run(
        self,
        specs: Sequence[Submission],
        cluster: Cluster,
        *,
        detail: bool = False,
        verify: bool = False,
        progress: Callable[[int, int], None] | None = None,
    ) -> SimulationResult:
        """Simulate the jobs of each virtual cluster on the servers of this cluster; see `PolicyRun.run`.

        Raises BadSpec also for a job whose virtual cluster does not exist.
        """
        divided: dict[str, list[Submission]] = {name: [] for name in self.parts}
        for spec in specs:
            if spec.vc not in divided:
                names = ", ".join(sorted(divided))
                raise BadSpec(
                    f"job {spec.name!r} is of virtual cluster {spec.vc!r}; the cluster is divided into"
                    f" {names}"
                )
            divided[spec.vc].append(spec)
        results: list[SimulationResult] = []
        ended = 0
        for name, part in self.parts.items():
            if not divided[name]:
                continue
            results.append(part.run(divided[name], cluster.part(name), detail=detail, verify=verify))
            ended += len(divided[name])
            if progress is not None:
                progress(ended, len(specs))
        return merged(results, cluster, self.policy.name)


def merged(results: Sequence[SimulationResult], cluster: Cluster, policy: str) -> SimulationResult:
    """Combine the results of parts of a cluster."""
    curves = [(result.cluster.gpus, result.curves) for result in results if result.curves is not None]
    return SimulationResult(
        policy=policy,
        cluster=cluster,
        jobs=sorted((job for result in results for job in result.jobs), key=lambda job: job.finish_s),
        begin_s=min((result.begin_s for result in results), default=0.0),
        end_s=max((result.end_s for result in results), default=0.0),
        queue_integral=math.fsum(result.queue_integral for result in results),
        gpu_integral=math.fsum(result.gpu_integral for result in results),
        decisions=sum(result.decisions for result in results),
        curves=_merged_curves(curves, cluster.gpus) if curves else None,
    )


def _merged_curves(parts: Sequence[tuple[int, Curves]], gpus: int) -> Curves:
    """Combine the curves of parts, which are pairs of number of GPUs and curves.

    Counts are added. Busy fractions are weighted by the parts' GPUs. Blocking is the mean over all parts.
    """
    time_s = sorted({at_s for _, part in parts for at_s in part.time_s})

    def total(weighed: Iterable[tuple[float, Sequence[float], Sequence[float]]]) -> list[float]:
        sums = [0.0] * len(time_s)
        for weight, at_s, values in weighed:
            for number, now_s in enumerate(time_s):
                place = bisect_right(at_s, now_s)
                sums[number] += weight * values[place - 1] if place else 0.0
        return sums

    return Curves(
        time_s,
        total((1.0, part.time_s, part.queue) for _, part in parts),
        total((1.0, part.time_s, part.gpus) for _, part in parts),
        total((1 / len(parts), part.time_s, part.blocking) for _, part in parts),
        {
            name: total((size / gpus, part.time_s, part.busy[name]) for size, part in parts)
            for name in parts[0][1].busy
        },
    )


# ---------------------------------------------------------------------------
# Simulations of policies by name.


def make(name: str, config: SimulationConfig) -> PolicyRun:
    """Return a new run of a policy, with one run for each virtual cluster if the cluster is divided.

    Raises the errors of `controller.policies.registry.make`.
    """
    cluster = config.cluster
    if not cluster.virtual:
        return PolicyRun.of(registry.make(name, config))
    registry.check_known(name)
    parts = {vc: make(name, replace(config, cluster=cluster.part(vc))) for vc in cluster.virtual}
    first = parts[cluster.virtual[0]]
    return PartitionedRun(first.policy, first.speed, first.interval_s, parts=parts)
