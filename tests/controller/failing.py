"""Targets that fail at a write."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from controller.errors import Refused, Unreachable, UpdateError
from controller.switches.target import Entry, Kind, Target

How = Literal["refused", "not written", "not answered"]
HOWS: tuple[How, ...] = ("refused", "not written", "not answered")


@dataclass
class Fault:
    """What befalls one entry: the one that is written when `left` others have been, to whatever switch.

    The switch refuses that one alone, or cannot be reached then, or does what it is told and the answer is
    lost. With `for_good` it cannot be reached from then on.
    """

    how: How
    for_good: bool = False
    left: int = 0


class Failing:
    """Passes all on to a target, but for what the fault says."""

    def __init__(self, target: Target, fault: Fault) -> None:
        self.target = target
        self.fault = fault
        self.address = target.address
        self.close, self.turn, self.program = target.close, target.turn, target.program
        self.doubt = target.doubt
        self.load, self.read, self.read_counter = target.load, target.read, target.read_counter
        self.read_row, self.runs = target.read_row, target.runs

    @property
    def restarts(self) -> int:
        return self.target.restarts

    @property
    def undisturbed(self) -> bool:
        return self.target.undisturbed

    def write(self, kind: Kind, entries: Sequence[Entry]) -> None:
        fault, at = self.fault, self.fault.left
        fault.left -= len(entries)
        if at < 0 and fault.for_good:
            raise Unreachable("the switch is gone")
        if not 0 <= at < len(entries):
            self.target.write(kind, entries)
        elif fault.how == "refused":
            self.target.write(kind, [*entries[:at], *entries[at + 1 :]])
            raise Refused(kind, "UNKNOWN", "no", (UpdateError(at, "INTERNAL", "no"),))
        else:
            if fault.how == "not answered":
                self.target.write(kind, entries)
            raise Unreachable("the switch does not answer")
