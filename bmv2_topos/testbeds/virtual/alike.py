"""Holds the ranks of a job to one rule for their windows.

A congestion control from outside may look at a clock, draw random numbers, or remember something of another
rank. Then ranks that were told the same come to different windows, which costs time and is hard to see. Here
all ranks of a job are at hand, so it is found at once, and exactly: limits must be a function of the rounds
that were reported to a rank. Ranks with different reports (a loss can cause that) are not compared.
"""

from __future__ import annotations

from hostlib.core.congestion import BadLimits, Congestion, Limits, Round, checked


class Rule:
    """What the ranks of one job have answered so far."""

    def __init__(self) -> None:
        self._answers: dict[tuple[int, int], Limits] = {}

    def note(self, number: int, told: int, limits: Limits) -> None:
        """Take in a rank's answer to its first `number` rounds; `told` is their digest. Raises BadLimits."""
        first = self._answers.setdefault((number, told), limits)
        if first != limits:
            raise BadLimits(
                f"two ranks that were told the same until round {number} got {first.in_flight} and"
                f" {limits.in_flight} packets in flight, {first.claims} and {limits.claims} claims; limits"
                " must depend on rounds alone"
            )


class Watched:
    """The congestion control of one rank, its answers compared with those of the others."""

    def __init__(self, inner: Congestion, rule: Rule, *, may_bypass: bool) -> None:
        self.name = getattr(inner, "name", type(inner).__name__)
        self.wants_rounds = inner.wants_rounds
        self._inner = inner
        self._rule = rule
        self._may_bypass = may_bypass
        self._most = 1
        self._number = self._told = 0

    def start(self, window: int) -> Limits:
        """Ask it, and compare."""
        self._most = window
        self._number = self._told = 0
        return self._compared(self._inner.start(window))

    def on_round(self, outcome: Round) -> Limits:
        """Ask it, and compare."""
        self._number += 1
        self._told = hash((self._told, outcome))
        return self._compared(self._inner.on_round(outcome))

    def _compared(self, answer: object) -> Limits:
        limits = checked(answer, most=self._most, may_bypass=self._may_bypass)
        self._rule.note(self._number, self._told, limits)
        return limits
