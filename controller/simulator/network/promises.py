"""Grants that were taken back: which jobs were promised slots on arrival, and lost them later."""

from __future__ import annotations

from controller.policies.memory.policy import Answer, Question, Standing
from controller.vocabulary import Job


class Promises:
    """Watches an allocation: who was granted slots by its first division of memory, and lost them."""

    def __init__(self) -> None:
        self._seen: set[str] = set()
        self._granted: set[str] = set()
        self.lost: set[str] = set()
        """Jobs that were granted slots on arrival, and had none of their own in some later division."""

    def placed(self, now_s: float, job: Job) -> None:
        """Ignore a job's place: it says nothing of memory."""

    def divided(self, now_s: float, question: Question, answer: Answer) -> None:
        """Compare a division of memory with the first one of each of its jobs."""
        for name, standing in answer.standing.items():
            granted = standing is Standing.GRANTED
            if name not in self._seen:
                self._seen.add(name)
                if granted:
                    self._granted.add(name)
            elif not granted and name in self._granted:
                self.lost.add(name)
