"""The family ``lucid:POLICY``: jobs that share GPUs run at the speeds measured for pairs of jobs."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from pathlib import Path

from controller.policies.family import (
    Family,
    Setup,
    SimulationConfig,
    declared_settings,
    raising_bad_trace,
    resolve_options,
)
from controller.policies.scheduling import baselines
from controller.policies.scheduling.errors import BadSpec
from controller.policies.scheduling.lucid.binder import LucidOptions, Sharing
from controller.policies.scheduling.lucid.measured import (
    Config,
    Pair,
    PairSpeed,
    config_by_columns,
    make_pairs,
    make_usages,
    pair_speeds,
    read_pairs,
    read_usages,
)
from controller.policies.scheduling.lucid.online import OnlineLucid
from controller.policies.scheduling.lucid.policy import LucidPolicy
from controller.policies.scheduling.lucid.usage import GpuUsage, PackingTree, Size, grow, sizes_from_pairs
from controller.policies.scheduling.model import Submission
from controller.policies.scheduling.policy import Group, JobState, Policy, SpeedModel
from controller.policies.scheduling.ranked import Preemption, RankedPolicy

TIRESIAS_GPU_S = 18_000
BASELINES: Mapping[str, Callable[[], Policy]] = {
    "fifo": baselines.fifo,
    "sjf": baselines.sjf,
    "srtf": baselines.srtf,
    "qssf": baselines.qssf,
}


def measurements(config: SimulationConfig) -> tuple[dict[Config, GpuUsage], list[Pair]]:
    """Return the GPU usage of each configuration, and the speeds of pairs of configurations on one GPU.

    Raises BadSpec and the errors of reading files.
    """
    return _measurements(config.profiles, config.pairs, config.seed)


def packing_tree(config: SimulationConfig, usage: GpuUsage | None = None) -> PackingTree:
    """Return Lucid's packing tree for a job of this usage, trained on pairs of all other configurations.

    The speed of this job beside other jobs is unknown, as for a new job. Raises ExtraMissing without
    scikit-learn.
    """
    without = usage if usage in measurements(config)[0].values() else None
    return _tree(config.profiles, config.pairs, config.seed, without)


def usage_of(spec: Submission, config: SimulationConfig) -> GpuUsage:
    """Return the usage that Lucid's profiler reads: the trace's columns, or else the configuration's profile.

    Raises BadSpec if there is neither, or a column is not a number.
    """
    columns = ("gpu_util", "gmem_util", "gmem", "amp")
    if all(spec.extra.get(column) for column in columns):
        try:
            gpu, memory, used_mb = (float(spec.extra[column]) for column in columns[:3])
        except ValueError:
            raise BadSpec(f"job {spec.name!r}: {', '.join(columns[:3])} must be numbers") from None
        return GpuUsage(min(gpu, 100.0), memory, used_mb, spec.extra["amp"] not in ("0", "False"))
    usages = measurements(config)[0]
    configuration = config_by_columns(spec)
    if configuration not in usages:
        raise BadSpec(
            f"job {spec.name!r} trains {configuration}, which has neither a profile nor columns {columns}"
        )
    return usages[configuration]


def restart_s(gpus: int) -> float:
    """Return the cost of a preemption in seconds, as assumed by Lucid's authors."""
    return 40.0 if gpus <= 8 else 60.0


def complete_jobs(specs: Sequence[Submission], config: SimulationConfig) -> list[Submission]:
    """Give each job a random configuration that has a profile, drawn by `config.seed`.

    Each job also gets a user and a job name that depend on the job's duration, so that durations can be
    predicted from them: as Lucid's authors found, users submit similar jobs repeatedly.
    """
    rng = random.Random(config.seed)
    configs = sorted(measurements(config)[0])
    return [_as_config(spec, rng.choice(configs), rng) for spec in specs]


def make(name: str, config: SimulationConfig) -> Setup:
    """Return a new policy of this name with its speed model and interval."""
    speed = _pair_speed(config)
    if name == "tiresias":
        return Setup(_tiresias(), speed, interval_s=60)
    policy: Policy = BASELINES[name]() if name in BASELINES else _lucid(name, config)
    return Setup(policy, speed)


