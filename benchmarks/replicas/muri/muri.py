"""Muri as its public simulator has it (simulator/run_sim.py and matching.py there).

Deterministic, so that results can be compared with the authors' digit by digit. Differences from the paper,
and so from `scheduling.muri`:

- Jobs are taken from the queue four at a time: a job that fits on the emptied cluster reserves a place and
  brings the first four jobs of its size, itself among them or not.
- Jobs are grouped only as far as is needed to fit; rounds of matching go on until they fit, at most four.
- Merges are carried out size by size in order of the size's first job, not of their waste.
- All is placed anew at every event. With `unpack` groups slower than their members in turn are split again.
- The round's length has three stages of which the first spans two slots (`pipeline`),
  times a constant for the contention of two, three and four jobs.
- Attained service is not discretised into queues (Muri-L).

Maximum-weight matching of a dense graph, with the tie-breaks of Muri's public simulator.

Weights between jobs of few models are often equal, so the choice among the many maximum matchings decides
which jobs run together, and so every later event. `grouping.matching` is for all other uses: it is exact,
too, and much faster on large sparse graphs.

blossom.c, which lies beside this file, is compiled when it is first needed, and kept where the switch keeps
its programs (`softswitch.engine.build`).
"""

from __future__ import annotations

import ctypes
import heapq
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path

import numpy as np

from benchmarks.replicas.muri.speed import (
    CONTENTION,
    CONTENTION_IN_ORDER,
    SLOTS,
    MuriSpeed,
    round_s,
    stages_of,
)
from controller.policies.scheduling.errors import BadSpec, SchedulingError
from controller.policies.scheduling.placement import FreeGpuCounts, FreeGpus
from controller.policies.scheduling.policy import Decision, Group, JobState, View
from controller.policies.scheduling.ranked import Entry, Rank, WaitingJobs
from controller.vocabulary import Cluster
from softswitch.engine.build import build_c
from softswitch.engine.pipeline import BuildFailed, NoCache, NoCompiler

SOURCE = Path(__file__).with_name("blossom.c")
# a fused multiplication would round differently from Python, and so break ties differently
FLAGS = ("-std=gnu11", "-O3", "-ffp-contract=off", "-shared", "-fPIC")


def dense_matching(weights: Sequence[Sequence[float]]) -> list[int]:
    """Return each node's partner in a maximum-weight matching, -1 for none.

    `weights[u][v]` is the weight of an edge, 0 if there is none; [u][v] and [v][u] may differ by rounding.
    Raises SchedulingError where there is no C compiler. O(n^3).

    >>> dense_matching([[0, 3, 1], [3, 0, 2], [1, 2, 0]])
    [1, 0, -1]
    """
    table = np.array(weights, dtype=np.float64, order="C")
    partner = np.full(len(table), -1, dtype=np.int32)
    if table.any() and library()(len(table), table.ctypes.data, partner.ctypes.data):
        raise MemoryError(f"matching {len(table)} nodes")
    found: list[int] = partner.tolist()
    return found


@cache
def library() -> Callable[[int, int, int], int]:
    """Return the compiled function. Raises SchedulingError where there is no C compiler."""
    try:
        path = build_c(SOURCE.read_text(encoding="utf-8"), flags=FLAGS)
    except (NoCompiler, NoCache, BuildFailed) as error:
        raise SchedulingError(f"the matching of Muri's public simulator: {error}") from error
    function = ctypes.CDLL(str(path)).blossom_match
    function.restype, function.argtypes = ctypes.c_int, [ctypes.c_int32, ctypes.c_void_p, ctypes.c_void_p]
    match: Callable[[int, int, int], int] = function
    return match


Members = tuple[JobState, ...]


