"""Servers with GPUs, as schedulers see them: with or without the network between them."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cached_property

from controller.vocabulary.errors import BadSpec, plural
from controller.vocabulary.topology import Server, Topology

MOST_GPUS = 1_000_000
"""Maximum number of GPUs of a cluster: schedulers track each of them."""


@dataclass(frozen=True)
class Cluster:
    """Servers with GPUs. GPUs are numbered consecutively: server 0 has GPUs 0 to ``servers[0].gpus - 1``.

    `topology` is the servers' network; None: no network is considered. Raises BadSpec without servers, for a
    server without GPUs, and if only some of the servers have a rack or a virtual cluster.

    >>> Cluster.uniform(servers=2, gpus=4).node_of[5]
    1
    """

    servers: tuple[Server, ...]
    topology: Topology | None = None
    unavailable: frozenset[int] = frozenset()
    """GPUs that are unavailable because their servers are down; these GPUs keep their numbers."""

    def __post_init__(self) -> None:
        if not self.servers:
            raise BadSpec("a cluster needs at least one server with GPUs")
        if without := [server for server in self.servers if server.gpus < 1]:
            raise BadSpec(f"server {without[0].name!r} of a cluster has no GPUs; want 1 or more")
        apart = [server for server in self.servers if not server.vc]
        if len({server.vc for server in self.servers}) > 1 and apart:
            raise BadSpec(f"server {apart[0].name!r} is in no virtual cluster, but others are")
        loose = [server for server in self.servers if not server.rack]
        if loose and len(loose) < len(self.servers):
            raise BadSpec(f"server {loose[0].name!r} is in no rack, but others are")

    @classmethod
    def uniform(
        cls, servers: int, gpus: int, *, cpus: float = math.inf, memory_gb: float = math.inf
    ) -> Cluster:
        """Return a cluster of equal servers.

        Args:
            servers: Number of servers.
            gpus: Number of GPUs of each server.
            cpus: Number of CPU cores of each server.
            memory_gb: Memory of each server, in GB.

        Raises BadSpec.
        """
        if servers < 1:
            raise BadSpec(f"a cluster of {servers} servers; at least 1 is needed")
        return cls(tuple(Server(f"n{at}", gpus, cpus=cpus, memory_gb=memory_gb) for at in range(servers)))

    @classmethod
    def of(cls, topology: Topology) -> Cluster:
        """Return the servers of a topology that have GPUs. Raises BadSpec if none has."""
        return cls(tuple(server for server in topology.servers if server.gpus), topology)

    @cached_property
    def gpus(self) -> int:
        """Number of available GPUs."""
        return sum(server.gpus for server in self.servers) - len(self.unavailable)

    @cached_property
    def sizes(self) -> tuple[int, ...]:
        """Number of GPUs of each server."""
        return tuple(server.gpus for server in self.servers)

    @cached_property
    def racks(self) -> tuple[frozenset[int], ...]:
        """For each rack, the numbers of its servers; empty if no racks are named.

        Racks are in the order of their first servers.
        """
        names = dict.fromkeys(server.rack for server in self.servers if server.rack)
        return tuple(
            frozenset(number for number, server in enumerate(self.servers) if server.rack == name)
            for name in names
        )

    @cached_property
    def first_gpu(self) -> tuple[int, ...]:
        """The number of each server's first GPU."""
        return tuple(itertools.accumulate((server.gpus for server in self.servers[:-1]), initial=0))

    @cached_property
    def node_of(self) -> tuple[int, ...]:
        """For each GPU, the number of the server that has the GPU."""
        return tuple(number for number, server in enumerate(self.servers) for _ in range(server.gpus))

    @cached_property
    def virtual(self) -> tuple[str, ...]:
        """The names of the virtual clusters of the servers, in order of their first servers; empty: none."""
        return tuple(dict.fromkeys(server.vc for server in self.servers if server.vc))

    def part(self, vc: str) -> Cluster:
        """Return the servers of a virtual cluster as a separate cluster. Raises BadSpec if there are none."""
        return Cluster(tuple(replace(server, vc="") for server in self.servers if server.vc == vc))

    def without(self, gpus: Iterable[int]) -> Cluster:
        """Return the cluster with these GPUs, and no other GPUs, unavailable."""
        return replace(self, unavailable=frozenset(gpus))

    def check_room(self, name: str, gpus: int) -> None:
        """Raise BadSpec if job `name` asks for more GPUs than all servers have."""
        there = len(self.node_of)  # including GPUs of servers that are down, which come back
        if gpus > there:
            raise BadSpec(f"job {name!r} asks for {plural(gpus, 'GPU')}; the cluster has {there}")
