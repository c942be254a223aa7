"""Scheduling on GPUs of several kinds, on which models are faster by different factors (Gavel, OSDI'20)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from enum import Enum

from controller.policies.scheduling.errors import BadSpec
from controller.policies.scheduling.model import Submission
from controller.policies.scheduling.placement import Slots
from controller.policies.scheduling.policy import Decision, Group, JobState, View
from controller.policies.scheduling.told import TRUTH, Told
from controller.vocabulary import Cluster
from controller.vocabulary.errors import plural

SpeedOn = Callable[[Submission, str], float]
"""Speed of a job on a kind of GPU, relative to the kind on which it is fastest."""


class Prefer(Enum):
    """How a job's kind of GPU is chosen."""

    ANY = "whatever server comes first"
    FAST = "the fastest that is free, in the order of the queue"
    GAIN = "those to whom a kind matters most come first"


class ByKind:
    """Shortest remaining service first, each job within one kind of GPUs.

    Jobs are chosen until the GPUs are used up, in the order of their remaining service on the kind on which
    they are fastest. `prefer` decides which kind each gets: with `GAIN` the jobs that lose most by another
    kind choose first, so that a kind goes to the jobs that it speeds up most, as in Gavel's policies, which
    use linear programs. A running job moves to another kind only if the time saved there is more than
    `patience` times the cost of a start.
    """

    def __init__(
        self,
        kinds: Sequence[str],
        speed_on: SpeedOn,
        told: Told = TRUTH,
        *,
        prefer: Prefer = Prefer.GAIN,
        patience: float = 2.0,
    ) -> None:
        """Schedule on servers of these kinds, one of each server in order."""
        self.name = f"kinds-{prefer.name.lower()}"
        self._kinds = kinds
        self._speed_on = speed_on
        self._told = told
        self._prefer = prefer
        self._patience = patience
        self._parts: dict[str, tuple[Cluster, list[int]]] = {}

    def decide(self, view: View) -> Decision:
        """Return the jobs that run, and on which kind."""
        now_s = view.now_s
        if not self._parts:
            self._parts = parts(view.cluster, self._kinds)
        self._check(view.arrived)
        kinds = list(self._parts)
        ranked = sorted(
            view.jobs.values(),
            key=lambda job: (self._told.remaining_s(job, now_s) * job.spec.gpus, job.order),
        )
        chosen: list[JobState] = []
        left = view.cluster.gpus
        for job in ranked:
            if job.spec.gpus <= left:
                chosen.append(job)
                left -= job.spec.gpus
        slots = {kind: Slots(part) for kind, (part, _) in self._parts.items()}
        groups = []
        taken = set(chosen)
        rest = [job for job in ranked if job not in taken]  # for what the chosen leave free in pieces
        for job in [*self._in_turn(chosen, kinds, now_s), *rest]:
            group = self._place(job, self._liked(job, kinds, now_s), slots)
            if group is not None:
                groups.append(group)
        return Decision(groups)

    def _check(self, arrived: Sequence[JobState]) -> None:
        most = max(part.gpus for part, _ in self._parts.values())
        for job in arrived:
            if job.spec.gpus > most:
                raise BadSpec(
                    f"job {job.spec.name!r} asks for {plural(job.spec.gpus, 'GPU')} of one kind;"
                    f" there are {most}"
                )

    def _in_turn(self, chosen: list[JobState], kinds: Sequence[str], now_s: float) -> list[JobState]:
        if self._prefer is not Prefer.GAIN:
            return chosen

        def loses(job: JobState) -> float:
            """Return the loss by the job's second-best kind, weighted by its rank."""
            speeds = sorted((self._speed_on(job.spec, kind) for kind in kinds), reverse=True)
            next_best = speeds[1] if len(speeds) > 1 else speeds[0]
            return (speeds[0] - next_best) / max(1e-9, self._told.remaining_s(job, now_s) * job.spec.gpus)

        return sorted(chosen, key=lambda job: (-loses(job), job.order))

    def _liked(self, job: JobState, kinds: Sequence[str], now_s: float) -> list[str]:
        """Return the kinds in the order in which it takes them."""
        if self._prefer is Prefer.ANY:
            order = list(kinds)
        else:
            order = sorted(kinds, key=lambda kind: -self._speed_on(job.spec, kind))
        here = self._kind_of(job)
        if here is None or order[0] == here:
            return order
        left_s = self._told.remaining_s(job, now_s)
        now, there = (self._speed_on(job.spec, kind) for kind in (here, order[0]))
        saved_s = left_s / now - left_s / there
        if self._prefer is Prefer.ANY or saved_s <= self._patience * job.spec.restart_s:
            order.remove(here)
            order.insert(0, here)
        return order

    def _kind_of(self, job: JobState) -> str | None:
        if job.group is None:
            return None
        return next(kind for kind, (_, gpus) in self._parts.items() if job.group.gpus[0] in gpus)

    def _place(self, job: JobState, liked: Sequence[str], slots: Mapping[str, Slots]) -> Group | None:
        for kind in liked:
            _, numbers = self._parts[kind]
            if job.group is not None and self._kind_of(job) == kind:
                kept = [numbers.index(gpu) for gpu in job.group.gpus]
                if slots[kind].try_keep(kept):
                    return job.group
            place = slots[kind].take(job.spec.gpus)
            if place is not None:
                gpus = tuple(numbers[number] for number in place)
                return Group(
                    (job,), gpus, reason=f"on {kind}: {self._speed_on(job.spec, kind):.2f} of its best"
                )
        return None


def parts(cluster: Cluster, kinds: Sequence[str]) -> dict[str, tuple[Cluster, list[int]]]:
    """Return the servers of each kind of GPUs as a cluster, and their GPUs' numbers in the whole one."""
    found: dict[str, tuple[Cluster, list[int]]] = {}
    for kind in dict.fromkeys(kinds):
        numbers = [n for n, other in enumerate(kinds) if other == kind]
        gpus = [
            gpu
            for n in numbers
            for gpu in range(cluster.first_gpu[n], cluster.first_gpu[n] + cluster.servers[n].gpus)
        ]
        found[kind] = Cluster(tuple(cluster.servers[n] for n in numbers)), gpus
    return found
