"""``types:POLICY``: GPUs of several kinds; models' speeds on each are Gavel's (a file), or synthetic."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path

from controller.policies.families.base import Family, Setting, SimulationConfig, readable, resolve_settings
from controller.policies.scheduling.errors import BadSpec
from controller.policies.scheduling.kinds import ByKind, Prefer, SpeedOn, parts
from controller.policies.scheduling.model import Submission
from controller.policies.scheduling.policy import Group, Policy
from controller.policies.scheduling.speed import Exclusive
from controller.policies.scheduling.throughputs import speeds_by_kind
from controller.policies.setup import Setup
from controller.vocabulary import Cluster

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


POLICIES: Mapping[str, tuple[str, Prefer]] = {
    "srsf": ("shortest remaining service first, on whatever GPUs come first", Prefer.ANY),
    "fast-first": ("the same, on the fastest GPUs that are free", Prefer.FAST),
    "matched": ("the same, each kind to those whom it speeds up most (after Gavel, OSDI'20)", Prefer.GAIN),
}

SETTINGS = {
    "patience": Setting("a job moves to another kind for so many times what a start costs", 2.0, 0.0, 1e6),
    "restart_scale": Setting("factor on the cost of restarts", 1.0, 0.0, 1e6),
}


def make(name: str, config: SimulationConfig) -> Setup:
    """Return a fresh policy with its speed model and interval."""
    chosen = resolve_settings(SETTINGS, config)
    kinds = kinds_of(config.cluster)
    speed_on = _speed_on(config, kinds)
    policy: Policy = ByKind(kinds, speed_on, prefer=POLICIES[name][1], patience=chosen["patience"])
    return Setup(policy, KindSpeed(kinds, config.cluster, speed_on, Exclusive(chosen["restart_scale"])))


FAMILY = Family(
    "GPUs of several kinds; --pairs FILE of Gavel's throughputs, or made-up speeds",
    {name: about for name, (about, _) in POLICIES.items()},
    make,
    dress,
    SETTINGS,
    main=("matched",),
)