FAMILY = Family(
    "speeds of measured pairs of jobs, from --profiles and --pairs FILE, or of synthetic ones",
    {
        "lucid": "profiles jobs, and by their profiles lets two share GPUs (Lucid, ASPLOS'23)",
        "online": "lucid without known durations: learns durations and arrivals while it runs",
        "fifo": "first in, first out",
        "sjf": "shortest job first",
        "srtf": "shortest remaining time first",
        "qssf": "least predicted service first",
        "tiresias": f"two queues, {TIRESIAS_GPU_S} GPU seconds in the first; decides every minute",
    },
    make,
    complete_jobs,
    declared_settings(LucidOptions),
    main=("lucid", "online"),
)


@lru_cache(maxsize=4)
def _measurements(
    profiles: Path | None, pairs: Path | None, seed: int
) -> tuple[dict[Config, GpuUsage], list[Pair]]:
    if profiles is None and pairs is None:
        usages = make_usages(20, seed=seed)
        return usages, make_pairs(usages, seed=seed)
    if profiles is None or pairs is None:
        raise BadSpec("--profiles and --pairs need each other: give both or neither")
    with raising_bad_trace(profiles):
        usages = read_usages(profiles)
    with raising_bad_trace(pairs):
        return usages, read_pairs(pairs)


@lru_cache(maxsize=256)
def _tree(profiles: Path | None, pairs: Path | None, seed: int, without: GpuUsage | None) -> PackingTree:
    usages, measured = _measurements(profiles, pairs, seed)
    sizes = sizes_from_pairs(measured)
    known = [(usage, sizes[c]) for c, usage in usages.items() if c in sizes and usage != without]
    return grow(known, seed=seed)


def _as_config(spec: Submission, configuration: Config, rng: random.Random) -> Submission:
    habit = round(math.log2(spec.duration_s) + rng.gauss(0, 0.5))
    extra = {
        "dataset": configuration.dataset,
        "amp": str(int(configuration.mixed_precision)),
        "jobname": f"job{habit}-v{rng.randint(1, 9)}",
    }
    return replace(
        spec, model=configuration.model, batch=configuration.batch, user=f"user{habit % 7}", extra=extra
    )


def _lucid(name: str, config: SimulationConfig) -> Policy:
    node_gpus = config.cluster.servers[0].gpus
    options = replace(resolve_options(LucidOptions, config), node_gpus=node_gpus, seed=config.seed)

    def measure(job: JobState) -> GpuUsage:
        return usage_of(job.spec, config)

    packing_tree(config)  # raises an error now, and not at the first job, if no tree can be trained

    def analyse(usage: GpuUsage) -> Size:
        return packing_tree(config, usage).predict(usage)

    if name == "online":
        return OnlineLucid(options, measure=measure, analyse=analyse)
    sharing = Sharing(options.capacity or None)
    return LucidPolicy(
        options,
        estimate=lambda job: job.spec.estimate_s or job.spec.duration_s,
        measure=measure,
        analyse=analyse,
        sharing=lambda now_s, idle: sharing,
    )


class _MadeUpSpeed(PairSpeed):
    """Speed model of pairs without measurements: speeds are computed from the GPU usage of both jobs."""

    def __init__(self, config: SimulationConfig) -> None:
        super().__init__((), restart_s=restart_s)
        self._background = config

    def iteration_s(self, group: Group) -> Sequence[float]:
        """Return each member's seconds per iteration."""
        if len(group.jobs) != 2:
            return super().iteration_s(group)
        one, other = group.jobs
        speeds = pair_speeds(usage_of(one.spec, self._background), usage_of(other.spec, self._background))
        return [one.alone_s / speeds[0], other.alone_s / speeds[1]]


def _pair_speed(config: SimulationConfig) -> SpeedModel:
    if config.pairs is None:
        return _MadeUpSpeed(config)
    return PairSpeed(measurements(config)[1], restart_s=restart_s)


def _tiresias() -> RankedPolicy:
    return RankedPolicy(
        "tiresias",
        lambda job, now_s: (job.attained_s(now_s) * job.spec.gpus > TIRESIAS_GPU_S, job.order),
        moves=Preemption.PREEMPT,
        quantum_s=60.0,
    )
