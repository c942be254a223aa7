"""Choice of a job's hosts: the first free ones, or hosts that leave few fragments (MINA).

A policy is a function of the fabric, of whether each host is free, and of a number of hosts; it returns this
number of free hosts, or None if there are too few.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
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
class Taken:
    """Costs of each number of places from a part of a cluster, and the choices of places."""

    score: Scores
    idle: int
    splits: Sequence[npt.NDArray[np.intp]] = ()
    """Number of places from each part, by number of places."""
    parts: Sequence[Taken] = ()
    places: Sequence[int] = ()

    def chosen(self, count: int) -> list[int]:
        """Return the best choice of this number of places."""
        if not self.parts:
            return list(self.places[:count])
        taken: list[list[int]] = []
        for part, split in zip(reversed(self.parts), reversed(self.splits), strict=True):
            here = int(split[count])
            taken.append(part.chosen(here))
            count -= here
        return [place for places in reversed(taken) for place in places]


@dataclass(frozen=True, slots=True)
class FewestFragments:
    """MINA's: the hosts in fewest fragments, where also few fragments stay free.

    A fragment is a host, rack or pod that is whole, and whose surroundings are not: a rack that a job has
    whole is one fragment, half a rack is as many as it has hosts. Of equally good choices it takes as few
    hosts as possible from later racks. A dynamic program over hosts, racks and pods: O(hosts * count).

    Attributes:
        alpha: Weight of a fragment that stays free.
    """

    alpha: float = ALPHA

    def __call__(self, fabric: Fabric, free: Sequence[bool], count: int) -> list[int] | None:
        """Return the hosts, or None if too few are free."""
        if sum(free) < count:
            return None
        size = fabric.hosts_in_rack
        racks = [
            self.leaf([host for host in range(at, at + size) if free[host]], size, count)
            for at in range(0, fabric.hosts, size)
        ]
        each = fabric.racks_in_pod
        pods = [self.merged(racks[at : at + each], each * size, count) for at in range(0, fabric.racks, each)]
        return self.merged(pods, fabric.hosts, count).chosen(count)

    def leaf(self, idle: Sequence[int], size: int, count: int) -> Taken:
        """Return the costs of taking up to `count` of the idle places of a part that has `size` places."""
        here = np.arange(min(len(idle), count) + 1)
        score = here + self.alpha * (len(idle) - here)
        return self._whole(Taken(score, len(idle), places=tuple(idle)), size)

    def merged(self, parts: Sequence[Taken], size: int, count: int) -> Taken:
        """Return the costs of taking up to `count` places of parts that together have `size`."""
        score, splits = np.zeros(1), []
        for part in parts:
            most = min(len(score) + len(part.score) - 2, count)
            sums = np.full((len(part.score), most + 1), np.inf)
            for here, cost in enumerate(part.score):
                upto = min(most + 1, here + len(score))
                sums[here, here:upto] = cost + score[: upto - here]
            splits.append(sums.argmin(axis=0))
            score = sums.min(axis=0)
        return self._whole(Taken(score, sum(part.idle for part in parts), splits, parts), size)

    def _whole(self, taken: Taken, size: int) -> Taken:
        if taken.idle == size:
            taken.score[0] = self.alpha
            if size < len(taken.score):
                taken.score[size] = 1.0
        return taken
