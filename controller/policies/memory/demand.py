"""Slots that a job needs to meet its deadline (INAlloc, INFOCOM'23; the survey article's formula).

``t_round = (deadline - now) / rounds``, ``B = bytes / (t_round - t_compute)`` and
``slots = ⌈B · t_slot / payload⌉``.

In the article's reading, communication begins when computing has ended, and a packet holds a slot for one
round trip. In the *measured* reading, `t_compute` excludes computing that overlaps with communication and
includes the ranks' skew. A packet holds a slot for the measured time: until the last rank's packet has
arrived and the results are back. O(1) per job and switch.

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

from controller.policies.memory.regions import READINGS as READINGS
from controller.policies.memory.regions import Reading as Reading
from controller.policies.memory.regions import region_size
from controller.vocabulary import Job, Switch

_MOST = 2.0**62
"""Maximum number of packets in flight of a job that no link limits."""


@dataclass(frozen=True, slots=True)
class DeadlineNeed:
    """The demand of a job with a deadline.

    `rate_bps` is the rate at which the job's gradients have to be summed; infinite: no rate is enough.
    `link_bps` is the rate of the job's slowest link. `round_s` is the time that the deadline leaves for one
    iteration, and `communication_s` the part of this time that is left for sending gradients. `estimate_s`
    is the time at which the job ends if it has its links for itself.
    """

    round_s: float
    communication_s: float
    rate_bps: float
    link_bps: float
    estimate_s: float

    @property
    def feasible(self) -> bool:
        """Whether a free link and enough slots would meet the deadline."""
        return math.isfinite(self.rate_bps) and self.rate_bps <= self.link_bps


def demand(job: Job, *, now_s: float, link_bps: float, reading: Reading = "measured") -> DeadlineNeed:
    """Return the demand of a job with a deadline, from `now_s` on.

    Args:
        job: A job with a deadline.
        now_s: The time, on the clock of `arrival_s`.
        link_bps: Rate of the slowest link that the job uses, bits per second.
        reading: "article" or "measured"; see the module's docstring.
    """
    assert job.due_s is not None, "only a job with a deadline has a demand"
    begin_s = max(now_s, job.arrival_s)
    round_s = (job.due_s - begin_s) / job.iterations
    hidden, skew_s = (job.overlap, job.skew_s) if reading == "measured" else (0.0, 0.0)
    communication_s = round_s - skew_s - (1 - hidden) * job.compute_s
    possible = communication_s > 0 and round_s >= job.compute_s + skew_s
    rate_bps = job.model_bytes * 8 / communication_s if possible else math.inf
    bare_s = job.model_bytes * 8 / link_bps
    alone_s = skew_s + max(job.compute_s, (1 - hidden) * job.compute_s + bare_s)
    return DeadlineNeed(round_s, communication_s, rate_bps, link_bps, begin_s + job.iterations * alone_s)


def slot_time_s(job: Job, switch: Switch, reading: Reading = "measured") -> float:
    """Return how long a packet of the job holds a slot, in seconds: as measured, or else a round trip."""
    measured = job.hold_s if reading == "measured" else None
    return switch.rtt_s if measured is None else measured


def slots_for(job: Job, switch: Switch, rate_bps: float, reading: Reading = "measured") -> int:
    """Return the number of slots of `switch` that carry `rate_bps`.

    An exclusive region has two slots for each packet in flight, and its size is a power of two (SwitchML). A
    job whose window is known gets no more slots than its window has packets.

    Args:
        job: The job whose packets hold the slots.
        switch: The switch with the slots.
        rate_bps: Rate of the job's gradients, bits per second.
        reading: "article" or "measured"; see the module's docstring.
    """
    in_flight = min(rate_bps / 8 * slot_time_s(job, switch, reading) / switch.payload_bytes, _MOST)
    window = max(1, math.ceil(in_flight * (1 - 1e-12)))
    if job.window is not None:
        window = min(window, job.window)
    return region_size(2 * window) if job.mode == "exclusive" else window


def rate_of(job: Job, switch: Switch, slots: int, reading: Reading = "measured") -> float:
    """Return the rate that a number of slots carries, bits per second: the inverse of `slots_for`.

    Args:
        job: The job whose packets hold the slots.
        switch: The switch with the slots.
        slots: Number of slots of the job's region.
        reading: "article" or "measured"; see the module's docstring.
    """
    window = slots // 2 if job.mode == "exclusive" else slots
    if job.window is not None:
        window = min(window, job.window)
    return window * switch.payload_bytes * 8 / slot_time_s(job, switch, reading)
