"""Setups of Synergy and Lucid by name: they need more than a name, and some of them optional packages.

A name is ``FAMILY:POLICY``. All policies of a family run in one speed model, so that they can be compared
with each other and with no others:

- ``synergy:ORDER+ALLOCATOR``: speed by the CPUs and the memory that a job is granted (sensitivity matrices);
- ``lucid:POLICY``: speed by measured pairs of jobs on one set of GPUs.

Matrices, profiles and pairs come from files, or else are made up (`controller.scheduling.synergy.catalog`,
`controller.scheduling.lucid.samples`).
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

from controller.scheduling import baselines
from controller.scheduling.errors import BadSpec, BadTrace
from controller.scheduling.model import Cluster, JobSpec
from controller.scheduling.policy import Group, Policy, SpeedModel
from controller.scheduling.ranked import Moves, Ranked
from controller.simulator.engine import Rules
from controller.simulator.setups import SETUPS, Setup, setup

if TYPE_CHECKING:  # loaded when one of their policies is asked for
    from controller.scheduling.lucid import Config, LucidPolicy, PackingTree, Pair, Usage
    from controller.scheduling.synergy import Sensitivity

ORDERS = ("fifo", "srtf", "las", "ftf")
ALLOCATORS = ("proportional", "greedy", "tune", "tune+top-up", "opt", "drf", "tetris")
LUCID = ("lucid", "no-sharing", "no-profiler", "fifo", "sjf", "srtf", "qssf", "tiresias")

SIBLINGS: dict[str, tuple[str, ...]] = {
    "synergy": tuple(f"synergy:{order}+{allocator}" for order in ORDERS for allocator in ALLOCATORS),
    "lucid": tuple(f"lucid:{policy}" for policy in LUCID),
}
"""Names by family."""

GPU_MEMORY_MB = 24_576
PROFILE_S = 80.0
TIRESIAS_GPU_S = 18_000
ROUND_S = 300.0


@dataclass(frozen=True, slots=True)
class Background:
    """What setups are made for.

    Attributes:
        cluster: The servers.
        matrix: Sensitivity matrices (`controller.scheduling.synergy.matrix_csv`); None: made-up ones.
        profiles: Usage of configurations (`controller.scheduling.lucid.measured`); None: made-up ones.
        pairs: Measured pairs of the same; belongs with `profiles`.
        seed: Of what is made up, and of training.
    """

    cluster: Cluster
    matrix: Path | None = None
    profiles: Path | None = None
    pairs: Path | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        if (self.profiles is None) != (self.pairs is None):
            raise BadSpec("profiles and pairs belong together: give both or none")


def family(name: str) -> str:
    """Return what stands before the colon of a policy's name; "" if there is none."""
    before, colon, _ = name.partition(":")
    return before if colon else ""


def known() -> list[str]:
    """Return the names of all policies."""
    return [*SETUPS, *(name for names in SIBLINGS.values() for name in names)]


def make(name: str, background: Background) -> Setup:
    """Return a fresh setup.

    Raises BadSpec for an unknown name, what reading the files raises, and ExtraMissing
    without the packages that a policy needs.
    """
    if name in SETUPS:
        return setup(name)
    if name in SIBLINGS["synergy"]:
        return _synergy(name.partition(":")[2], background)
    if name in SIBLINGS["lucid"]:
        return _lucid(name.partition(":")[2], background)
    raise BadSpec(f"policy {name!r} is unknown; 'ina schedule policies' lists them")


def dress(specs: Sequence[JobSpec], kind: str, background: Background) -> list[JobSpec]:
    """Return generated jobs with models that the family `kind` knows, drawn evenly by seed."""
    rng = random.Random(background.seed)
    match kind:
        case "synergy":
            models = sorted(_matrices(background))
            return [replace(spec, model=rng.choice(models)) for spec in specs]
        case "lucid":
            configs = sorted(_measured(background)[0])
            return [_as_config(spec, rng.choice(configs)) for spec in specs]
        case _:
            return list(specs)


def packing_tree(background: Background) -> PackingTree:
    """Return Lucid's packing tree, trained on the profiles and pairs."""
    return _tree(background.profiles, background.pairs, background.seed)


def usage_of(spec: JobSpec, background: Background) -> Usage:
    """Return what Lucid's profiler reads of a job: its trace's columns, or else its configuration's profile.

    Raises BadSpec if neither is there.
    """
    from controller.scheduling.lucid import Usage, config_by_columns

    columns = ("gpu_util", "gmem_util", "gmem", "amp")
    if all(spec.extra.get(column) for column in columns):
        try:
            gpu, memory, used_mb = (float(spec.extra[column]) for column in columns[:3])
        except ValueError:
            raise BadSpec(f"job {spec.id!r}: {', '.join(columns[:3])} must be numbers") from None
        return Usage(min(gpu, 100.0), memory, used_mb, spec.extra["amp"] not in ("0", "False"))
    usages = _measured(background)[0]
    config = config_by_columns(spec)
    if config not in usages:
        raise BadSpec(f"job {spec.id!r} trains {config}, which has no profile, nor columns {columns}")
    return usages[config]


