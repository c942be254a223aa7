"""Choose GPUs for jobs: at most two jobs share a GPU, and the larger one uses all GPUs of the smaller.

A packing is a choice of partners, and of their GPUs, for a job.

The patent that the package follows (see `controller.policies.scheduling.sharing`) chooses the pair of jobs
with the largest sum of predicted speeds, ``v1 + v2``. Here the rule is extended to jobs of different sizes. A
job's speed counts once for each of its GPUs, and the gain is the difference to the present use of the GPUs:

    gain = ( Σ_after g v  -  Σ_before g v ) / g_new

where v is a job's speed, g its number of GPUs, and the sum is over the new job and all jobs that it shares
GPUs with. For two jobs of one size the gain is ``v1 + v2 - 1``, so the order of pairs is the patent's. A
packing is allowed if ``gain > least_gain`` and if the speed of every job is at least ``least_speed``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

from controller.policies.scheduling.placement import spread
from controller.policies.scheduling.policy import JobState, Submission
from controller.policies.scheduling.sharing.forests import Forests
from controller.policies.scheduling.sharing.pairs import InterferenceModel, Load, load_of
from controller.vocabulary import Cluster
from controller.vocabulary.lists import by_key

MOST = 2
"""Maximum number of jobs on one GPU."""


class Layout:
    """The GPUs and the jobs on them."""

    __slots__ = ("_on", "cluster", "jobs", "places")

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.jobs: dict[int, JobState] = {}
        """Placed jobs by order of arrival."""
        self.places: dict[int, tuple[int, ...]] = {}
        """The placed jobs' GPUs by the jobs' order of arrival."""
        self._on: list[list[JobState]] = [[] for _ in cluster.node_of]

    def add(self, job: JobState, gpus: tuple[int, ...]) -> None:
        """Place `job` on these GPUs.

        Each must have fewer than `MOST` jobs. Of any two jobs that share GPUs, the larger one must have all
        GPUs of the smaller one.
        """
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
        """Return the jobs on a GPU; do not change the list."""
        return self._on[gpu]

    def beside(self, job: JobState) -> list[JobState]:
        """Return the jobs that share GPUs with `job`, in order of arrival."""
        return self.others(self.places[job.order], job)

    def others(self, gpus: Iterable[int], without: JobState | None = None) -> list[JobState]:
        """Return the jobs on these GPUs, except `without`, in order of arrival."""
        found = {other.order: other for gpu in gpus for other in self._on[gpu] if other is not without}
        return [found[order] for order in sorted(found)]

    def free(self) -> list[int]:
        """Return the GPUs without jobs."""
        return [gpu for gpu, here in enumerate(self._on) if not here]

    def share(self, job: JobState) -> float:
        """Return the number of GPUs that `job` holds, where a GPU shared by n jobs counts as 1/n."""
        return sum(1.0 / len(self._on[gpu]) for gpu in self.places[job.order])


def consolidated(gpus: Iterable[int], count: int, cluster: Cluster) -> tuple[int, ...] | None:
    """Return `count` of `gpus`: on one node if one is large enough, else on whole nodes and part of one.

    Of several nodes with room, the one with the fewest GPUs in `gpus` is taken, so that large holes stay.
    Returns None if `gpus` are too few or too scattered.
    """
    by_node = by_key((cluster.node_of[gpu], gpu) for gpu in gpus)
    room = [len(by_node.get(number, ())) for number in range(len(cluster.servers))]
    full, rest, left = ([], count, room) if count <= max(cluster.sizes) else spread(room, cluster, count)
    taken = [gpu for number in full for gpu in by_node[number]]
    if rest:
        fitting = [node_gpus for number, node_gpus in by_node.items() if left[number] >= rest]
        if not fitting:
            return None
        taken += min(fitting, key=len)[:rest]
    return tuple(taken)


@dataclass(frozen=True, slots=True)
class Packing:
    """A choice of GPUs for a job: the GPUs, the jobs already on them, the gain, and the job's speed."""

    gpus: tuple[int, ...]
    beside: tuple[JobState, ...]
    gain: float = 0.0
    speed: float = 1.0


Choose = Callable[[Sequence[Packing]], Packing]


def best(allowed: Sequence[Packing]) -> Packing:
    """Return the packing with the largest gain."""
    return max(allowed, key=lambda packing: packing.gain)


