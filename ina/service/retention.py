"""Retention: how many ended jobs are listed, and how long, before they are archived. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from controller.errors import BadSpec

DAY_S = 86_400.0
BATCH = 0.1
"""Fraction of `Retention.jobs` by which the number of ended jobs may exceed it before some are archived."""


@dataclass(frozen=True, slots=True)
class Retention:
    """A limit on number and age of ended jobs. Raises BadSpec.

    Attributes:
        jobs: Most ended jobs that are kept.
        age_s: Longest time for which an ended job is kept.
    """

    jobs: int = 10_000
    age_s: float = 30 * DAY_S

    def __post_init__(self) -> None:
        if self.jobs < 0 or not self.age_s > 0:
            raise BadSpec(
                f"retention of {self.jobs} jobs for {self.age_s:g} s: want 0 or more jobs, and more than 0 s"
            )

    def due(self, over: int, oldest_s: float, now_s: float) -> bool:
        """Return whether to archive jobs, if `over` jobs have ended, the first of them at `oldest_s`."""
        return over > self.jobs + max(1, int(BATCH * self.jobs)) or now_s - oldest_s > self.age_s

    def expired(self, ended: Sequence[tuple[str, float]], now_s: float) -> list[str]:
        """Return the names of the jobs to archive; `ended` has the name and the time of the end of each.

        >>> Retention(2, 100.0).expired([("a", 0.0), ("b", 150.0), ("c", 160.0), ("d", 90.0)], 170.0)
        ['a', 'd']
        """
        oldest = sorted(ended, key=lambda each: each[1])
        most = max(0, len(oldest) - self.jobs)
        return [
            name for number, (name, at_s) in enumerate(oldest) if number < most or now_s - at_s > self.age_s
        ]
