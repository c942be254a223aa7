"""AntMan-style sharing (OSDI'20) as in Muri's public simulator.

Guaranteed jobs (priority 0) get GPUs that no other guaranteed job has, consolidated, first come first
served. A guaranteed job that does not fit takes the free GPUs of its best node, and waits for more.
Opportunistic jobs get the GPUs with the lowest utilisation below a cap, on any node; a guaranteed job may use
these GPUs, too. No job is preempted. Utilisation is one constant for guaranteed and one for opportunistic
jobs, so that at most one job of each kind uses a GPU.

Jobs that hold some of the GPUs that they need can deadlock. In a deadlock, the original prints "This
cluster is not large enough to run the job" and stops; here an error gives the reason. If the jobs' numbers of
GPUs are powers of two, there is no deadlock.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from controller.policies.scheduling.errors import BadSpec, Stuck
from controller.policies.scheduling.policy import Decision, Group, JobState, View
from controller.vocabulary import Cluster

GUARANTEED_USE, OPPORTUNISTIC_USE, CAP = 0.1, 0.9, 0.8
MARK = 0.01
"""Part of a guaranteed job's utilisation that is counted only when the job has all its GPUs."""


@dataclass(slots=True)
class _Hold:
    """The GPUs that a guaranteed job holds so far; `node` is the number of its partly held node, -1: none."""

    gpus: list[int] = field(default_factory=list)
    node: int = -1


