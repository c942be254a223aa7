"""Which jobs are on which GPUs: at most two on each, the smaller one within the larger one's."""

from __future__ import annotations

from collections.abc import Iterable

from controller.policies.scheduling.errors import BadDecision
from controller.policies.scheduling.placement import spread
from controller.policies.scheduling.policy import JobState
from controller.vocabulary import Cluster

MOST = 2
"""Jobs on one GPU."""


class Layout:
    """The GPUs and the jobs on them."""

    __slots__ = ("_on", "cluster", "jobs", "places")

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.jobs: dict[int, JobState] = {}
        """Placed jobs by order of arrival."""
        self.places: dict[int, tuple[int, ...]] = {}
        """Their GPUs."""
        self._on: list[list[JobState]] = [[] for _ in cluster.node_of]

    def add(self, job: JobState, gpus: tuple[int, ...]) -> None:
        """Place `job`. Raises BadDecision if that breaks the rules; then nothing has changed."""
        if len(gpus) != job.spec.gpus or len(set(gpus)) != len(gpus) or job.order in self.jobs:
            raise BadDecision(f"{job} with {job.spec.gpus} GPUs cannot be placed on {gpus}")
        if not self.allows(gpus):
            raise BadDecision(f"{job} on {gpus}: a GPU would have three jobs, or two jobs overlap in part")
        for gpu in gpus:
            self._on[gpu].append(job)
        self.jobs[job.order] = job
        self.places[job.order] = gpus

    def remove(self, job: JobState) -> None:
        """Remove `job`."""
        del self.jobs[job.order]
        for gpu in self.places.pop(job.order):
            self._on[gpu].remove(job)

    def on(self, gpu: int) -> list[JobState]:
        """Return the jobs on a GPU; not to be changed."""
        return self._on[gpu]

    def allows(self, gpus: tuple[int, ...]) -> bool:
        """Return whether a job may be added on these GPUs."""
        mine = set(gpus)
        for gpu in gpus:
            here = self._on[gpu]
            if len(here) >= MOST:
                return False
            for other in here:
                theirs = self.places[other.order]
                if len(theirs) > len(gpus):
                    if not mine.issubset(theirs):
                        return False
                elif not mine.issuperset(theirs):
                    return False
        return True

    def beside(self, job: JobState) -> list[JobState]:
        """Return the jobs that share GPUs with `job`, in order of arrival."""
        return self.others(self.places[job.order], job)

    def others(self, gpus: Iterable[int], without: JobState | None = None) -> list[JobState]:
        """Return the jobs on these GPUs, in order of arrival."""
        found = {other.order: other for gpu in gpus for other in self._on[gpu] if other is not without}
        return [found[order] for order in sorted(found)]

    def free(self) -> list[int]:
        """Return the GPUs without jobs."""
        return [gpu for gpu, here in enumerate(self._on) if not here]

    def share(self, job: JobState) -> float:
        """Return the number of GPUs that `job` holds, counting a GPU with n jobs as 1/n for each."""
        return sum(1.0 / len(self._on[gpu]) for gpu in self.places[job.order])


def consolidated(gpus: Iterable[int], count: int, cluster: Cluster) -> tuple[int, ...] | None:
    """Return `count` of `gpus`, within one node if one is large enough, else on whole nodes and part of one.

    Of several nodes with room the fullest is taken, so that large holes stay. None if that is not possible.
    """
    by_node: dict[int, list[int]] = {}
    for gpu in gpus:
        by_node.setdefault(cluster.node_of[gpu], []).append(gpu)
    room = [len(by_node.get(number, ())) for number in range(len(cluster.servers))]
    full, rest, left = ([], count, room) if count <= max(cluster.sizes) else spread(room, cluster, count)
    taken = [gpu for number in full for gpu in by_node[number]]
    if rest:
        fitting = [there for number, there in by_node.items() if left[number] >= rest]
        if not fitting:
            return None
        taken += min(fitting, key=len)[:rest]
    return tuple(taken)
