"""Priority of tensors by ESA's policy: urgent packets take the switch's memory from others.

The priority is the logarithm of a product of three factors. A factor is high if the switch's memory speeds up
training more here than for other tensors or jobs:

==============  ===================================  =======================  ======================
factor          is high for                          value                    limited to
==============  ===================================  =======================  ======================
position        layers near the input, which the     (layers - position) /    2^-10 .. 1
                next forward pass needs first         layers
communication   jobs that communicate much of the     time in collectives /    2^-6 .. 1
share           time, and gain most                   all time
remaining time  jobs that end soon, and make room     1 / seconds              2^-20 .. 2^14 (61 µs)
==============  ===================================  =======================  ======================

That makes 50 octaves for the values 1 to 255: one step is 50/254 of an octave, 15 %. The logarithm lets
eight bits distinguish jobs with a minute, an hour and days to go. A switch ages a slot by subtraction. (ESA
halves its priority, which is no logarithm; to halve a logarithm would remove half of all octaves at once, and
so most differences.) An unknown factor counts as the middle of its range: it neither helps nor hinders.

Time in collectives counts from the first result on. Before that a rank waits for the slowest one, which no
memory makes faster; with that time a job with a straggler would seem to do nothing but communicate.

The product comes from the survey by ESA's authors; the ranges and the linear position are choices of this
library. docs/results/preemption.md measures the effect of each factor.
"""

from __future__ import annotations

import math
from typing import Final

FRONT_OCTAVES: Final = (-10.0, 0.0)
SHARE_OCTAVES: Final = (-6.0, 0.0)
HURRY_OCTAVES: Final = (-20.0, 14.0)

LOWEST: Final = 1
HIGHEST: Final = 255

_SMOOTHING: Final = 1 / 4


def priority_of(
    *,
    layer: tuple[int, int] | None = None,
    communication_share: float | None = None,
    remaining_s: float | None = None,
) -> int:
    """Return the priority of a tensor, `LOWEST` to `HIGHEST`.

    Args:
        layer: (position, number of layers): the position of the tensor's layer, counted from the front, 0 for
            the first layer; and the number of layers.
        communication_share: share of the time that the tensor's job spends in collectives, 0 to 1.
        remaining_s: seconds until the tensor's job ends.

    Each of these may be None if it is unknown.

    Raises:
        ValueError: `layer` is not a position among layers.

    >>> priority_of(layer=(0, 10), communication_share=0.5, remaining_s=60)
    149
    >>> priority_of(layer=(9, 10), communication_share=0.5, remaining_s=60)
    132
    """
    front = None if layer is None else _front(*layer)
    hurry = None if remaining_s is None else 1 / max(remaining_s, 2.0 ** -HURRY_OCTAVES[1])
    factors = ((front, FRONT_OCTAVES), (communication_share, SHARE_OCTAVES), (hurry, HURRY_OCTAVES))
    above = sum(_octaves(value, bounds) - bounds[0] for value, bounds in factors)
    most = sum(high - low for _, (low, high) in factors)
    return LOWEST + round((HIGHEST - LOWEST) * above / most)


class Urgency:
    """Measures one job's communication share and remaining time while it runs.

    Call `progress` before the first iteration, so that the remaining time is known after it.
    Times are integer nanoseconds of the caller's clock, the same for all calls.
    """

    def __init__(self, now: int) -> None:
        self._began_at = self._mark_at = now
        self._busy_ns = self._busy_before_ns = 0
        self._share: float | None = None
        self._done = self._total = 0
        self._iteration_ns: float | None = None
        self._counting = False

    def collective(self, started: int, ended: int) -> None:
        """Record that the results of a collective arrived from `started` to `ended`."""
        self._busy_ns += max(0, ended - started)

    def progress(self, done: int, total: int, now: int) -> None:
        """Record that `done` of `total` iterations are over.

        From the second call on, the duration and communication share of iterations are known; each call moves
        both by a quarter towards the latest values. If `done` does not increase, a new measurement starts.

        Raises:
            ValueError: not 0 <= done <= total, total >= 1.
        """
        if not 0 <= done <= total or total < 1:
            raise ValueError(f"progress is {done} of {total}, must be 0 <= done <= total and total >= 1")
        steps, took_ns = done - self._done, now - self._mark_at
        if not self._counting or steps <= 0 or total != self._total:
            self._iteration_ns = None
        elif took_ns > 0:
            self._iteration_ns = _follow(self._iteration_ns, took_ns / steps)
            busy_ns = self._busy_ns - self._busy_before_ns
            self._share = _follow(self._share, min(1.0, busy_ns / took_ns))
        self._counting = True
        self._done, self._total = done, total
        self._mark_at, self._busy_before_ns = now, self._busy_ns

    def communication_share(self, now: int) -> float | None:
        """Return the fraction of the time spent in collectives; None before the first has ended.

        It is measured over the latest iterations; until `progress` has measured an iteration, over all time
        so far.
        """
        if self._share is not None:
            return self._share
        if not self._busy_ns or now <= self._began_at:
            return None
        return min(1.0, self._busy_ns / (now - self._began_at))

    def remaining_s(self) -> float | None:
        """Return the job's remaining seconds, as estimated at the last `progress`; None if unknown."""
        if self._iteration_ns is None:
            return None
        return self._iteration_ns * (self._total - self._done) / 1e9

    def priority(self, layer: tuple[int, int] | None, now: int) -> int:
        """Return the priority of a tensor of this job; for `layer` and the errors see `priority_of`."""
        return priority_of(
            layer=layer, communication_share=self.communication_share(now), remaining_s=self.remaining_s()
        )


def _front(position: int, layers: int) -> float:
    if not 0 <= position < layers:
        raise ValueError(
            f"layer is ({position}, {layers}), must be (position, layers) with 0 <= position < layers"
        )
    return (layers - position) / layers


def _octaves(value: float | None, bounds: tuple[float, float]) -> float:
    low, high = bounds
    if value is None:
        return (low + high) / 2
    return low if value <= 2.0**low else min(high, math.log2(value))


def _follow(average: float | None, sample: float) -> float:
    return sample if average is None else average + _SMOOTHING * (sample - average)
