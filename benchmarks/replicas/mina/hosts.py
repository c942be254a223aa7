"""Which hosts a job gets: the first free ones, or those that leave few fragments (MINA).

A policy is a function of the fabric, of whether each host is free, and of a number of hosts; it returns that
many free hosts, or None if there are too few.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np
import numpy.typing as npt

from benchmarks.replicas.mina.fabric import Fabric

ALPHA: Final = 0.5
"""Weight of a fragment that stays free; one that the job gets counts 1."""

Choose = Callable[[Fabric, Sequence[bool], int], list[int] | None]
Scores = npt.NDArray[np.float64]


def first_fit(_fabric: Fabric, free: Sequence[bool], count: int) -> list[int] | None:
    """Take the free hosts of the lowest numbers."""
    chosen = [host for host, idle in enumerate(free) if idle][:count]
    return chosen if len(chosen) == count else None


@dataclass(slots=True)
class _Taken:
    """The least score of taking each number of hosts from a part of the fabric, and how it is split."""

    score: Scores
    splits: list[npt.NDArray[np.intp]]
    """How many of them come from each part, by number; the first part gets what is left."""
    parts: list[_Taken] = field(default_factory=list)
    hosts: tuple[int, ...] = ()

    def chosen(self, count: int) -> list[int]:
        """Return the hosts of the best choice of this many."""
        if not self.parts:
            return list(self.hosts[:count])
        taken: list[list[int]] = []
        for part, split in zip(reversed(self.parts), reversed(self.splits), strict=True):
            here = int(split[count])
            taken.append(part.chosen(here))
            count -= here
        return [host for hosts in reversed(taken) for host in hosts]


@dataclass(frozen=True, slots=True)
class FewestFragments:
    """MINA's: the hosts in fewest fragments, where also few fragments stay free.

    A fragment is a host, rack or pod that is whole, and whose surroundings are not: a rack that a job has
    whole is one fragment, half a rack is as many as it has hosts. Of equally good choices it takes as few
    hosts as can be from later racks. A dynamic program over hosts, racks and pods: O(hosts * count).

    Attributes:
        alpha: Weight of a fragment that stays free.
    """

    alpha: float = ALPHA

    def __call__(self, fabric: Fabric, free: Sequence[bool], count: int) -> list[int] | None:
        """Return the hosts, or None if too few are free."""
        if sum(free) < count:
            return None
        whole = self._merged(
            [self._pod(fabric, free, pod, count) for pod in range(fabric.pods)], fabric.hosts, count
        )
        return whole.chosen(count)

    def _pod(self, fabric: Fabric, free: Sequence[bool], pod: int, count: int) -> _Taken:
        racks = range(pod * fabric.racks_in_pod, (pod + 1) * fabric.racks_in_pod)
        within = [self._rack(fabric, free, rack, count) for rack in racks]
        return self._merged(within, fabric.racks_in_pod * fabric.hosts_in_rack, count)

    def _rack(self, fabric: Fabric, free: Sequence[bool], rack: int, count: int) -> _Taken:
        hosts = range(rack * fabric.hosts_in_rack, (rack + 1) * fabric.hosts_in_rack)
        idle = tuple(host for host in hosts if free[host])
        most = min(len(idle), count)
        score = np.arange(most + 1) + self.alpha * (len(idle) - np.arange(most + 1))
        return self._whole(_Taken(score, [], hosts=idle), len(idle), fabric.hosts_in_rack)

    def _merged(self, parts: list[_Taken], hosts: int, count: int) -> _Taken:
        score, splits, idle = np.zeros(1), [], 0
        for part in parts:
            most = min(len(score) + len(part.score) - 2, count)
            sums = np.full((len(part.score), most + 1), np.inf)
            for here, cost in enumerate(part.score):
                upto = min(most + 1, here + len(score))
                sums[here, here:upto] = cost + score[: upto - here]
            splits.append(sums.argmin(axis=0))
            score = sums.min(axis=0)
            idle += len(part.score) - 1
        return self._whole(_Taken(score, splits, parts), idle, hosts)

    def _whole(self, taken: _Taken, idle: int, hosts: int) -> _Taken:
        if idle == hosts:
            taken.score[0] = self.alpha
            if hosts < len(taken.score):
                taken.score[hosts] = 1.0
        return taken
