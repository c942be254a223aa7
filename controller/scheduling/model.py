"""Jobs as submitted, and clusters: pure data, checked when it is made."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property

from controller.scheduling.errors import BadSpec

RESOURCES = ("storage", "cpu", "gpu", "network")
"""The resources of the four stages of a training iteration, in stage order."""


@dataclass(frozen=True, slots=True)
class JobSpec:
    """A training job as it is submitted.

    Attributes:
        id: Unique name.
        submit_s: When it is submitted, seconds from the start of the trace.
        gpus: GPUs that it needs, all at once.
        iterations: Work to do; need not be whole.
        iteration_s: Seconds per iteration when it has its GPUs for itself.
        stages_s: Seconds per iteration on each resource, in stage order; empty if nobody measured it.
        model: Name of what it trains: profiles and speed models look it up.
        restart_s: Seconds lost whenever it is started, moved or regrouped.
        estimate_s: How long it says that it will run alone (a user's or a predictor's word); None: unknown.
        priority: 0 is guaranteed its resources, more is opportunistic (AntMan).
        user: Who submitted it.
        vc: The virtual cluster that it is submitted to.
        batch: Batch size per GPU; 0 if unknown.
        deadline_s: Seconds after its submission by which it is to be done; None: whenever.
        extra: Further columns of a trace, by name, for policies that know them.
    """

    id: str
    submit_s: float
    gpus: int
    iterations: float
    iteration_s: float = 1.0
    stages_s: tuple[float, ...] = ()
    model: str = ""
    restart_s: float = 0.0
    estimate_s: float | None = None
    priority: int = 0
    user: str = ""
    vc: str = ""
    batch: int = 0
    deadline_s: float | None = None
    extra: Mapping[str, str] = field(default_factory=dict, hash=False)

    def __post_init__(self) -> None:
        if self.gpus < 1:
            raise BadSpec(f"job {self.id!r} asks for {self.gpus} GPUs; at least 1 is needed")
        for name in ("iterations", "iteration_s"):
            value = getattr(self, name)
            if not (value > 0 and math.isfinite(value)):
                raise BadSpec(f"job {self.id!r}: {name} is {value}; it must be positive")
        for name in ("submit_s", "restart_s"):
            value = getattr(self, name)
            if not (value >= 0 and math.isfinite(value)):
                raise BadSpec(f"job {self.id!r}: {name} is {value}; it must not be negative")
        if self.deadline_s is not None and not (self.deadline_s > 0 and math.isfinite(self.deadline_s)):
            raise BadSpec(f"job {self.id!r}: deadline_s is {self.deadline_s}; it must be positive")
        if any(not (stage >= 0 and math.isfinite(stage)) for stage in self.stages_s):
            raise BadSpec(f"job {self.id!r}: a stage time in {self.stages_s} is negative")
        if self.stages_s and not any(self.stages_s):
            raise BadSpec(f"job {self.id!r}: all stages take no time")

    @property
    def duration_s(self) -> float:
        """Seconds that it runs when it has its GPUs for itself and is never interrupted."""
        return self.iterations * self.iteration_s

    @property
    def service_s(self) -> float:
        """GPU-seconds that it needs."""
        return self.duration_s * self.gpus


@dataclass(frozen=True, slots=True)
class Node:
    """One server. `vc`: its virtual cluster, `kind`: what GPUs it has, `rack`: whose switch; "": not said."""

    gpus: int
    cpus: float = math.inf
    memory_gb: float = math.inf
    name: str = ""
    vc: str = ""
    kind: str = ""
    rack: str = ""

    def __post_init__(self) -> None:
        if self.gpus < 1 or self.cpus <= 0 or self.memory_gb <= 0:
            raise BadSpec(f"node {self.name!r} has {self.gpus} GPUs, {self.cpus} CPUs, {self.memory_gb} GB")


@dataclass(frozen=True)
class Cluster:
    """Servers. A GPU's number counts through the nodes: node 0 has GPUs 0 to ``nodes[0].gpus - 1``.

    >>> Cluster.uniform(nodes=2, gpus=4).node_of[5]
    1
    """

    nodes: tuple[Node, ...]
    gone: frozenset[int] = frozenset()
    """GPUs that cannot be had now, for their servers are down; they keep their numbers."""

    def __post_init__(self) -> None:
        if not self.nodes:
            raise BadSpec("a cluster needs at least one node")
        apart = [node for node in self.nodes if not node.vc]
        if len({node.vc for node in self.nodes}) > 1 and apart:
            raise BadSpec(f"node {apart[0].name!r} is of no virtual cluster, others are")
        loose = [node for node in self.nodes if not node.rack]
        if loose and len(loose) < len(self.nodes):
            raise BadSpec(f"node {loose[0].name!r} is in no rack, others are")

    @classmethod
    def uniform(
        cls, nodes: int, gpus: int, *, cpus: float = math.inf, memory_gb: float = math.inf
    ) -> Cluster:
        """Return `nodes` equal servers with `gpus` GPUs each."""
        if nodes < 1:
            raise BadSpec(f"a cluster of {nodes} nodes; at least 1 is needed")
        return cls(tuple(Node(gpus, cpus, memory_gb, f"n{number}") for number in range(nodes)))

    @cached_property
    def gpus(self) -> int:
        """GPUs that can be had."""
        return sum(node.gpus for node in self.nodes) - len(self.gone)

    @cached_property
    def sizes(self) -> tuple[int, ...]:
        """GPUs of each node."""
        return tuple(node.gpus for node in self.nodes)

    @cached_property
    def racks(self) -> tuple[frozenset[int], ...]:
        """The nodes of each rack, in order of their first nodes; empty: nothing is said of racks."""
        names = dict.fromkeys(node.rack for node in self.nodes if node.rack)
        return tuple(
            frozenset(number for number, node in enumerate(self.nodes) if node.rack == name) for name in names
        )

    @cached_property
    def first_gpu(self) -> tuple[int, ...]:
        """The number of each node's first GPU."""
        return tuple(itertools.accumulate((node.gpus for node in self.nodes[:-1]), initial=0))

    @cached_property
    def node_of(self) -> tuple[int, ...]:
        """The node of each GPU."""
        return tuple(number for number, node in enumerate(self.nodes) for _ in range(node.gpus))

    @cached_property
    def virtual(self) -> tuple[str, ...]:
        """The names of its virtual clusters, in order of their first nodes; empty: it is not divided."""
        return tuple(dict.fromkeys(node.vc for node in self.nodes if node.vc))

    def part(self, vc: str) -> Cluster:
        """Return the nodes of a virtual cluster as a cluster of its own. Raises BadSpec if it has none."""
        return Cluster(tuple(replace(node, vc="") for node in self.nodes if node.vc == vc))

    def without(self, gpus: Iterable[int]) -> Cluster:
        """Return the cluster while these GPUs, and no others, cannot be had."""
        return replace(self, gone=frozenset(gpus))

    def admit(self, job: JobSpec) -> None:
        """Raise BadSpec if `job` is larger than the whole cluster."""
        if job.gpus > self.gpus:
            raise BadSpec(f"job {job.id!r} asks for {job.gpus} GPUs; the cluster has {self.gpus}")
