"""A job that really runs: what it has done is reported, not foreseen."""

from __future__ import annotations

import math

from controller.scheduling.policy import JobState

SMOOTHING = 0.5
"""Weight of the latest speed against those before it."""


class LiveJob(JobState):
    """A job whose workers tell how far they are; between two reports it is taken to go on as before."""

    __slots__ = ()

    def observe(self, now_s: float, done: float) -> None:
        """Note that a running job has done so many of its iterations at `now_s`.

        What comes up short of an earlier report (a job that had to go back to its checkpoint) is believed,
        too. The speed follows from the time between reports that differ.
        """
        if self.group is None:
            return
        gained = self._left - (self.spec.iterations - done)
        if gained == 0:
            return
        elapsed_s = now_s - self._since_s
        self._attained_s += elapsed_s
        self._since_s = now_s
        self._delay_s = 0.0  # it works: the start is paid for
        self._left = self.spec.iterations - done
        if gained > 0 and elapsed_s > 0:
            measured_s = elapsed_s / gained
            self.iteration_s += SMOOTHING * (measured_s - self.iteration_s)

    def iterations_left(self, now_s: float) -> float:
        """Return the iterations that are still to do: more than none, as long as it has not ended."""
        # positive, so that no rank or share that policies compute from it loses its meaning
        return max(math.ulp(1.0), super().iterations_left(now_s))
