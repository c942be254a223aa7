"""The family ``sharing:POLICY``: sharing for heterogeneous job sizes, its ablation, and baselines.

All policies run in one speed model, which is derived from measured pairs of jobs.
"""

from __future__ import annotations

import random
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from pathlib import Path

from controller.policies.family import (
    Family,
    Setup,
    SimulationConfig,
    declared_settings,
    raising_bad_trace,
    resolve_options,
)
from controller.policies.scheduling.baselines import fifo, las_2d, srtf
from controller.policies.scheduling.errors import BadSpec
from controller.policies.scheduling.lucid.family import config_by_columns
from controller.policies.scheduling.policy import Policy, Submission
from controller.policies.scheduling.sharing.antman import AntMan
from controller.policies.scheduling.sharing.forests import CoRunProfiler, Forests, choose, train
from controller.policies.scheduling.sharing.packing import Packer
from controller.policies.scheduling.sharing.pairs import (
    InterferenceModel,
    InterferenceSpeed,
    Load,
    MadeUpPairs,
    NoisyInterference,
    Pairs,
    Scaling,
    load_of,
    make_demands,
    make_sync,
    name_of,
    read_gavel_pairs,
    read_lucid_pairs,
)
from controller.policies.scheduling.sharing.policy import SharingOptions, SharingPolicy
from controller.policies.scheduling.speed import PreemptionCost
from controller.policies.scheduling.tiresias import Tiresias

MADE_UP_KINDS = 30
REFERENCES = 4  # reference jobs
NOISE = 0.02
UNSEEN = 3  # one in `UNSEEN` kinds is left out of the training
SIZES = (2, 4, 8, 16)
"""GPU counts of the multi-GPU jobs on which the forests are trained."""


class PairScenario:
    """The true interference of jobs, its measurements, and models learned from these, trained on first use.

    Args:
        pairs: Measured pairs, which include noise; None: synthetic pairs, whose measurements get synthetic
            noise.
        seed: Seed of synthetic data and of training.
        references: Number of reference jobs.
        samples: Number of measured groups that each forest is trained on.
    """

    def __init__(
        self, pairs: Pairs | None, *, seed: int, references: int = REFERENCES, samples: int = 1500
    ) -> None:
        measured = pairs is not None
        if pairs is None:
            kinds = [f"net{number}" for number in range(MADE_UP_KINDS)]
            pairs = MadeUpPairs(make_demands(kinds, seed=seed))
        self.seed = seed
        self.truth: InterferenceModel = Scaling(pairs, make_sync(sorted(pairs.kinds), seed=seed))
        self.measured: InterferenceModel = (
            self.truth if measured else NoisyInterference(self.truth, NOISE, seed=seed)
        )
        self.seen, self.unseen = split_samples(self.measured, seed)
        self._references = references
        self.samples = samples

    @cached_property
    def forests(self) -> Forests:
        """The models that predict speeds. Raises BadMeasurement, BadTraining and ExtraMissing."""
        profiler = CoRunProfiler(self.measured, choose(self.measured, self._references, self.seen))
        return train(profiler, kinds=self.seen, sizes=SIZES, samples=self.samples, seed=self.seed)