class MuriReplica:
    """Muri-S (`known` durations: remaining service first) and Muri-L (attained service first), public code.

    `members` is the largest group; `blossom=False` groups neighbours in the queue instead; `worst`
    interleaves in the worst order (an ablation); `unpack` splits groups that are slower than their members
    in turn.
    """

    def __init__(
        self,
        name: str = "muri-s",
        *,
        known: bool = True,
        unpack: bool = True,
        members: int = SLOTS,
        blossom: bool = True,
        worst: bool = False,
    ) -> None:
        if not 1 <= members <= SLOTS:
            raise BadSpec(f"groups of {members} jobs; 1 to {SLOTS} are possible")
        self.name = name
        self._known = known
        self._unpack = unpack
        self._members = members
        self._blossom = blossom
        self._worst = worst
        self._contention = CONTENTION if blossom else CONTENTION_IN_ORDER
        self._waiting = WaitingJobs()
        self._running: list[JobState] = []
        self._rank: dict[int, Rank] = {}  # of unfinished jobs, by order of arrival
        self._epoch = 0
        self._round_s: dict[tuple[tuple[float, ...], ...], float] = {}

    def speed(self) -> MuriSpeed:
        """Return the speed model that belongs to this variant."""
        return MuriSpeed(self._contention, self._worst)

    def decide(self, view: View) -> Decision:
        """Return the groups for the first jobs."""
        now_s = view.now_s
        self._epoch += 1
        fresh = {job.order for job in view.arrived}
        for job in view.arrived:
            stages_of(job.spec)
            rank = self._rank[job.order] = (
                self._value(job, now_s),
                self._epoch if self._known else 0,
                job.order,
            )
            self._waiting.add(job, rank)
        held = self._held(view)
        heads, places = self._take(view.cluster, held, fresh)
        needed = sum(size * len(entries) for size, entries in heads.items())
        if self._blossom:
            groups, spared = self._rounds(heads, needed, view.cluster.gpus)
        else:
            groups, spared = self._in_order(heads, places, needed, view.cluster.gpus), []
        crowded = sum(size * len(nodes) for size, nodes in groups.items()) > view.cluster.gpus
        if self._unpack and (
            crowded or any(self._slower(node) for nodes in groups.values() for node in nodes)
        ):
            for size in spared:  # for the order alone: split groups compete with them
                groups[size], _ = self._merge(groups[size], size, 0, 0)
            groups = self._split(groups, heads, view.cluster)
        placed = self._place(groups, heads, view.cluster)
        self._remember(placed, held)
        return Decision(placed)

    def _held(self, view: View) -> dict[int, list[Entry]]:
        """Rank the running jobs anew, and return them by size.

        The original sorts one list again and again, so equal values keep their earlier order. A job whose
        attained service grows to another's value was before it; a job whose remaining service falls to it was
        behind it.
        """
        for job in view.finished:
            del self._rank[job.order]
            if job not in self._running:
                self._waiting.discard(job)  # it came to its end while it was being stopped
        epoch = self._epoch if self._known else -self._epoch
        held: dict[int, list[Entry]] = {}
        before = sorted(
            [(self._rank[job.order], job.order, job) for job in self._running if job.finish_s is None]
        )
        for position, (rank, order, job) in enumerate(before):
            value = self._value(job, view.now_s)
            if value != rank[0]:
                rank = self._rank[order] = (value, epoch, position)
            held.setdefault(job.spec.gpus, []).append((rank, order, job))
        return held

    def _value(self, job: JobState, now_s: float) -> float:
        if not self._known:
            return job.attained_s(now_s) * job.spec.gpus
        if job.start_s is None and job.spec.estimate_s is not None:
            return job.spec.estimate_s * job.spec.gpus
        return job.remaining_s(now_s) * job.spec.gpus

    def _take(
        self, cluster: Cluster, held: dict[int, list[Entry]], fresh: set[int]
    ) -> tuple[dict[int, list[Entry]], dict[int, int]]:
        """Return the jobs to group by size, and the number of places reserved by each size.

        Sizes come in order of their first job's value.
        """
        queues: dict[int, list[Entry]] = {}
        for size in {*held, *self._waiting.sizes()}:
            most = self._members * (cluster.gpus // size)
            queues[size] = sorted([*held.get(size, ()), *self._waiting.bucket(size)[:most]])[:most]
        counts = FreeGpuCounts(cluster)
        places: dict[int, int] = {}
        taken: dict[int, int] = {}

        def key(size: int, position: int) -> tuple[float, bool, int, int, int]:
            # among equals the new ones come last, as they came; the others were sorted by size, largest first
            rank, order, _ = queues[size][position]
            return (rank[0], order in fresh, order if order in fresh else -size, size, position)

        heap = [key(size, 0) for size in queues]
        heapq.heapify(heap)
        heads: dict[int, list[Entry]] = {size: [] for _, _, _, size, _ in sorted(heap)}
        while heap:
            _, _, _, size, position = heapq.heappop(heap)
            if counts.allocate(size):
                places[size] = places.get(size, 0) + 1
                taken[size] = min(position + self._members, len(queues[size]))
                if taken[size] < len(queues[size]):
                    heapq.heappush(heap, key(size, taken[size]))
        for size, queue in queues.items():
            heads[size] = queue[: taken.get(size, 0)]
        return heads, places

    def _rounds(
        self, heads: dict[int, list[Entry]], needed: int, gpus: int
    ) -> tuple[dict[int, list[Members]], list[int]]:
        """Match and merge until all fit. Also return the sizes that the last round spared."""
        groups: dict[int, list[Members]] = {
            size: [(entry[2],) for entry in entries] for size, entries in heads.items()
        }
        spared: list[int] = []
        for _ in range(self._members):
            if needed <= gpus:
                break
            for size in groups:
                if needed <= gpus:
                    spared.append(size)
                else:
                    groups[size], needed = self._merge(groups[size], size, needed, gpus)
        return groups, spared

    def _merge(
        self, nodes: Sequence[Members], size: int, needed: int, gpus: int
    ) -> tuple[list[Members], int]:
        """Match groups of one size and merge the pairs as long as that is needed.

        Pairs stand where their second half stood, merged or not.
        """
        partner = dense_matching(self._weights(nodes))
        merged: list[Members] = []
        for number, node in enumerate(nodes):
            other = partner[number]
            if other < 0 or partner[other] != number:
                merged.append(node)
            elif other < number:
                if needed > gpus:
                    merged.append(nodes[other] + node)
                    needed -= size
                else:
                    merged += (nodes[other], node)
        return merged, needed

    def _weights(self, nodes: Sequence[Members]) -> list[list[float]]:
        """Return the combined use of the resources by each pair of groups."""
        kinds = [tuple([job.spec.stages_s for job in node]) for node in nodes]
        number_of: dict[tuple[tuple[float, ...], ...], int] = {}
        numbers = [number_of.setdefault(kind, len(number_of)) for kind in kinds]
        distinct = list(number_of)
        table = [[self._weight(a, b) for b in distinct] for a in distinct]
        weights = []
        for row, number in enumerate(numbers):
            line = table[number]
            values = [line[other] for other in numbers]
            values[row] = 0.0
            weights.append(values)
        return weights

    def _weight(self, a: tuple[tuple[float, ...], ...], b: tuple[tuple[float, ...], ...]) -> float:
        kinds = a + b
        if len(kinds) > self._members:
            return 0.0
        value = self._round_s.get(kinds)
        if value is None:
            round_length_s = round_s(kinds, worst=self._worst) * self._contention[len(kinds) - 1]
            used_s = sum([sum(kind) for kind in kinds])
            value = self._round_s[kinds] = used_s / (round_length_s * SLOTS)
        return value

    def _in_order(
        self, heads: dict[int, list[Entry]], places: dict[int, int], needed: int, gpus: int
    ) -> dict[int, list[Members]]:
        groups: dict[int, list[Members]] = {}
        for size, entries in heads.items():
            groups[size] = []
            jobs = [entry[2] for entry in entries]
            for place in range(places.get(size, 0)):
                mine = jobs[place * self._members : (place + 1) * self._members]
                together = mine[:1]
                for job in mine[1:]:
                    if needed > gpus:
                        together.append(job)
                        needed -= size
                    else:
                        groups[size].append((job,))
                groups[size].append(tuple(together))
        return groups

    def _split(
        self, groups: dict[int, list[Members]], heads: dict[int, list[Entry]], cluster: Cluster
    ) -> dict[int, list[Members]]:
        """Split groups that do not pay, and keep groups that fit, in order of value."""
        value_of = {order: rank[0] for entries in heads.values() for rank, order, _ in entries}
        ranked: list[tuple[float, int, Members]] = []
        for size, nodes in groups.items():
            for node in nodes:
                values = [value_of[job.order] for job in node]
                if self._slower(node):
                    ranked += [(value, size, (job,)) for value, job in zip(values, node, strict=True)]
                else:
                    ranked.append((min(values), size, node))
        ranked.sort(key=lambda entry: entry[0])
        counts = FreeGpuCounts(cluster)
        kept: dict[int, list[Members]] = {}
        for _, size, node in ranked:
            if counts.allocate(size):
                kept.setdefault(size, []).append(node)
        return kept

    def _slower(self, node: Members) -> bool:
        if len(node) == 1:
            return False
        together_s = round_s([job.spec.stages_s for job in node]) * self._contention[len(node) - 1]
        return together_s / sum([job.alone_s for job in node]) > 1

    def _place(
        self, groups: dict[int, list[Members]], heads: dict[int, list[Entry]], cluster: Cluster
    ) -> list[Group]:
        """Give each group its GPUs: large ones first, among equals the one with the first job."""
        slots = FreeGpus(cluster)
        placed: list[Group] = []
        for size in sorted(groups, reverse=True):
            position = {entry[1]: number for number, entry in enumerate(heads[size])}
            for node in sorted(groups[size], key=lambda node: min(position[job.order] for job in node)):
                gpus = slots.allocate(size)
                if gpus is not None:
                    placed.append(Group(node, gpus, fused=True, reason=f"{len(node)} of {size} GPUs"))
        return placed

    def _remember(self, placed: list[Group], held: dict[int, list[Entry]]) -> None:
        running = {job.order for group in placed for job in group.jobs}
        before = {order for entries in held.values() for _, order, _ in entries}
        for group in placed:
            for job in group.jobs:
                if job.order not in before:
                    self._waiting.remove(job, self._rank[job.order])
        for entries in held.values():
            for rank, order, job in entries:
                if order not in running:
                    self._waiting.add(job, rank)
        self._running = [job for group in placed for job in group.jobs]
