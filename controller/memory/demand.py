"""Slots that a job needs to meet its deadline (INAlloc, INFOCOM'23; the survey article's formula).

``t_round = (deadline - now) / rounds``, ``B = bytes / (t_round - t_compute)`` and
``slots = ⌈B · t_slot / payload⌉``.

As the article writes it, communication begins when computing has ended, and a slot is held for a round trip.
Read as *measured*, the part of computing that overlaps does not count, the ranks' skew does, and a slot is
held as long as was measured: until the last rank's packet has come, and the results are back. O(1) per job
and switch.

>>> job = Job(
...     name="a", workers=2, layers_bytes=(12_500_000,), iterations=100, compute_s=0.09, deadline_s=10
... )
>>> need = demand(job, now_s=0, link_bps=100e9)
>>> slots_for(job, Switch("s1", slots=8192, lanes=64, rtt_s=20e-6), need.rate_bps)  # 10 Gb/s
98
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from controller.memory.exclusive import region_size
from controller.vocabulary import Job, Switch

Reading = Literal["article", "measured"]
READINGS: tuple[Reading, ...] = ("article", "measured")


@dataclass(frozen=True, slots=True)
class Demand:
    """What a job with a deadline needs: `rate_bps` is infinite if nothing would do.

    `round_s` is the time there is for an iteration, `communication_s` what of it is left for gradients,
    `estimate_s` the earliest that it can be done, with a link for itself.
    """

    round_s: float
    communication_s: float
    rate_bps: float
    link_bps: float
    estimate_s: float

    @property
    def feasible(self) -> bool:
        """Whether a free link and enough slots would do."""
        return math.isfinite(self.rate_bps) and self.rate_bps <= self.link_bps


def demand(job: Job, *, now_s: float, link_bps: float, reading: Reading = "measured") -> Demand:
    """Return the demand from `now_s` on of a job with a deadline, over a link of `link_bps`."""
    assert job.due_s is not None, "only a job with a deadline has a demand"
    begin_s = max(now_s, job.arrival_s)
    round_s = (job.due_s - begin_s) / job.iterations
    hidden, skew_s = (job.overlap, job.skew_s) if reading == "measured" else (0.0, 0.0)
    communication_s = round_s - skew_s - (1 - hidden) * job.compute_s
    possible = communication_s > 0 and round_s >= job.compute_s + skew_s
    rate_bps = job.model_bytes * 8 / communication_s if possible else math.inf
    bare_s = job.model_bytes * 8 / link_bps
    alone_s = skew_s + max(job.compute_s, (1 - hidden) * job.compute_s + bare_s)
    return Demand(round_s, communication_s, rate_bps, link_bps, begin_s + job.iterations * alone_s)


def slot_time_s(job: Job, switch: Switch, reading: Reading = "measured") -> float:
    """Return how long the job holds a slot: a round trip, or what was measured, if it was."""
    measured = job.hold_s if reading == "measured" else None
    return switch.rtt_s if measured is None else measured


def slots_for(job: Job, switch: Switch, rate_bps: float, reading: Reading = "measured") -> int:
    """Return the slots of `switch` that carry `rate_bps`.

    An exclusive region has two for each packet in flight, and its size is a power of two (SwitchML).
    """
    in_flight = rate_bps / 8 * slot_time_s(job, switch, reading) / switch.payload_bytes
    window = max(1, math.ceil(in_flight * (1 - 1e-12)))
    return region_size(2 * window) if job.mode == "exclusive" else window


def rate_of(job: Job, switch: Switch, slots: int, reading: Reading = "measured") -> float:
    """Return the rate that this many slots carry, bits per second."""
    window = slots // 2 if job.mode == "exclusive" else slots
    return window * switch.payload_bytes * 8 / slot_time_s(job, switch, reading)
