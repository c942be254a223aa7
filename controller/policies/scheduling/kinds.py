"""``types:POLICY``: GPUs of several kinds, on which models are faster by different factors.

Models' speeds on each kind are Gavel's (OSDI'20; its file ``simulation_throughputs.json``), or synthetic.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

from controller.policies.family import (
    Family,
    Options,
    Setup,
    SimulationConfig,
    declared,
    option,
    readable,
    resolved,
)
from controller.policies.scheduling.beliefs import TRUTH, Told
from controller.policies.scheduling.errors import BadSpec, BadTrace
from controller.policies.scheduling.model import Submission
from controller.policies.scheduling.placement import Slots
from controller.policies.scheduling.policy import Decision, Group, JobState, View
from controller.policies.scheduling.speed import Exclusive
from controller.vocabulary import Cluster
from controller.vocabulary.errors import plural

LARGEST = 1e12
"""Steps per second beyond which a figure counts as not measured."""


def throughputs(text: str, gpu: str, *, source: str) -> dict[str, Any]:
    """Return the entries of the file `source` for GPUs of kind `gpu`, by job type. Raises BadTrace."""
    try:
        table = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise BadTrace(source, 0, "", f"not JSON: {error}") from error
    if not isinstance(table, dict) or not all(isinstance(entries, dict) for entries in table.values()):
        raise BadTrace(source, 0, "", "want an object of objects: steps per second by GPU and by type")
    if gpu not in table:
        raise BadTrace(source, 0, gpu, f"no such GPU; there are {', '.join(sorted(table))}")
    chosen: dict[str, Any] = table[gpu]
    return chosen


def alone(table: dict[str, Any], kind: str, gpus: int) -> float:
    """Return the steps per second of a job type alone on `gpus` GPUs; 0: it was not measured."""
    entry = table.get(f"('{kind}', {gpus})")
    speed = entry.get("null") if isinstance(entry, dict) else None
    return float(speed) if isinstance(speed, int | float) and 0 < speed <= LARGEST else 0.0


def speeds_by_kind(text: str, kinds: Sequence[str], *, source: str) -> dict[str, dict[str, float]]:
    """Return each model's measured speed on one GPU of these kinds, relative to the best of them.

    Models that were not measured on all are left out. Raises BadTrace.
    """
    tables = {kind: throughputs(text, kind, source=source) for kind in kinds}
    found = {}
    for name in tables[kinds[0]]:
        model = name.removeprefix("('").removesuffix("', 1)")
        row = {kind: alone(table, model, 1) for kind, table in tables.items()}
        if f"('{model}', 1)" == name and min(row.values()) > 0:
            best = max(row.values())
            found[model] = {kind: speed / best for kind, speed in row.items()}
    if not found:
        raise BadTrace(source, 0, "", f"no model was measured on all of {', '.join(kinds)}")
    return found


SpeedOn = Callable[[Submission, str], float]
"""Speed of a job on a kind of GPU, relative to the kind on which it is fastest."""


PATIENCE = 2.0
"""A job moves to another kind only if that saves more than this many times the cost of a start."""


class ByKind:
    """Shortest remaining service first, each job within one kind of GPUs.

    Jobs are chosen until the GPUs are used up, in the order of their remaining service on the kind on which
    they are fastest. With `fast` each takes the fastest kind that is free, else whatever server comes first.
    """

    def __init__(
        self, kinds: Sequence[str], speed_on: SpeedOn, told: Told = TRUTH, *, fast: bool = True
    ) -> None:
        """Schedule on servers of these kinds, one of each server in order."""
        self.name = "kinds-fast" if fast else "kinds-any"
        self._kinds = kinds
        self._speed_on = speed_on
        self._told = told
        self._fast = fast
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
        for job in [*chosen, *rest]:
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

    def _liked(self, job: JobState, kinds: Sequence[str], now_s: float) -> list[str]:
        """Return the kinds in the order in which it takes them."""
        order = list(kinds)
        if self._fast:
            order.sort(key=lambda kind: -self._speed_on(job.spec, kind))
        here = self._kind_of(job)
        if here is None or order[0] == here:
            return order
        left_s = self._told.remaining_s(job, now_s)
        now, there = (self._speed_on(job.spec, kind) for kind in (here, order[0]))
        saved_s = left_s / now - left_s / there
        if not self._fast or saved_s <= PATIENCE * job.spec.restart_s:
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


KINDS = ("v100", "p100", "k80")
"""Of servers that do not say what GPUs they have: in turn."""

RANGES = {"v100": (1.0, 1.0), "p100": (0.3, 0.95), "k80": (0.08, 0.4)}
"""Made-up speeds are drawn evenly from these: as far apart as those of Gavel's models."""

