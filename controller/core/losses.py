"""Servers, switches and links that are down, and the GPUs that are unavailable because of them."""

from __future__ import annotations

from collections.abc import Collection

from controller.core.allocator import Allocator
from controller.policies.scheduling.policy import Group
from controller.vocabulary import Cluster


class Losses:
    """The failed servers, switches and links of a cluster.

    Args:
        cluster: The servers as the scheduler sees them.
        allocator: Servers of each job, if there is a network.
        own_places: The scheduler's GPU numbers are those of real servers. Else they are only counts, and any
            free numbers stand for the failed GPUs.
    """

    def __init__(self, cluster: Cluster, allocator: Allocator | None, *, own_places: bool) -> None:
        self.servers: dict[str, str] = {}
        """Why each server is down that is."""
        self.switches: dict[str, str] = {}
        """The same of switches."""
        self.links: dict[tuple[str, str], str] = {}
        """The same of links, by their ends as the cluster has them."""
        self._cluster = cluster
        self._allocator = allocator
        self.own_places = own_places

    def __bool__(self) -> bool:
        return bool(self.servers or self.switches or self.links)

    def change(self, cluster: Cluster) -> None:
        """Have another cluster from now on, which the allocator knows; parts that it lacks are not down."""
        self._cluster = cluster
        assert self._allocator is not None
        whole = self._allocator.whole
        ends = {frozenset((link.a, link.b)): (link.a, link.b) for link in whole.links}
        self.servers = {name: why for name, why in self.servers.items() if name in whole.server}
        self.switches = {name: why for name, why in self.switches.items() if name in whole.switch}
        self.links = {
            ends[frozenset(link)]: why for link, why in self.links.items() if frozenset(link) in ends
        }

    def gone(self, groups: Collection[Group], before: Collection[int]) -> frozenset[int]:
        """Return the GPUs that are unavailable to all but the running groups; `before` were so before."""
        used = {gpu for group in groups for gpu in group.gpus}
        if self.own_places:
            nodes = self._cluster.servers
            down = {number for number, node in enumerate(nodes) if not self._reaches(node.name)}
            return frozenset(gpu for gpu, node in enumerate(self._cluster.node_of) if node in down) - used
        assert self._allocator is not None
        missing = len(self._cluster.node_of) - self._had(used)
        free = [gpu for gpu in range(len(self._cluster.node_of)) if gpu not in used]
        free.sort(key=lambda gpu: (gpu in before, gpu))
        return frozenset(free[max(0, len(free) - missing) :])

    def _reaches(self, server: str) -> bool:
        if self._allocator is not None:
            return self._allocator.reaches([server])
        return server not in self.servers

    def _had(self, used: Collection[int]) -> int:
        """Return how many GPUs are in use, or free and can be reached."""
        allocator = self._allocator
        assert allocator is not None
        reached = {name for name in allocator.topology.server if allocator.reaches([name])}
        taken = dict.fromkeys(reached, 0)
        for job in allocator.owners:
            for server in job.servers:
                if server in taken:
                    taken[server] += job.gpus_per_worker
        free = sum(allocator.topology.server[name].gpus - taken[name] for name in reached)
        return len(used) + max(0, free)