@contextmanager
def readable(path: Path) -> Iterator[None]:
    """Raise BadTrace for a file that cannot be read at all."""
    try:
        yield
    except (OSError, UnicodeDecodeError) as error:
        raise BadTrace(str(path), 0, "", f"cannot be read: {error}") from error


def _as_config(spec: JobSpec, config: Config) -> JobSpec:
    extra = {"dataset": config.dataset, "amp": str(int(config.mixed_precision))}
    return replace(spec, model=config.model, batch=config.batch, extra=extra)


def _matrices(background: Background) -> dict[str, Sensitivity]:
    from controller.scheduling.synergy import read_profiles
    from controller.scheduling.synergy.catalog import profile_all
    from controller.scheduling.synergy.policy import server_shape

    shape = server_shape(background.cluster)
    if background.matrix is None:
        return profile_all(max_cpus=round(shape.cpus), fair_memory_gb=shape.fair_memory_gb)
    with readable(background.matrix):
        profiles = read_profiles(background.matrix, cpus_per_gpu=round(shape.fair_cpus))
    return {name: profile.sensitivity for name, profile in profiles.items()}


def _synergy(name: str, background: Background) -> Setup:
    from controller.scheduling.synergy.policies import synergy
    from controller.scheduling.synergy.policy import demands_by_matrix, server_shape
    from controller.scheduling.synergy.speed import SharedSpeed

    demand_of = demands_by_matrix(_matrices(background), server_shape(background.cluster))
    order, _, allocator = name.partition("+")
    policy = synergy(order, allocator, demand_of, round_s=ROUND_S)
    return Setup(policy, SharedSpeed(demand_of), Rules(interval_s=ROUND_S))


def _measured(background: Background) -> tuple[dict[Config, Usage], list[Pair]]:
    return _measurements(background.profiles, background.pairs, background.seed)


@lru_cache(maxsize=4)
def _measurements(
    profiles: Path | None, pairs: Path | None, seed: int
) -> tuple[dict[Config, Usage], list[Pair]]:
    from controller.scheduling.lucid import read_pairs, read_usages
    from controller.scheduling.lucid.samples import make_pairs, make_usages

    if profiles is None or pairs is None:
        usages = make_usages(20, seed=seed)
        return usages, make_pairs(usages, seed=seed)
    with readable(profiles):
        usages = read_usages(profiles)
    with readable(pairs):
        return usages, read_pairs(pairs)


@lru_cache(maxsize=4)
def _tree(profiles: Path | None, pairs: Path | None, seed: int) -> PackingTree:
    from controller.scheduling.lucid import grow, sizes_from_pairs

    usages, measured = _measurements(profiles, pairs, seed)
    sizes = sizes_from_pairs(measured)
    return grow([(usage, sizes[c]) for c, usage in usages.items() if c in sizes], prune=0.02, seed=seed)


def _lucid(name: str, background: Background) -> Setup:
    speed = _pair_speed(background)
    if name == "tiresias":
        return Setup(_tiresias(), speed, Rules(interval_s=60))
    plain = {"fifo": baselines.fifo, "sjf": baselines.sjf, "srtf": baselines.srtf, "qssf": baselines.qssf}
    policy: Policy = plain[name]() if name in plain else _lucid_policy(name, background)
    return Setup(policy, speed, Rules())


def _lucid_policy(name: str, background: Background) -> LucidPolicy:
    from controller.scheduling.lucid import BinderRules, LucidPolicy, ProfilerRules, Sharing

    node_gpus = background.cluster.nodes[0].gpus
    sharing = Sharing.OFF if name == "no-sharing" else Sharing.DEFAULT
    return LucidPolicy(
        estimate=lambda job: job.spec.estimate_s or job.spec.duration_s,
        measure=lambda job: usage_of(job.spec, background),
        analyse=packing_tree(background).predict,
        binder=BinderRules(GPU_MEMORY_MB, node_gpus),
        profiler=None if name == "no-profiler" else ProfilerRules(1, PROFILE_S, node_gpus),
        sharing=lambda now_s, idle: sharing,
    )


def _pair_speed(background: Background) -> SpeedModel:
    from controller.scheduling.lucid import PairSpeed
    from controller.scheduling.lucid.samples import pair_speeds

    if background.pairs is not None:
        return PairSpeed(_measured(background)[1], restart_s=_restart_s)

    class MadeUp(PairSpeed):
        """Speeds follow from what both use, so that any two jobs have one."""

        def iteration_s(self, group: Group) -> Sequence[float]:
            if len(group.jobs) != 2:
                return super().iteration_s(group)
            one, other = group.jobs
            speeds = pair_speeds(usage_of(one.spec, background), usage_of(other.spec, background))
            return [one.alone_s / speeds[0], other.alone_s / speeds[1]]

    return MadeUp((), restart_s=_restart_s)


def _restart_s(gpus: int) -> float:
    """Return what a preemption costs, as Lucid's authors assume."""
    return 40.0 if gpus <= 8 else 60.0


def _tiresias() -> Ranked:
    return Ranked(
        "tiresias",
        lambda job, now_s: (job.attained_s(now_s) * job.spec.gpus > TIRESIAS_GPU_S, job.order),
        moves=Moves.PREEMPT,
        quantum_s=60.0,
    )
