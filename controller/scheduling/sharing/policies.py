"""The scheduler, itself without each of its parts, and baselines, by name: all for one speed model."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from controller.scheduling.antman import AntMan
from controller.scheduling.baselines import fifo, las_2d, srtf
from controller.scheduling.errors import BadSpec
from controller.scheduling.model import JobSpec
from controller.scheduling.policy import Policy
from controller.scheduling.sharing.corun import MadeUpPairs, Pairs, make_demands
from controller.scheduling.sharing.features import Profiler, choose
from controller.scheduling.sharing.interval import FixedInterval, IntervalRule, PreemptionCost
from controller.scheduling.sharing.law import Law, Load, load_of
from controller.scheduling.sharing.models import Blind, Forests, Model, draw, train
from controller.scheduling.sharing.packing import Choice, Packer
from controller.scheduling.sharing.policy import Interval, SharingPolicy
from controller.scheduling.sharing.priority import Ledger
from controller.scheduling.sharing.scaling import Noisy, Scaling, make_sync
from controller.scheduling.tiresias import Tiresias

MADE_UP_KINDS = 30
REFERENCES = 4  # reference jobs
NOISE = 0.02
UNSEEN = 3  # one kind in so many is not trained on
SIZES = (2, 4, 8, 16)
"""GPU counts of the multi-GPU jobs that are trained on."""


class Setting:
    """What is really so, what is measured of it, and, when somebody asks, what is learned from that.

    Args:
        pairs: Measured pairs, which have their noise already; None: made-up ones, whose noise is made up too.
        seed: Of what is made up, and of training.
        references: How many reference jobs there are.
        samples: Measured groups that each forest is trained on.
    """

    def __init__(
        self, pairs: Pairs | None, *, seed: int, references: int = REFERENCES, samples: int = 1500
    ) -> None:
        measured = pairs is not None
        if pairs is None:
            kinds = [f"net{number}" for number in range(MADE_UP_KINDS)]
            pairs = MadeUpPairs(make_demands(kinds, seed=seed))
        self.seed = seed
        self.truth: Law = Scaling(pairs, make_sync(sorted(pairs.kinds), seed=seed))
        self.measured: Law = self.truth if measured else Noisy(self.truth, NOISE, seed=seed)
        self.seen, self.unseen = divided(self.measured, seed)
        self._references = references
        self._samples = samples

    @cached_property
    def forests(self) -> Forests:
        """What is predicted from features. Raises as `choose` and `train` do, also ExtraMissing."""
        profiler = Profiler(self.measured, choose(self.measured, self._references, self.seen))
        return train(profiler, kinds=self.seen, sizes=SIZES, samples=self._samples, seed=self.seed)

    @cached_property
    def blind(self) -> Blind:
        """What is predicted without them."""
        few = max(1, self._samples // 3)
        samples = {
            model: draw(self.measured, model, few, kinds=self.seen, sizes=SIZES, seed=self.seed)
            for model in Model
        }
        return Blind.from_samples(self.measured.kinds, samples)


def divided(law: Law, seed: int) -> tuple[list[str], list[str]]:
    """Return the kinds that are trained on, and those that are not."""
    kinds = sorted(law.kinds)
    random.Random(seed).shuffle(kinds)
    return kinds[len(kinds) // UNSEEN :], kinds[: len(kinds) // UNSEEN]


@dataclass(frozen=True, slots=True)
class Needs:
    """What policies are made of: the setting, what a preemption costs, and how to know a job's kind."""

    setting: Setting
    cost: PreemptionCost
    load_of: Callable[[JobSpec], Load] = load_of

    def ours(
        self,
        believed: Law | None,
        *,
        interval: Interval | None = None,
        ledger: Ledger | None = None,
        choice: Choice = Choice.BEST,
        mixed: bool = True,
        by_gain: bool = True,
    ) -> SharingPolicy:
        """Return the scheduler, which believes such speeds; None: it does not share."""
        packer = None
        if believed is not None:
            packer = Packer(
                believed, load_of=self.load_of, choice=choice, mixed=mixed, seed=self.setting.seed
            )
        rule = interval or IntervalRule(self.cost)
        return SharingPolicy(packer, ledger=ledger, by_gain=by_gain, cost=self.cost, interval=rule)


@dataclass(frozen=True, slots=True)
class Known:
    """A policy that can be made, and what it is."""

    about: str
    make: Callable[[Needs], Policy]


def _every(length_s: int, *, shares: bool) -> Callable[[Needs], Policy]:
    interval = FixedInterval(length_s)
    return lambda n: n.ours(n.setting.forests if shares else None, interval=interval)


FIXED_S: Sequence[int] = (120, 600, 3600)
POLICIES: Mapping[str, Known] = {
    "fifo": Known("with backfilling", lambda n: fifo(backfill=True)),
    "srtf": Known("durations known", lambda n: srtf()),
    "tiresias": Known("", lambda n: Tiresias(consolidated=True)),
    "2d-las": Known("", lambda n: las_2d()),
    "antman": Known("opportunistic jobs wherever there is room", lambda n: AntMan()),
    "sharing": Known("forests, best packing, interval by load", lambda n: n.ours(n.setting.forests)),
    "no-sharing": Known("GPUs are never shared", lambda n: n.ours(None)),
    "equal-sizes": Known("only jobs of one size share", lambda n: n.ours(n.setting.forests, mixed=False)),
    "random-packing": Known(
        "without features, partners at random", lambda n: n.ours(n.setting.blind, choice=Choice.RANDOM)
    ),
    "without-features": Known("every job is believed to be the mean", lambda n: n.ours(n.setting.blind)),
    "first-fit": Known(
        "the first partner that is allowed, by priority",
        lambda n: n.ours(n.setting.forests, choice=Choice.FIRST, by_gain=False),
    ),
    "not-by-gain": Known(
        "the best partner, but by priority", lambda n: n.ours(n.setting.forests, by_gain=False)
    ),
    **{f"interval-{s}": Known(f"preempts every {s} s", _every(s, shares=True)) for s in FIXED_S},
    **{f"no-sharing-{s}": Known(f"preempts every {s} s", _every(s, shares=False)) for s in FIXED_S},
    "interval-by-cost": Known(
        "the interval does not grow with load",
        lambda n: n.ours(n.setting.forests, interval=IntervalRule(n.cost, limit=1.0)),
    ),
    "sharing-not-rewarded": Known(
        "who shares is charged in full", lambda n: n.ours(n.setting.forests, ledger=Ledger(sharing=False))
    ),
    "preemptions-not-counted": Known(
        "who was preempted is not spared", lambda n: n.ours(n.setting.forests, ledger=Ledger(aging=False))
    ),
    "speeds-known": Known("instead of predicted", lambda n: n.ours(n.setting.truth)),
}
"""Fresh policies by name."""


def make(name: str, needs: Needs) -> Policy:
    """Return a fresh policy. Raises BadSpec for an unknown name, and what its setting raises."""
    if name not in POLICIES:
        raise BadSpec(f"policy {name!r} is unknown; known are {', '.join(POLICIES)}")
    return POLICIES[name].make(needs)


def of_kinds(specs: Sequence[JobSpec], kinds: Sequence[str], *, seed: int) -> list[JobSpec]:
    """Return the jobs with kinds, and AntMan's priorities, drawn evenly: of other jobs nothing is known."""
    rng = random.Random(seed)
    return [
        replace(spec, model=rng.choice(kinds), stages_s=(), priority=rng.randrange(2), extra={})
        for spec in specs
    ]
