"""Retention: how many ended jobs the service lists, and for how long, before it archives them. No I/O."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from controller.errors import BadSpec

DAY_S = 86_400.0
BATCH = 0.1
"""Fraction of `Retention.jobs` by which the number of ended jobs may exceed this maximum before the excess is
archived, so that jobs are archived in batches."""


@dataclass(frozen=True, slots=True)
class Retention:
    """Limits on the number and the age of ended jobs that are not archived. Raises BadSpec.

    Attributes:
        jobs: Maximum number of ended jobs to keep.
        age_s: Maximum time, in s, to keep an ended job.
    """

    jobs: int = 10_000
    age_s: float = 30 * DAY_S

    def __post_init__(self) -> None:
        if self.jobs < 0 or not self.age_s > 0:
            raise BadSpec(
                f"retention of {self.jobs} jobs for {self.age_s:g} s: want 0 or more jobs, and more than 0 s"
            )

    def due(self, over: int, oldest_s: float, now_s: float) -> bool:
        """Return whether jobs must be archived now.

        `over` is the number of ended jobs, and `oldest_s` the time at which the first of them ended.
        """
        return over > self.jobs + max(1, int(BATCH * self.jobs)) or now_s - oldest_s > self.age_s

    def expired(self, ended: Sequence[tuple[str, float]], now_s: float) -> list[str]:
        """Return the names of the jobs to archive. `ended` has the name and the end time of each ended job.

        >>> Retention(2, 100.0).expired([("a", 0.0), ("b", 150.0), ("c", 160.0), ("d", 90.0)], 170.0)
        ['a', 'd']
        """
        oldest = sorted(ended, key=lambda each: each[1])
        most = max(0, len(oldest) - self.jobs)
        return [
            name for number, (name, at_s) in enumerate(oldest) if number < most or now_s - at_s > self.age_s
        ]