MODELS = 30


@dataclass(frozen=True, slots=True)
class KindSpeed:
    """Jobs run at the speed of their slowest kind of GPU; their own figures are for their best kind."""

    kinds: Sequence[str]
    cluster: Cluster
    speed_on: SpeedOn
    plain: Exclusive

    def alone_s(self, job: Submission) -> float:
        """Return the job's own seconds per iteration."""
        return job.iteration_s

    def iteration_s(self, group: Group) -> Sequence[float]:
        """Return each member's seconds per iteration on these GPUs."""
        on = {self.kinds[self.cluster.node_of[gpu]] for gpu in group.gpus}
        plain = self.plain.iteration_s(group)
        return [
            alone_s / min(self.speed_on(job.spec, kind) for kind in on)
            for job, alone_s in zip(group.jobs, plain, strict=True)
        ]

    def restart_s(self, group: Group) -> Sequence[float]:
        """Return each member's own cost of a restart, in seconds."""
        return self.plain.restart_s(group)


def kinds_of(cluster: Cluster) -> tuple[str, ...]:
    """Return the kind of each server's GPUs: its own, or one of `KINDS` in turn."""
    return tuple(node.kind or KINDS[number % len(KINDS)] for number, node in enumerate(cluster.servers))


@lru_cache(maxsize=8)
def speeds(path: Path | None, kinds: tuple[str, ...], seed: int) -> Mapping[str, Mapping[str, float]]:
    """Return each model's speed by kind, relative to its best kind (1). Raises BadSpec, BadTrace."""
    if path is not None:
        with readable(path):
            text = path.read_text(encoding="utf-8-sig")
        return speeds_by_kind(text, sorted(set(kinds)), source=str(path))
    unknown = sorted(set(kinds) - set(RANGES))
    if unknown:
        raise BadSpec(
            f"GPUs of kind {unknown[0]!r}: synthetic speeds exist for {', '.join(RANGES)}; give --pairs"
        )
    rng = random.Random(f"kinds {seed}")
    made = [{kind: rng.uniform(*RANGES[kind]) for kind in RANGES} for _ in range(MODELS)]
    found = {}
    for number, row in enumerate(made):
        best = max(row[kind] for kind in set(kinds))
        found[f"net{number}"] = {kind: row[kind] / best for kind in set(kinds)}
    return found


def dress(specs: Sequence[Submission], config: SimulationConfig) -> list[Submission]:
    """Return the jobs with models whose speeds are known, none larger than the GPUs of a kind."""
    kinds = kinds_of(config.cluster)
    models = sorted(speeds(config.pairs, kinds, config.seed))
    rng = random.Random(config.seed)
    room = {vc: largest(config.cluster.part(vc)) for vc in config.cluster.virtual or ("",)}
    most = max(room.values())
    return [
        replace(spec, model=rng.choice(models), gpus=min(spec.gpus, room.get(spec.vc, most)))
        for spec in specs
    ]


def largest(cluster: Cluster) -> int:
    """Return the largest number of GPUs of one kind."""
    return max(part.gpus for part, _ in parts(cluster, kinds_of(cluster)).values())


def _speed_on(config: SimulationConfig, kinds: tuple[str, ...]) -> SpeedOn:
    table = speeds(config.pairs, kinds, config.seed)

    def speed_on(spec: Submission, kind: str) -> float:
        if spec.model not in table:
            few = ", ".join(sorted(table)[:8])
            raise BadSpec(
                f"job {spec.name!r} trains {spec.model!r}, whose speeds are unknown; known are {few}"
            )
        return table[spec.model][kind]

    return speed_on


POLICIES: Mapping[str, tuple[str, bool]] = {
    "srsf": ("shortest remaining service first, on whatever GPUs come first", False),
    "fast-first": ("shortest remaining service first, on the fastest GPUs that are free", True),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class KindOptions(Options):
    """Options of the family."""

    restart_scale: float = option("factor on the cost of restarts", 1.0, 0.0, 1e6)


def make(name: str, config: SimulationConfig) -> Setup:
    """Return a fresh policy with its speed model and interval."""
    kinds = kinds_of(config.cluster)
    speed_on = _speed_on(config, kinds)
    plain = Exclusive(resolved(KindOptions, config).restart_scale)
    policy = ByKind(kinds, speed_on, fast=POLICIES[name][1])
    return Setup(policy, KindSpeed(kinds, config.cluster, speed_on, plain))


FAMILY = Family(
    "GPUs of several kinds; --pairs FILE of Gavel's throughputs, or made-up speeds",
    {name: about for name, (about, _) in POLICIES.items()},
    make,
    dress,
    declared(KindOptions),
    main=("fast-first",),
)
