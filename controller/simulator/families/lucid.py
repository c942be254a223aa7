"""``lucid:POLICY``: speed by measured pairs of jobs on one set of GPUs."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache
from pathlib import Path

from controller.scheduling import baselines
from controller.scheduling.errors import BadSpec
from controller.scheduling.lucid import (
    BinderRules,
    Config,
    LucidPolicy,
    PackingTree,
    Pair,
    PairSpeed,
    ProfilerRules,
    Sharing,
    Usage,
    config_by_columns,
    grow,
    read_pairs,
    read_usages,
    sizes_from_pairs,
)
from controller.scheduling.lucid.samples import make_pairs, make_usages, pair_speeds
from controller.scheduling.model import JobSpec
from controller.scheduling.policy import Group, Policy, SpeedModel
from controller.scheduling.ranked import Moves, Ranked
from controller.simulator.engine import Rules
from controller.simulator.families.base import Background, Family, readable
from controller.simulator.setups import Setup

GPU_MEMORY_MB = 24_576
PROFILE_S = 80.0
TIRESIAS_GPU_S = 18_000
PROFILER_NODES = {"lucid": 1, "lucid-2": 2, "no-sharing": 1, "no-profiler": 0}
"""Lucid and its variants: how many nodes profile."""

BASELINES = {"fifo": baselines.fifo, "sjf": baselines.sjf, "srtf": baselines.srtf, "qssf": baselines.qssf}


def measurements(background: Background) -> tuple[dict[Config, Usage], list[Pair]]:
    """Return usage by configuration, and pairs of these. Raises BadSpec and what reading files raises."""
    return _measurements(background.profiles, background.pairs, background.seed)


def packing_tree(background: Background) -> PackingTree:
    """Return Lucid's packing tree, trained on the profiles and pairs. Raises ExtraMissing."""
    return _tree(background.profiles, background.pairs, background.seed)


def usage_of(spec: JobSpec, background: Background) -> Usage:
    """Return what Lucid's profiler reads of a job: its trace's columns, or else its configuration's profile.

    Raises BadSpec if neither is there.
    """
    columns = ("gpu_util", "gmem_util", "gmem", "amp")
    if all(spec.extra.get(column) for column in columns):
        try:
            gpu, memory, used_mb = (float(spec.extra[column]) for column in columns[:3])
        except ValueError:
            raise BadSpec(f"job {spec.id!r}: {', '.join(columns[:3])} must be numbers") from None
        return Usage(min(gpu, 100.0), memory, used_mb, spec.extra["amp"] not in ("0", "False"))
    usages = measurements(background)[0]
    config = config_by_columns(spec)
    if config not in usages:
        raise BadSpec(f"job {spec.id!r} trains {config}, which has no profile, nor columns {columns}")
    return usages[config]


def restart_s(gpus: int) -> float:
    """Return what a preemption costs, as Lucid's authors assume."""
    return 40.0 if gpus <= 8 else 60.0


def dress(specs: Sequence[JobSpec], background: Background) -> list[JobSpec]:
    """Return the jobs with configurations that have a profile."""
    rng = random.Random(background.seed)
    configs = sorted(measurements(background)[0])
    return [_as_config(spec, rng.choice(configs)) for spec in specs]


def make(name: str, background: Background) -> Setup:
    """Return a fresh setup."""
    speed = _pair_speed(background)
    if name == "tiresias":
        return Setup(_tiresias(), speed, Rules(interval_s=60))
    policy: Policy = BASELINES[name]() if name in BASELINES else _lucid(name, background)
    return Setup(policy, speed, Rules())


FAMILY = Family(
    "speeds of measured pairs of jobs; --profiles and --pairs FILE, or made-up ones",
    {
        "lucid": "one node profiles",
        "lucid-2": "two nodes profile",
        "no-sharing": "",
        "no-profiler": "what profiling finds is known",
        "fifo": "",
        "sjf": "",
        "srtf": "",
        "qssf": "",
        "tiresias": f"two queues, {TIRESIAS_GPU_S} GPU seconds in the first; decides every minute",
    },
    make,
    dress,
)


@lru_cache(maxsize=4)
def _measurements(
    profiles: Path | None, pairs: Path | None, seed: int
) -> tuple[dict[Config, Usage], list[Pair]]:
    if profiles is None and pairs is None:
        usages = make_usages(20, seed=seed)
        return usages, make_pairs(usages, seed=seed)
    if profiles is None or pairs is None:
        raise BadSpec("profiles and pairs belong together: give both or none")
    with readable(profiles):
        usages = read_usages(profiles)
    with readable(pairs):
        return usages, read_pairs(pairs)


@lru_cache(maxsize=4)
def _tree(profiles: Path | None, pairs: Path | None, seed: int) -> PackingTree:
    usages, measured = _measurements(profiles, pairs, seed)
    sizes = sizes_from_pairs(measured)
    return grow([(usage, sizes[c]) for c, usage in usages.items() if c in sizes], prune=0.02, seed=seed)


def _as_config(spec: JobSpec, config: Config) -> JobSpec:
    extra = {"dataset": config.dataset, "amp": str(int(config.mixed_precision))}
    return replace(spec, model=config.model, batch=config.batch, extra=extra)


def _lucid(name: str, background: Background) -> LucidPolicy:
    node_gpus = background.cluster.nodes[0].gpus
    sharing = Sharing.OFF if name == "no-sharing" else Sharing.DEFAULT
    nodes = PROFILER_NODES[name]
    return LucidPolicy(
        estimate=lambda job: job.spec.estimate_s or job.spec.duration_s,
        measure=lambda job: usage_of(job.spec, background),
        analyse=packing_tree(background).predict,
        binder=BinderRules(GPU_MEMORY_MB, node_gpus),
        profiler=ProfilerRules(nodes, PROFILE_S, node_gpus) if nodes else None,
        sharing=lambda now_s, idle: sharing,
    )


class _MadeUpSpeed(PairSpeed):
    """Speeds follow from what both use, so that any two jobs have one."""

    def __init__(self, background: Background) -> None:
        super().__init__((), restart_s=restart_s)
        self._background = background

    def iteration_s(self, group: Group) -> Sequence[float]:
        """Return the members' figures."""
        if len(group.jobs) != 2:
            return super().iteration_s(group)
        one, other = group.jobs
        speeds = pair_speeds(usage_of(one.spec, self._background), usage_of(other.spec, self._background))
        return [one.alone_s / speeds[0], other.alone_s / speeds[1]]


def _pair_speed(background: Background) -> SpeedModel:
    if background.pairs is None:
        return _MadeUpSpeed(background)
    return PairSpeed(measurements(background)[1], restart_s=restart_s)


def _tiresias() -> Ranked:
    return Ranked(
        "tiresias",
        lambda job, now_s: (job.attained_s(now_s) * job.spec.gpus > TIRESIAS_GPU_S, job.order),
        moves=Moves.PREEMPT,
        quantum_s=60.0,
    )
