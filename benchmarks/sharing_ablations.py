"""The scheduler for heterogeneous sizes without each of its parts, by the names that tables print."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache

from controller.scheduling.errors import BadSpec
from controller.scheduling.policy import Policy
from controller.scheduling.sharing.errors import BadTraining
from controller.scheduling.sharing.interference import InterferenceModel, Load
from controller.scheduling.sharing.interval import IntervalRule
from controller.scheduling.sharing.models import Model, Sample, draw, model_for
from controller.scheduling.sharing.packing import Choice, Packer
from controller.scheduling.sharing.policies import POLICIES, SIZES, NamedPolicy, Scenario, SharingConfig
from controller.scheduling.sharing.policy import SharingPolicy
from controller.scheduling.sharing.priority import Ledger


class Blind:
    """An interference model without features: its answer is the mean of its samples of that model."""

    def __init__(self, kinds: Collection[str], means: Mapping[Model, float]) -> None:
        self.kinds = kinds
        self._means = dict(means)

    @classmethod
    def from_samples(cls, kinds: Collection[str], samples: Mapping[Model, Sequence[Sample]]) -> Blind:
        """Return the means of `samples`. Raises BadTraining if a model has none."""
        for model, drawn in samples.items():
            if not drawn:
                raise BadTraining(f"no samples of {model.name}")
        return cls(
            kinds, {m: math.fsum(s.speeds[0] for s in drawn) / len(drawn) for m, drawn in samples.items()}
        )

    def speed(self, load: Load, beside: Sequence[Load]) -> float:
        """Return the mean, whoever it is."""
        return self._means[model_for(load, beside)] if beside else 1.0


@lru_cache(maxsize=1)
def blind(scenario: Scenario) -> Blind:
    """Return the predictions without features."""
    few = max(1, scenario.samples // 3)
    samples = {
        model: draw(scenario.measured, model, few, kinds=scenario.seen, sizes=SIZES, seed=scenario.seed)
        for model in Model
    }
    return Blind.from_samples(scenario.measured.kinds, samples)


def _without(
    needs: SharingConfig,
    believed: InterferenceModel,
    *,
    choice: Choice = Choice.BEST,
    mixed: bool = True,
    by_gain: bool = True,
    ledger: Ledger | None = None,
) -> SharingPolicy:
    """Return the scheduler, which believes such speeds, with something else than usual."""
    packer = Packer(believed, load_of=needs.load_of, choice=choice, mixed=mixed, seed=needs.scenario.seed)
    return SharingPolicy(
        packer,
        ledger=ledger,
        by_gain=by_gain,
        cost=needs.cost,
        interval=IntervalRule(needs.cost),
        profile_s=needs.profile_s,
        collect=needs.collect,
    )


def _every(length_s: int, make: Callable[[SharingConfig], Policy]) -> NamedPolicy:
    return NamedPolicy(f"preempts every {length_s} s", lambda n: make(replace(n, interval_s=length_s)))


FIXED_S = (120, 600, 3600)
ABLATIONS: Mapping[str, NamedPolicy] = {
    "equal-sizes": NamedPolicy(
        "only jobs of one size share", lambda n: _without(n, n.scenario.forests.fresh(), mixed=False)
    ),
    "random-packing": NamedPolicy(
        "without features, partners at random",
        lambda n: _without(n, blind(n.scenario), choice=Choice.RANDOM),
    ),
    "without-features": NamedPolicy(
        "every job is believed to be the mean", lambda n: _without(n, blind(n.scenario))
    ),
    "first-fit": NamedPolicy(
        "the first partner that is allowed, by priority",
        lambda n: _without(n, n.scenario.forests.fresh(), choice=Choice.FIRST, by_gain=False),
    ),
    "not-by-gain": NamedPolicy(
        "the best partner, but by priority", lambda n: _without(n, n.scenario.forests.fresh(), by_gain=False)
    ),
    **{f"interval-{s}": _every(s, SharingConfig.sharing) for s in FIXED_S},
    **{f"no-sharing-{s}": _every(s, SharingConfig.no_sharing) for s in FIXED_S},
    "preemptions-not-counted": NamedPolicy(
        "who was preempted is not spared",
        lambda n: _without(n, n.scenario.forests.fresh(), ledger=Ledger(aging=False)),
    ),
    "no-profiling-time": NamedPolicy(
        "profiling takes no time", lambda n: replace(n, profile_s=0.0).sharing()
    ),
    "speeds-known": NamedPolicy(
        "speeds are known instead of predicted", lambda n: replace(n, speeds_known=True).sharing()
    ),
}
ALL: Mapping[str, NamedPolicy] = {**POLICIES, **ABLATIONS}


def make(name: str, needs: SharingConfig) -> Policy:
    """Return a fresh policy. Raises BadSpec for an unknown name, and what its scenario raises."""
    if name not in ALL:
        raise BadSpec(f"policy {name!r} is unknown; known are {', '.join(ALL)}")
    return ALL[name].make(needs)