def split_samples(interference: InterferenceModel, seed: int) -> tuple[list[str], list[str]]:
    """Divide the kinds of jobs at random, by `seed`; return the kinds for training and the other kinds."""
    kinds = sorted(interference.kinds)
    random.Random(seed).shuffle(kinds)
    return kinds[len(kinds) // UNSEEN :], kinds[: len(kinds) // UNSEEN]


@dataclass(frozen=True, slots=True)
class SharingConfig:
    """The true speeds with the models learned from measurements, the policy's options, and jobs' loads."""

    scenario: PairScenario
    options: SharingOptions
    load_of: Callable[[Submission], Load] = load_of

    def sharing(self) -> SharingPolicy:
        """Return the policy `sharing`, which knows or predicts speeds as the options say."""
        known = self.options.speeds_known
        believed = self.scenario.truth if known else self.scenario.forests.fresh()
        return SharingPolicy(Packer(believed, load_of=self.load_of), self.options)


@dataclass(frozen=True, slots=True)
class NamedPolicy:
    """A policy's description, and the function that makes the policy."""

    about: str
    make: Callable[[SharingConfig], Policy]


POLICIES: Mapping[str, NamedPolicy] = {
    "fifo": NamedPolicy("first in, first out, with backfilling", lambda n: fifo(backfill=True)),
    "srtf": NamedPolicy("shortest remaining time first, durations known", lambda n: srtf()),
    "tiresias": NamedPolicy("attained service in a few queues", lambda n: Tiresias()),
    "2d-las": NamedPolicy("least attained service first", lambda n: las_2d()),
    "antman": NamedPolicy("opportunistic jobs on any GPU with room", lambda n: AntMan()),
    "sharing": NamedPolicy(
        "jobs of different sizes share GPUs by predicted speeds; ours", SharingConfig.sharing
    ),
    "no-sharing": NamedPolicy(
        "jobs in the order of the policy sharing, on GPUs of their own",
        lambda n: SharingPolicy(None, n.options),
    ),
}
"""Functions that return a new policy, by the policy's name."""


def draw_kinds(specs: Sequence[Submission], kinds: Sequence[str], *, seed: int) -> list[Submission]:
    """Give each job a random one of `kinds` and, for AntMan, a random priority; both are uniform."""
    rng = random.Random(seed)
    return [
        replace(spec, model=rng.choice(kinds), stages_s=(), opportunistic=rng.randrange(2) > 0, extra={})
        for spec in specs
    ]


def complete_jobs(specs: Sequence[Submission], config: SimulationConfig) -> list[Submission]:
    """Give each job a random kind with known speeds in pairs, and a random priority, by `config.seed`."""
    kinds = sorted(_scenario(config.pairs, config.seed).truth.kinds)
    return draw_kinds(specs, kinds, seed=config.seed)


def make(name: str, config: SimulationConfig) -> Setup:
    """Return a new policy of this name with its speed model and interval."""
    scenario = _scenario(config.pairs, config.seed)
    load_of = _loads(scenario, made_up=config.pairs is None)
    cost = PreemptionCost(node_gpus=config.cluster.servers[0].gpus)
    options = replace(resolve_options(SharingOptions, config), cost=cost)
    policy = POLICIES[name].make(SharingConfig(scenario, options, load_of))
    return Setup(policy, InterferenceSpeed(scenario.truth, load_of=load_of, cost=cost))


FAMILY = Family(
    "GPUs shared by jobs of different sizes; speeds by --pairs FILE (Lucid's or Gavel's), or synthetic ones",
    {name: known.about for name, known in POLICIES.items()},
    make,
    complete_jobs,
    declared_settings(SharingOptions),
    main=("sharing",),
)


@lru_cache(maxsize=4)
def _scenario(pairs: Path | None, seed: int) -> PairScenario:
    if pairs is None:
        return PairScenario(None, seed=seed)
    with raising_bad_trace(pairs):
        measured = read_gavel_pairs(pairs) if pairs.suffix == ".json" else read_lucid_pairs(pairs)
    few = max(1, len(measured.kinds) // 2)  # a small file has not enough kinds for all reference jobs
    return PairScenario(measured, seed=seed, references=min(REFERENCES, few))


def _loads(scenario: PairScenario, *, made_up: bool) -> Callable[[Submission], Load]:
    """Return a function that returns a job's load: its kind and its number of GPUs.

    The kind is the name of the job's model or, in Lucid's logs, its configuration. With synthetic pairs, any
    other model has one of the synthetic kinds, which depends on the model's name only.
    """
    kinds = frozenset(scenario.truth.kinds)
    names = sorted(kinds)

    def load_of(spec: Submission) -> Load:
        kind = spec.model
        if kind not in kinds and made_up:
            kind = names[zlib.crc32(kind.encode()) % len(names)]
        elif kind not in kinds and {"dataset", "amp"} <= spec.extra.keys():
            kind = name_of(config_by_columns(spec))
        if kind not in kinds:
            few = ", ".join(names[:8]) + (", ..." if len(names) > 8 else "")
            raise BadSpec(
                f"job {spec.name!r} trains {kind!r}, for which --pairs lacks some pairs; it has {few}"
            )
        return Load(kind, spec.gpus)

    return load_of
