"""The scheduler, its ablations, and baselines, by name: all for one speed model."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from controller.policies.scheduling.antman import AntMan
from controller.policies.scheduling.baselines import fifo, las_2d, srtf
from controller.policies.scheduling.model import Submission
from controller.policies.scheduling.policy import Policy
from controller.policies.scheduling.sharing.corun import MadeUpPairs, Pairs, make_demands
from controller.policies.scheduling.sharing.features import Profiler, choose
from controller.policies.scheduling.sharing.interference import InterferenceModel, Load, load_of
from controller.policies.scheduling.sharing.interval import FixedInterval, IntervalRule, PreemptionCost
from controller.policies.scheduling.sharing.models import Forests, train
from controller.policies.scheduling.sharing.packing import Packer
from controller.policies.scheduling.sharing.policy import SharingPolicy
from controller.policies.scheduling.sharing.scaling import Noisy, Scaling, make_sync
from controller.policies.scheduling.tiresias import Tiresias

MADE_UP_KINDS = 30
REFERENCES = 4  # reference jobs
NOISE = 0.02
UNSEEN = 3  # one kind in so many is not trained on
SIZES = (2, 4, 8, 16)
"""GPU counts of the multi-GPU jobs that are trained on."""


class Scenario:
    """The true interference, its measurements, and, on first use, the models learned from these.

    Args:
        pairs: Measured pairs, which include noise; None: synthetic ones, with synthetic noise.
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
        self.measured: InterferenceModel = self.truth if measured else Noisy(self.truth, NOISE, seed=seed)
        self.seen, self.unseen = divided(self.measured, seed)
        self._references = references
        self.samples = samples

    @cached_property
    def forests(self) -> Forests:
        """The models that predict speeds. Raises as `choose` and `train`, also ExtraMissing."""
        profiler = Profiler(self.measured, choose(self.measured, self._references, self.seen))
        return train(profiler, kinds=self.seen, sizes=SIZES, samples=self.samples, seed=self.seed)


def divided(interference: InterferenceModel, seed: int) -> tuple[list[str], list[str]]:
    """Return the kinds that are trained on, and those that are not."""
    kinds = sorted(interference.kinds)
    random.Random(seed).shuffle(kinds)
    return kinds[len(kinds) // UNSEEN :], kinds[: len(kinds) // UNSEEN]


@dataclass(frozen=True, slots=True)
class SharingConfig:
    """Parts and settings of the policies.

    Attributes:
        scenario: The true speeds, and the models learned from measurements.
        cost: Cost of a preemption.
        load_of: Returns a job's load.
        speeds_known: Speeds are known instead of predicted.
        interval_s: How often jobs may be preempted; None: by load and cost.
        profile_s: How long a new kind and size is profiled before it may start.
        collect: Speeds are learned from running jobs, too.
    """

    scenario: Scenario
    cost: PreemptionCost
    load_of: Callable[[Submission], Load] = load_of
    speeds_known: bool = False
    interval_s: float | None = None
    profile_s: float = 0.0
    collect: bool = True

    def sharing(self) -> SharingPolicy:
        """Return the scheduler."""
        believed = self.scenario.truth if self.speeds_known else self.scenario.forests.fresh()
        return self._ours(Packer(believed, load_of=self.load_of, seed=self.scenario.seed))

    def no_sharing(self) -> SharingPolicy:
        """Return the scheduler where GPUs are never shared."""
        return self._ours(None)

    def _ours(self, packer: Packer | None) -> SharingPolicy:
        interval = IntervalRule(self.cost) if self.interval_s is None else FixedInterval(self.interval_s)
        return SharingPolicy(
            packer, cost=self.cost, interval=interval, profile_s=self.profile_s, collect=self.collect
        )


@dataclass(frozen=True, slots=True)
class NamedPolicy:
    """A function that makes a policy, with its description."""

    about: str
    make: Callable[[SharingConfig], Policy]


POLICIES: Mapping[str, NamedPolicy] = {
    "fifo": NamedPolicy("first in, first out, with backfilling", lambda n: fifo(backfill=True)),
    "srtf": NamedPolicy("shortest remaining time first, durations known", lambda n: srtf()),
    "tiresias": NamedPolicy("attained service in a few queues", lambda n: Tiresias()),
    "2d-las": NamedPolicy("least attained service first", lambda n: las_2d()),
    "antman": NamedPolicy("opportunistic jobs wherever there is room", lambda n: AntMan()),
    "sharing": NamedPolicy(
        "jobs of different sizes share GPUs by predicted speeds; ours", SharingConfig.sharing
    ),
    "no-sharing": NamedPolicy("the same, but GPUs are never shared", SharingConfig.no_sharing),
}
"""Fresh policies by name."""


def of_kinds(specs: Sequence[Submission], kinds: Sequence[str], *, seed: int) -> list[Submission]:
    """Return the jobs with kinds, and AntMan's priorities, drawn uniformly: others have no known speeds."""
    rng = random.Random(seed)
    return [
        replace(spec, model=rng.choice(kinds), stages_s=(), opportunistic=rng.randrange(2) > 0, extra={})
        for spec in specs
    ]
