"""Jobs that compute and communicate in turns, as a fluid: rates change when a job starts or stops sending.

Between two such times every sending job has the rate that water-filling gives it beside the other sending
jobs. Exact except for packetisation: O(jobs) for each tensor, and a water-filling for each new set of
senders.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace

from controller.simulator.network.phases import Phases

Rates = Callable[[frozenset[str]], Mapping[str, float]]
"""Returns the rates, bits per second, of jobs that send at the same time, by name."""

_SOON = 1e-12
"""Seconds that count as none."""


@dataclass(slots=True)
class Runner:
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

    def __init__(self, now_s: float, runners: Mapping[str, Runner]) -> None:
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

    def _next_s(self, senders: Mapping[str, Runner], speed: Mapping[str, float]) -> float:
        due_s = min((each.due_s for each in self.runners.values() if each.left), default=math.inf)
        done_s = min(
            (self.now_s + each.bits / speed[name] for name, each in senders.items() if speed[name] > 0),
            default=math.inf,
        )
        return min(due_s, done_s)

    def _send(self, senders: Mapping[str, Runner], speed: Mapping[str, float], now_s: float) -> None:
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


def shifted(runners: Iterable[Runner], by_s: float) -> None:
    """Delay these runners by `by_s`, without changing their positions."""
    for each in runners:
        each.begin_s += by_s
        each.due_s += by_s
