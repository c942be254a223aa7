"""Events of jobs and memory over time, for plots and explanations."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from controller.policies.memory.policy import MemoryDivision, MemoryProblem
from controller.policies.memory.regions import SlotStatus
from controller.vocabulary import Job


@dataclass
class NetworkLog:
    """States in order of time: each entry has a time in seconds, and the state from this time on."""

    places: list[tuple[float, str, Job]] = field(default_factory=list)
    memory: list[tuple[float, MemoryProblem, MemoryDivision]] = field(default_factory=list)
    levels: list[tuple[float, Mapping[str, float]]] = field(default_factory=list)
    """Rates at which jobs send, bits per second."""

    def on_placed(self, now_s: float, job: Job) -> None:
        """Record that a job has servers and a tree from now on."""
        self.places.append((now_s, job.name, job))

    def on_divided(self, now_s: float, problem: MemoryProblem, division: MemoryDivision) -> None:
        """Record a division of memory among the jobs of `problem`, which is valid from `now_s` on."""
        self.memory.append((now_s, problem, division))

    def rates(self, now_s: float, rates: Mapping[str, float]) -> None:
        """Record the rates at which jobs send from now on, bits per second."""
        self.levels.append((now_s, rates))


# ---------------------------------------------------------------------------
# Grants that were taken back: which jobs were promised slots on arrival, and lost them later.


class GrantWatch:
    """Watcher of an allocation: finds jobs that lose the slots granted in their first division of memory."""

    def __init__(self) -> None:
        self._seen: set[str] = set()
        self._granted: set[str] = set()
        self.lost: set[str] = set()
        """Jobs that were granted slots in their first division of memory, but not in some later division."""

    def on_placed(self, now_s: float, job: Job) -> None:
        """Ignore a job's place, which has nothing to do with memory."""

    def on_divided(self, now_s: float, problem: MemoryProblem, division: MemoryDivision) -> None:
        """Record the jobs that are granted no slots now but were granted slots in their first division."""
        for name, standing in division.standing.items():
            granted = standing is SlotStatus.GRANTED
            if name not in self._seen:
                self._seen.add(name)
                if granted:
                    self._granted.add(name)
            elif not granted and name in self._granted:
                self.lost.add(name)