class AntMan:
    """Policy that runs one guaranteed job on each GPU, and opportunistic jobs beside these."""

    name = "antman"

    def __init__(self) -> None:
        self._queue: list[JobState] = []
        self._holds: dict[int, _Hold] = {}
        self._running: dict[int, tuple[JobState, tuple[int, ...]]] = {}
        self._use: list[float] = []
        self._below: int | None = None  # GPUs below the cap, if counted since the last change
        self._open_gpus = 0
        self._owner: list[int] = []  # the guaranteed job that holds each GPU; -1: none
        self._guests: list[list[int]] = []
        self._nodes: tuple[range, ...] = ()

    def decide(self, view: View) -> Decision:
        """Start all jobs that can start; running jobs continue."""
        if not self._nodes:
            self._prepare(view.cluster)
        for job in view.finished:
            self._release(job)
        self._queue += view.arrived
        self._queue.sort(key=lambda job: (job.spec.opportunistic > 0, job.spec.arrival_s, job.order))
        waiting: list[JobState] = []
        for job in self._queue:
            gpus = self._opportunistic(job) if job.spec.opportunistic else self._guaranteed(job)
            if gpus is None:
                waiting.append(job)
            else:
                self._running[job.order] = (job, gpus)
        self._queue = waiting
        if waiting and not self._running:
            raise Stuck(self._deadlock(view.now_s))
        order = sorted(
            self._running.values(),
            key=lambda held: (held[0].spec.opportunistic > 0, held[0].spec.arrival_s, held[0].order),
        )
        return Decision([self._group(job, gpus) for job, gpus in order])

    def _deadlock(self, now_s: float) -> str:
        held = ", ".join(
            f"{job.spec.name} {len(self._holds[job.order].gpus)} of {job.spec.gpus}"
            for job in self._queue
            if job.order in self._holds
        )
        return (
            f"a deadlock at {now_s:,.0f} s: jobs keep the GPUs that they have while they wait for more, as in"
            f" the original (held: {held}); numbers of GPUs that are powers of two do not deadlock"
        )

    def _prepare(self, cluster: Cluster) -> None:
        if len({node.gpus for node in cluster.servers}) > 1:
            raise BadSpec("servers of unequal size; antman, as in the public simulator, needs equal servers")
        gpus = len(cluster.node_of)  # of servers that are down, too
        self._use = [0.0] * gpus
        self._open_gpus = gpus
        self._owner = [-1] * gpus
        self._guests = [[] for _ in range(gpus)]
        self._nodes = cluster.gpus_of

    def _group(self, job: JobState, gpus: tuple[int, ...]) -> Group:
        others: dict[int, None] = {}
        for gpu in gpus:
            for order in (self._owner[gpu], *self._guests[gpu]):
                if order != job.order and order in self._running:
                    others[order] = None
        neighbours = tuple(self._running[order][0] for order in sorted(others))
        old = job.group
        if old is not None and old.gpus == gpus and old.neighbours == neighbours:
            return old
        kind = "opportunistic" if job.spec.opportunistic else "guaranteed"
        return Group((job,), gpus, neighbours=neighbours, reason=kind)

    def _release(self, job: JobState) -> None:
        _, gpus = self._running.pop(job.order)
        use = OPPORTUNISTIC_USE if job.spec.opportunistic else GUARANTEED_USE
        self._below = None
        if not job.spec.opportunistic:
            self._open_gpus += len(gpus)
        for gpu in gpus:
            self._use[gpu] -= use
            if job.spec.opportunistic:
                self._guests[gpu].remove(job.order)
            else:
                self._owner[gpu] = -1

    def _opportunistic(self, job: JobState) -> tuple[int, ...] | None:
        if self._below is not None and self._below < job.spec.gpus:
            return None
        below = [gpu for gpu, use in enumerate(self._use) if use < CAP]
        self._below = len(below)
        if self._below < job.spec.gpus:
            return None
        self._below = None
        below.sort(key=self._use.__getitem__)
        chosen = below[: job.spec.gpus]
        for gpu in chosen:
            self._use[gpu] += OPPORTUNISTIC_USE
            self._guests[gpu].append(job.order)
        return tuple(chosen)

    def _guaranteed(self, job: JobState) -> tuple[int, ...] | None:
        if not self._open_gpus:
            return None
        hold = self._holds.setdefault(job.order, _Hold())
        whole = max(map(len, self._nodes))
        need = job.spec.gpus - len(hold.gpus)
        if job.spec.gpus > whole:
            complete = self._hold_across(job, hold, need, whole)
        else:
            complete = self._hold_part(job, hold, need, frozenset())
        if not complete:
            return None
        del self._holds[job.order]
        self._below = None
        for gpu in hold.gpus:
            self._use[gpu] += MARK
        return tuple(hold.gpus)

    def _hold_across(self, job: JobState, hold: _Hold, need: int, whole: int) -> bool:
        nodes, rest = divmod(need, whole)
        idle = [number for number, node in enumerate(self._nodes) if len(self._open(node)) >= whole][:nodes]
        complete = len(idle) == nodes
        if rest:
            complete = self._hold_part(job, hold, rest, frozenset(idle)) and complete
        for number in idle:
            self._hold(job, hold, self._open(self._nodes[number])[:whole])
        return complete

    def _hold_part(self, job: JobState, hold: _Hold, need: int, without: frozenset[int]) -> bool:
        """Hold `need` free GPUs of one node, and return True; if no node has them, return False.

        In the second case, hold all free GPUs of the node with most free GPUs. If `hold` already has a partly
        held node, only this node is used. Nodes in `without` are not used.
        """
        best: list[int] = []
        for number in range(len(self._nodes)) if hold.node < 0 else (hold.node,):
            if number in without:
                continue
            free = self._open(self._nodes[number])
            if len(free) >= need:
                hold.node = number
                self._hold(job, hold, free[:need])
                return True
            if len(free) > len(best):
                best = free
                node = number
        if best:
            hold.node = node
            self._hold(job, hold, best)
        return False

    def _open(self, node: range) -> list[int]:
        return [gpu for gpu in node if self._owner[gpu] < 0]

    def _hold(self, job: JobState, hold: _Hold, gpus: Sequence[int]) -> None:
        hold.gpus += gpus
        self._open_gpus -= len(gpus)
        self._below = None
        for gpu in gpus:
            self._owner[gpu] = job.order
            self._use[gpu] += GUARANTEED_USE - MARK
