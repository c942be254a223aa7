"""Placement of groups on GPUs: consolidated, as by YARN's scheduler (Tiresias, Muri).

A group that is not larger than the largest node goes into one node. A larger group gets whole idle nodes, the
largest first, and one node with room for its remaining GPUs. All of them are in one rack if possible: the
first one with enough room. So on an empty cluster every group that is not larger than the cluster has a
place, whatever the nodes' sizes. `FreeGpus` has the cluster's free GPUs during a decision.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

from controller.vocabulary import Cluster

Wanted = TypeVar("Wanted")


def across(room: Sequence[int], sizes: Sequence[int], gpus: int) -> tuple[list[int], int]:
    """Choose idle nodes for a group that is larger than any node.

    Returns the numbers of the nodes of which the group gets all GPUs, and the number of GPUs that it still
    needs. `room` is the number of free GPUs of each node, `sizes` the number of all GPUs of each node. Larger
    nodes are taken first, and of equal nodes the one with the lowest number. The group has no place if no
    other node has room for the GPUs still needed.

    >>> across([8, 4, 4, 3], [8, 4, 4, 8], 15)
    ([0, 1], 3)
    """
    idle = [node for node, free in enumerate(room) if free == sizes[node]]
    taken: list[int] = []
    for node in sorted(idle, key=lambda node: -sizes[node]):
        if sizes[node] <= gpus:
            taken.append(node)
            gpus -= sizes[node]
    return taken, gpus


def spread(room: Sequence[int], cluster: Cluster, gpus: int) -> tuple[list[int], int, list[int]]:
    """Return the free nodes for a group that is larger than any node.

    The nodes are in the first rack that has room for the group. If no rack has room, they may be in several
    racks.

    Returns:
        The nodes all of whose GPUs the group gets, the number of GPUs that it still needs, and the free GPUs
        of each other node. The group has no place if no node has as many free GPUs as it still needs.
    """
    inside = ([free if node in rack else 0 for node, free in enumerate(room)] for rack in cluster.racks)
    for available in (*inside, room):
        whole, rest = across(available, cluster.sizes, gpus)
        left = [0 if node in whole else free for node, free in enumerate(available)]
        if max(left) >= rest:
            break
    return whole, rest, left


class FreeGpus:
    """The free GPUs of each node; at first, all available GPUs of the cluster.

    `by_node` has the numbers of each node's free GPUs, the highest first; change it only by the methods.
    If `allocate` fails for a number of GPUs, it fails for this number until GPUs are released.
    """

    __slots__ = ("_whole", "by_node", "cluster", "free")

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        # descending, so that the lowest numbers are taken first from the end
        self.by_node = [list(reversed(gpus)) for gpus in cluster.gpus_of]
        self._whole = max(cluster.sizes)
        self.free = len(cluster.node_of)
        if cluster.unavailable:
            self.reserve(cluster.unavailable)

    def allocate(self, gpus: int) -> tuple[int, ...] | None:
        """Reserve `gpus` GPUs, consolidated; return their numbers. None: they do not fit."""
        if gpus > self.free:
            return None
        if gpus > self._whole:
            return self._take_across(gpus)
        node = self._node_with(gpus, map(len, self.by_node))
        return None if node is None else self.take(node, gpus)

    def allocate_scattered(self, gpus: int) -> tuple[int, ...] | None:
        """Reserve any `gpus` GPUs; return their numbers. None: too few are free.

        The GPUs of the nodes with most free GPUs are reserved first.
        """
        if gpus > self.free:
            return None
        emptiest_first = sorted(self.by_node, key=len, reverse=True)
        taken = [gpu for free in emptiest_first for gpu in reversed(free)][:gpus]
        self.reserve(taken)
        return tuple(taken)

    def reserve(self, gpus: Iterable[int]) -> None:
        """Reserve exactly these GPUs, which must be free."""
        node_of = self.cluster.node_of
        for gpu in gpus:
            self.by_node[node_of[gpu]].remove(gpu)
            self.free -= 1

    def release(self, gpus: Iterable[int]) -> None:
        """Mark these GPUs as free."""
        node_of, free = self.cluster.node_of, self.by_node
        touched = set()
        for gpu in gpus:
            node = node_of[gpu]
            free[node].append(gpu)
            touched.add(node)
            self.free += 1
        for node in touched:
            free[node].sort(reverse=True)

    def _node_with(self, gpus: int, room: Iterable[int]) -> int | None:
        return next((number for number, free in enumerate(room) if free >= gpus), None)

    def _take_across(self, gpus: int) -> tuple[int, ...] | None:
        whole, rest, room = spread([len(free) for free in self.by_node], self.cluster, gpus)
        last = self._node_with(rest, room) if rest else None
        if rest and last is None:
            return None
        taken: tuple[int, ...] = ()
        for number in whole:
            taken += self.take(number, self.cluster.sizes[number])
        return taken if last is None else taken + self.take(last, rest)

    def take(self, node: int, gpus: int) -> tuple[int, ...]:
        """Reserve the first `gpus` free GPUs of a node, which must have them; return their numbers."""
        free = self.by_node[node]
        taken = tuple(free[: -gpus - 1 : -1])
        del free[-gpus:]
        self.free -= gpus
        return taken


class FreeGpuCounts:
    """The number of free GPUs of each node: a cheap variant of `FreeGpus` to find out which groups fit."""

    __slots__ = ("_cluster", "_free", "_whole", "free")

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._free = list(cluster.sizes)
        self._whole = max(cluster.sizes)
        self.free = cluster.gpus
        for gpu in cluster.unavailable:
            self._free[cluster.node_of[gpu]] -= 1

    def allocate(self, gpus: int) -> bool:
        """Reserve `gpus` GPUs, consolidated; return whether enough are free."""
        free = self._free
        if gpus > self.free:
            return False
        if gpus <= self._whole:
            for number, room in enumerate(free):
                if room >= gpus:
                    free[number] = room - gpus
                    self.free -= gpus
                    return True
            return False
        whole, rest, left = spread(free, self._cluster, gpus)
        if rest:
            last = next((number for number, room in enumerate(left) if room >= rest), -1)
            if last < 0:
                return False
            free[last] -= rest
        for number in whole:
            free[number] = 0
        self.free -= gpus
        return True

    def allocate_each(self, wanted: Iterable[Wanted], gpus_of: Callable[[Wanted], int]) -> list[Wanted]:
        """Reserve GPUs for each of `wanted` that fits, in this order; return those that fit.

        `gpus_of` returns the number of GPUs that one of them needs.
        """
        kept: list[Wanted] = []
        refused: set[int] = set()  # numbers of GPUs for which there is no room any more
        for each in wanted:
            gpus = gpus_of(each)
            if gpus not in refused and self.allocate(gpus):
                kept.append(each)
            else:
                refused.add(gpus)
            if not self.free:
                break
        return kept
