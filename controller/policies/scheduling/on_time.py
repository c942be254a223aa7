"""Deadlines as late as they allow: until then the shortest jobs go first; ours.

Earliest deadline first runs jobs with deadlines at once, and lets short jobs without one wait, although most
deadlines leave time. Shortest remaining service first is best for the mean, but misses deadlines. Here a job
with a deadline goes by service, as all others, until it is urgent (`scheduling.urgency`); urgent
jobs go first, by deadline. No job is granted slots: all share them, so none idles while somebody could use
it. O(n log n) for n jobs.
"""

from __future__ import annotations

import math

from controller.policies.scheduling.policy import Decision, View
from controller.policies.scheduling.ranked import Moves, Ranked
from controller.policies.scheduling.told import TRUTH, Told
from controller.policies.scheduling.urgency import Urgency


class OnTime:
    """By service, but urgent deadlines first. `learns=False` is an ablation of `Urgency`."""

    name = "on-time"

    def __init__(self, told: Told = TRUTH, *, learns: bool = True) -> None:
        self.urgency = Urgency(told, learns=learns)
        self._ranked = Ranked(self.name, self.urgency.rank, moves=Moves.PREEMPT)

    def decide(self, view: View) -> Decision:
        """Return the jobs of lowest rank, and ask to be woken when the next waiting ones become urgent."""
        next_s = self.urgency.update(view)
        self._ranked.rerank()
        decision = self._ranked.decide(view)
        waits = sum(len(group.jobs) for group in decision.groups) < len(view.jobs)
        decision.wake_s = next_s if waits and next_s < math.inf else None
        return decision
