"""Jobs that compute and communicate in turns, as a fluid: rates change when a job starts or stops sending.

Between two such times every sending job has the rate that water-filling gives it beside the other sending
jobs. Exact except for packetisation: O(jobs) for each tensor, and a water-filling for each new set of
senders.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from controller.vocabulary import Job

# ---------------------------------------------------------------------------
# The phases of a training iteration: computing, and the tensors that are summed, one after the other.
#
# Tensors become ready back to front during the last `overlap` of the computing, at equal distances, and are
# summed in that order. The next iteration begins when all are summed. After a tensor's last bit it takes
# `latency_s` until its sum is everywhere.


@dataclass(frozen=True, slots=True)
class Phases:
    """One iteration: for each tensor, in the order of sending, when it is `ready_s`, and its `bits`."""

    compute_s: float
    ready_s: tuple[float, ...]
    bits: tuple[float, ...]
    latency_s: float = 0.0

    @property
    def total_bits(self) -> float:
        """Bits of all tensors."""
        return sum(self.bits)

    def iteration_s(self, rate_bps: float) -> float:
        """Return the seconds of an iteration whose tensors are all summed at this rate (bits per second).

        >>> Phases(2.0, (1.0, 2.0), (10.0, 10.0)).iteration_s(5.0)
        5.0
        """
        now_s = 0.0
        for ready_s, bits in zip(self.ready_s, self.bits, strict=True):
            now_s = max(now_s, ready_s) + bits / rate_bps + self.latency_s
        return max(now_s, self.compute_s)


def phases_of(job: Job, *, latency_s: float = 0.0, announced_bits: float = 0.0, most: int = 8) -> Phases:
    """Return the phases of a job's iteration.

    Args:
        job: The job.
        latency_s: Seconds from a tensor's last bit until its sum is everywhere.
        announced_bits: Bits sent in addition with each tensor, at most as many as the tensor has.
        most: Most tensors; layers are merged to fit.

    >>> from controller.vocabulary import Job
    >>> job = Job(name="a", workers=2, layers_bytes=(1, 2, 3), compute_s=1.0, overlap=0.5)
    >>> phases_of(job).ready_s
    (0.5, 0.75, 1.0)
    """
    layers = job.layers_bytes[::-1]
    first_s = (1 - job.overlap) * job.compute_s
    step_s = job.overlap * job.compute_s / max(1, len(layers) - 1)
    ends = _merged(layers, most)
    starts = [0, *ends[:-1]]
    sizes = [8.0 * sum(layers[start:end]) for start, end in zip(starts, ends, strict=True)]
    return Phases(
        job.compute_s + job.skew_s,
        tuple(first_s + (end - 1) * step_s + job.skew_s for end in ends),
        tuple(bits + min(bits, announced_bits) for bits in sizes),
        latency_s,
    )


def _merged(layers: Sequence[int], most: int) -> list[int]:
    """Return where each tensor ends: each has about the same part of the bytes."""
    if len(layers) <= most:
        return list(range(1, len(layers) + 1))
    whole, so_far = sum(layers), 0
    ends: list[int] = []
    for number, count in enumerate(layers, 1):
        so_far += count
        if so_far * most >= whole * (len(ends) + 1):
            ends.append(number)
    return ends


Rates = Callable[[frozenset[str]], Mapping[str, float]]
"""Returns the rates, bits per second, of jobs that send at the same time, by name."""

_SOON = 1e-12
"""Seconds that count as none."""


@dataclass(slots=True)
class FluidJob:
    """A job and its position in its iteration.

    Attributes:
        phases: Phases of its iterations.
        left: Iterations left, including the present one.
        begin_s: When the present iteration began, or is to begin.
        tensor: The tensor that is sent now or next.
        bits: Bits of that tensor left, while `sending`.
        due_s: When its next step is due, if it does not send.
        likely_s: Time of an iteration as long as none has ended.
        ends_s: When its first iteration began and the others ended, the last `KEPT` of these.
    """

    KEPT = 16

    phases: Phases
    left: int
    begin_s: float
    tensor: int = 0
    bits: float = 0.0
    sending: bool = False
    waits_for_sum: bool = False
    due_s: float = 0.0
    likely_s: float = math.inf
    done: int = 0
    ends_s: list[float] = field(default_factory=list)

    def go_on(self, now_s: float) -> None:
        """Take the steps that are due."""
        while self.left and self.due_s <= now_s + _SOON:
            if self.waits_for_sum:
                self.waits_for_sum = False
                self.tensor += 1
            phases = self.phases
            if self.tensor < len(phases.bits):
                self.due_s = max(self.due_s, self.begin_s + phases.ready_s[self.tensor])
                if self.due_s <= now_s + _SOON:
                    self.sending, self.bits, self.due_s = True, phases.bits[self.tensor], math.inf
            else:
                self.due_s = max(self.due_s, self.begin_s + phases.compute_s)
                if self.due_s <= now_s + _SOON:
                    self._end_iteration(now_s)

    def sent(self, now_s: float) -> None:
        """Record that a tensor has been sent."""
        self.sending, self.waits_for_sum = False, True
        self.due_s = now_s + self.phases.latency_s
        self.go_on(now_s)

    def _end_iteration(self, now_s: float) -> None:
        self.left -= 1
        self.done += 1
        self.ends_s = [*(self.ends_s or [self.begin_s])[1 - self.KEPT :], now_s]
        self.begin_s = self.due_s = now_s
        self.tensor = 0

    def end_s(self, now_s: float) -> float:
        """Return when it ended; else the end after `now_s` predicted from its last iterations."""
        if not self.left:
            return self.ends_s[-1]
        ended = len(self.ends_s) - 1
        mean_s = (self.ends_s[-1] - self.ends_s[0]) / ended if ended > 0 else self.likely_s
        return max(self.begin_s + self.left * mean_s, now_s + (self.left - 0.99) * mean_s)


class Fluid:
    """Runners, and the time that they have reached."""

    def __init__(self, now_s: float, runners: Mapping[str, FluidJob]) -> None:
        self.now_s = now_s
        self.runners = dict(runners)

    def copy(self) -> Fluid:
        """Return an independent copy."""
        return Fluid(self.now_s, {name: replace(each, done=0) for name, each in self.runners.items()})

    def run(
        self, rates: Rates, until_s: float, *, iterations: float = math.inf, to_first_end: bool = False
    ) -> None:
        """Advance the time.

        Args:
            rates: Returns the rate of each sender, bits per second, for a set of senders.
            until_s: The time to advance to.
            iterations: Stop earlier when all jobs have done this many.
            to_first_end: Stop earlier when the first job has ended.
        """
        runners = self.runners
        behind = {name for name, each in runners.items() if each.done < iterations and each.left}
        while behind:
            for each in runners.values():
                each.go_on(self.now_s)
            senders = {name: each for name, each in runners.items() if each.sending}
            speed = rates(frozenset(senders)) if senders else {}
            next_s = self._next_s(senders, speed)
            if next_s > until_s:
                self._send(senders, speed, until_s)
                return
            self._send(senders, speed, next_s)
            for name in list(behind):
                each = runners[name]
                if not each.left and to_first_end:
                    return
                if each.done >= iterations or not each.left:
                    behind.discard(name)
        self.now_s = max(self.now_s, until_s) if math.isfinite(until_s) else self.now_s

    def _next_s(self, senders: Mapping[str, FluidJob], speed: Mapping[str, float]) -> float:
        due_s = min((each.due_s for each in self.runners.values() if each.left), default=math.inf)
        done_s = min(
            (self.now_s + each.bits / speed[name] for name, each in senders.items() if speed[name] > 0),
            default=math.inf,
        )
        return min(due_s, done_s)

    def _send(self, senders: Mapping[str, FluidJob], speed: Mapping[str, float], now_s: float) -> None:
        """Let the senders send until then."""
        if now_s == math.inf:
            return
        elapsed_s, self.now_s = now_s - self.now_s, now_s
        for name, each in senders.items():
            each.bits -= elapsed_s * speed[name] if speed[name] < math.inf else each.bits
            if each.bits <= speed[name] * _SOON * (1 + now_s * 1e3):
                each.sent(now_s)
        for each in self.runners.values():
            each.go_on(now_s)


def shifted(runners: Iterable[FluidJob], by_s: float) -> None:
    """Delay these runners by `by_s`, without changing their positions."""
    for each in runners:
        each.begin_s += by_s
        each.due_s += by_s