class Packer:
    """Searches for GPUs that a job may share with other jobs, by predicted speeds.

    Args:
        believed: Source of the predicted speeds, usually random forests (`forests.py`).
        load_of: Function that returns the load of a submitted job, on which interference depends.
        least_gain: A job shares GPUs only if the gain is larger than this.
        least_speed: No job may become slower than this, relative to its speed alone.
        choose: Function that chooses one of the allowed packings.
        mixed: Whether jobs of different sizes may share.
    """

    def __init__(
        self,
        believed: InterferenceModel,
        *,
        load_of: Callable[[Submission], Load] = load_of,
        least_gain: float = 0.2,
        least_speed: float = 0.5,
        choose: Choose = best,
        mixed: bool = True,
    ) -> None:
        self._believed = believed
        self._load_of = load_of
        self._least_gain = least_gain
        self._least_speed = least_speed
        self._choose = choose
        self._mixed = mixed

    def load(self, job: JobState) -> Load:
        """Return the load of a job, from which interference is predicted."""
        return self._load_of(job.spec)

    def find(self, job: JobState, layout: Layout) -> Packing | None:
        """Return the packing to use for `job`; None if none is allowed. O(placed jobs)."""
        allowed = [
            packing
            for gpus, beside in candidates(job, layout, self._affinity)
            if self._mixed or beside[0].spec.gpus == job.spec.gpus
            if (packing := self.judge(job, gpus, beside, layout)) is not None
        ]
        return self._choose(allowed) if allowed else None

    def judge(
        self, job: JobState, gpus: tuple[int, ...], beside: tuple[JobState, ...], layout: Layout
    ) -> Packing | None:
        """Return the packing of `job` on `gpus`; None if the limits on speed or gain do not allow it.

        Args:
            job: The job to place.
            gpus: Numbers of the GPUs for it.
            beside: The jobs on these GPUs.
            layout: All placed jobs.
        """
        mine = self._load_of(job.spec)
        believed = self._believed.speed
        speed = believed(mine, [self._load_of(other.spec) for other in beside])
        if speed < self._least_speed:
            return None
        gain = speed * mine.gpus
        for other in beside:
            load = self._load_of(other.spec)
            now = [self._load_of(third.spec) for third in layout.beside(other)]
            after = believed(load, [*now, mine])
            if after < self._least_speed:
                return None
            gain += load.gpus * (after - believed(load, now))
        gain /= mine.gpus
        return Packing(gpus, beside, gain, speed) if gain > self._least_gain else None

    def gained_by_leaving(self, job: JobState, layout: Layout) -> float:
        """Return the gain in speed if `job` moved to GPUs of its own.

        It is the sum over all GPUs of `job` and of the jobs that share GPUs with it; 1 is one GPU's full
        speed.
        """
        mine = self._load_of(job.spec)
        believed = self._believed.speed
        beside = layout.beside(job)
        gained = mine.gpus * (1.0 - believed(mine, [self._load_of(other.spec) for other in beside]))
        for other in beside:
            load = self._load_of(other.spec)
            partners = layout.beside(other)
            now = believed(load, [self._load_of(third.spec) for third in partners])
            after = believed(load, [self._load_of(third.spec) for third in partners if third is not job])
            gained += load.gpus * (after - now)
        return gained

    def learn(self, job: JobState, others: Sequence[JobState]) -> None:
        """Record the real speed of `job` beside `others` in the predictions, if these are `Forests`."""
        if isinstance(self._believed, Forests):
            beside = [self._load_of(other.spec) for other in others]
            self._believed.learn(self._load_of(job.spec), beside, job.alone_s / job.iteration_s)

    def _affinity(self, large: JobState, small: JobState) -> float:
        return self._believed.speed(self._load_of(small.spec), [self._load_of(large.spec)])


def candidates(
    job: JobState, layout: Layout, affinity: Callable[[JobState, JobState], float]
) -> Iterator[tuple[tuple[int, ...], tuple[JobState, ...]]]:
    """Yield GPUs that `job` may share, and the jobs on them.

    There are three kinds of such GPUs: all GPUs of a job with equally many GPUs; some GPUs of a larger job;
    and all GPUs of several smaller jobs, together with free GPUs. Smaller jobs with the highest
    `affinity(large, small)` are chosen first.
    """
    gpus = job.spec.gpus
    for order, other in layout.jobs.items():
        place = layout.places[order]
        if len(place) == gpus:
            if all(len(layout.on(gpu)) == 1 for gpu in place):
                yield place, (other,)
        elif len(place) > gpus:
            open_gpus = [gpu for gpu in place if len(layout.on(gpu)) < MOST]
            part = consolidated(open_gpus, gpus, layout.cluster)
            if part is not None:
                yield part, (other,)
    if gpus > 1:
        yield from _covers(job, layout, affinity)


def _covers(
    job: JobState, layout: Layout, affinity: Callable[[JobState, JobState], float]
) -> Iterator[tuple[tuple[int, ...], tuple[JobState, ...]]]:
    """Yield sets of GPUs that `job` may share with smaller jobs, and these jobs.

    A job that fits into a node gets one proposal for each node; a larger job gets one, over several nodes.
    """
    gpus, cluster = job.spec.gpus, layout.cluster
    if gpus <= max(cluster.sizes):
        for node in cluster.gpus_of:
            cover = _cover(job, gpus, node, layout, affinity)
            if cover is not None and cover[1]:
                yield cover
        return
    taken: list[int] = []
    beside: list[JobState] = []
    for node in sorted(
        cluster.gpus_of, key=lambda node: (-len(node), sum(bool(layout.on(gpu)) for gpu in node))
    ):
        part = min(len(node), gpus - len(taken))
        cover = _cover(job, part, node, layout, affinity) if part else None
        if cover is not None:
            taken += cover[0]
            beside += cover[1]
    if len(taken) == gpus and beside:
        yield tuple(taken), tuple(sorted(beside, key=lambda other: other.order))


def _cover(
    job: JobState, gpus: int, node: range, layout: Layout, affinity: Callable[[JobState, JobState], float]
) -> tuple[tuple[int, ...], tuple[JobState, ...]] | None:
    """Return `gpus` GPUs of a node for `job`, and the smaller jobs on these GPUs; None if there are too few.

    The GPUs are free, or belong to smaller jobs that do not share GPUs yet and share all of theirs now.
    """
    free = [gpu for gpu in node if not layout.on(gpu)]
    small = []
    for other in layout.others(node):
        place = layout.places[other.order]
        within = all(gpu in node for gpu in place)
        if len(place) < job.spec.gpus and within and all(len(layout.on(gpu)) == 1 for gpu in place):
            small.append(other)
    small.sort(key=lambda other: (-affinity(job, other), other.order))
    taken: list[int] = []
    beside = []
    for other in small:
        place = layout.places[other.order]
        if gpus - len(taken) <= len(free):
            break
        if len(place) <= gpus - len(taken):
            taken += place
            beside.append(other)
    missing = gpus - len(taken)
    if missing > len(free):
        return None
    return tuple(taken + free[:missing]), tuple(sorted(beside, key=lambda other: other.order))
