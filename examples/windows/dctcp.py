"""A congestion control of your own: DCTCP's (Alizadeh et al., SIGCOMM 2010), for windows of packets.

It keeps the share of marked packets as a moving average, and cuts the window in proportion to that: a queue
that is just above the mark costs little, a long one half::

    ina sim examples/windows/jobs.toml --congestion examples/windows/dctcp.py:Dctcp
    ina run -np 2 --program shared --congestion examples/windows/dctcp.py:Dctcp -- python train.py

Each rank has one of these, and all get the same reports of rounds. So all compute the same windows, as long
as nothing else is used: no clock, no random numbers, no knowledge of a single rank.
"""

from __future__ import annotations

from hostlib.windows import Limits, Round

GAIN = 1 / 16
"""Weight of the last round in the average: DCTCP's g."""


class Dctcp:
    """One rank's; all packets may claim slots."""

    def __init__(self) -> None:
        self.alpha = 1.0
        self.packets = 1.0
        self.most = 1
        self.slow_start = True

    def start(self, window: int) -> Limits:
        """Begin with a few packets; `window` is the most."""
        self.most = window
        self.packets = min(16.0, window)
        return self._limits()

    def on_round(self, outcome: Round) -> Limits:
        """Cut by half of the average where a packet was marked, else grow."""
        self.alpha += GAIN * (outcome.marked / outcome.results - self.alpha)
        if outcome.marked:
            self.packets *= 1 - self.alpha / 2
            self.slow_start = False
        else:
            self.packets += self.packets if self.slow_start else 1
        self.packets = min(max(self.packets, 1.0), self.most)
        return self._limits()

    def _limits(self) -> Limits:
        return Limits(in_flight=int(self.packets), claims=self.most)
