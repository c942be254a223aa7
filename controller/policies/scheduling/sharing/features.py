"""A job's interference features, from running it with reference jobs (the patent's interference profile).

The job runs alone, then with each of n reference jobs. Its *sensitivity* is its speed beside each of them,
its *impact* the speed of each of them beside it; both are relative to running alone, so neither depends on
the unit of throughput. The patent does not say which jobs are references, nor where they run beside a job of
several GPUs: here references use one of the job's GPUs, and are chosen to differ (`choose`).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from controller.policies.scheduling.sharing.errors import BadMeasurement, UnknownModel
from controller.policies.scheduling.sharing.interference import InterferenceModel, Load, require

Features = tuple[float, ...]
"""n sensitivities, then n impacts."""


@dataclass(frozen=True, slots=True)
class Profile:
    """Features of a job from n co-runs: speeds relative to running alone, one for each reference job."""

    sensitivity: tuple[float, ...]
    impact: tuple[float, ...]

    def __post_init__(self) -> None:
        if len(self.sensitivity) != len(self.impact) or not self.sensitivity:
            raise BadMeasurement(
                f"{len(self.sensitivity)} sensitivities and {len(self.impact)} impacts;"
                " a profile has one of each for every reference job"
            )
        bad = [speed for speed in self.features if not (speed >= 0 and math.isfinite(speed))]
        if bad:
            raise BadMeasurement(f"a speed of {bad[0]} beside a reference job; it must not be negative")

    @property
    def features(self) -> Features:
        """Sensitivity and impact as one vector."""
        return self.sensitivity + self.impact


def profile_of(
    alone: float, beside: Sequence[float], ref_alone: Sequence[float], ref: Sequence[float]
) -> Profile:
    """Return the profile from throughputs in any unit.

    Args:
        alone: The job's throughput alone.
        beside: Its throughput with each reference job.
        ref_alone: Each reference job's throughput alone.
        ref: Each reference job's throughput with the job.

    Raises BadMeasurement for lengths that differ or throughputs that are not positive.

    >>> profile_of(200.0, [150.0], [10.0], [9.0])
    Profile(sensitivity=(0.75,), impact=(0.9,))
    """
    if not len(beside) == len(ref_alone) == len(ref):
        raise BadMeasurement(
            f"{len(beside)}, {len(ref_alone)} and {len(ref)} throughputs; want one per reference job"
        )
    if not all(value > 0 for value in (alone, *ref_alone)):
        raise BadMeasurement(f"throughputs alone of {alone} and {list(ref_alone)}; all have to be positive")
    return Profile(
        tuple(value / alone for value in beside),
        tuple(value / own for value, own in zip(ref, ref_alone, strict=True)),
    )


class Profiler:
    """Profiles jobs on a source of measurements; jobs of one kind and size are profiled once.

    Raises BadMeasurement for no reference jobs or a duplicate, UnknownModel for an unknown one.
    """

    def __init__(self, measured: InterferenceModel, references: Sequence[str]) -> None:
        if not references:
            raise BadMeasurement("no reference job; at least 1 is needed")
        if len(set(references)) != len(references):
            raise BadMeasurement(f"a reference job appears twice: {', '.join(references)}")
        for kind in references:
            require(measured, Load(kind, 1))
        self.references = tuple(references)
        self._measured = measured
        self._profiles: dict[Load, Profile] = {}

    @property
    def measured(self) -> InterferenceModel:
        """Source of its measurements."""
        return self._measured

    def profile(self, load: Load) -> Profile:
        """Return the profile of `load`. Raises UnknownModel."""
        if load not in self._profiles:
            require(self._measured, load)
            references = [Load(kind, 1) for kind in self.references]
            self._profiles[load] = Profile(
                tuple(self._measured.speed(load, (ref,)) for ref in references),
                tuple(self._measured.speed(ref, (load,)) for ref in references),
            )
        return self._profiles[load]


def choose(measured: InterferenceModel, count: int, kinds: Sequence[str] | None = None) -> tuple[str, ...]:
    """Return `count` of `kinds` (all by default) as reference jobs, as different from each other as possible.

    The first is the one beside which others are slowest; each further one is the one farthest from those
    chosen (its speeds beside all kinds, and theirs beside it, as a vector): Gonzalez' 2-approximation of the
    k-centre problem. Only jobs that fit into memory beside most others are considered: a reference job that
    does not fit measures nothing. O(kinds² + count kinds²). Raises BadMeasurement if `count` is out of range.
    """
    names = list(measured.kinds if kinds is None else kinds)
    if not 1 <= count <= len(names):
        raise BadMeasurement(f"{count} reference jobs of {len(names)} kinds; 1 to {len(names)} are possible")
    unknown = [name for name in names if name not in measured.kinds]
    if unknown:
        raise UnknownModel(unknown[0], measured.kinds)
    loads = [Load(name, 1) for name in names]
    vectors = [
        [measured.speed(load, (o,)) for o in loads] + [measured.speed(o, (load,)) for o in loads]
        for load in loads
    ]
    misfits = [vector.count(0.0) for vector in vectors]
    enough = sorted(misfits)[max(count, len(names) // 2) - 1]
    fitting = [i for i in range(len(names)) if misfits[i] <= enough]
    chosen = [min(fitting, key=lambda i: math.fsum(vectors[i][len(names) :]))]
    while len(chosen) < count:
        rest = [i for i in fitting if i not in chosen]
        chosen.append(max(rest, key=lambda i: min(math.dist(vectors[i], vectors[c]) for c in chosen)))
    return tuple(names[i] for i in chosen)
