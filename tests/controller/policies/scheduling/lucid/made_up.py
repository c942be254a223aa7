"""Jobs that have ended and submissions per interval, made up."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence

from controller.policies.scheduling.lucid.estimates import Facts

DAY_S = 86400.0


def make_history(count: int, *, seed: int = 0, first_s: float = 0.0) -> tuple[list[Facts], list[float]]:
    """Make up jobs that have ended, and their durations: users submit the same few jobs again and again."""
    rng = random.Random(seed)
    habits = [
        (
            f"user{u}",
            f"{rng.choice(('train', 'eval', 'sweep'))}-net{u}{k}",
            rng.choice((1, 2, 8)),
            rng.uniform(5, 10),
        )
        for u in range(8)
        for k in range(2)
    ]
    jobs, durations_s = [], []
    for number in range(count):
        user, name, gpus, length = rng.choice(habits)
        jobs.append(Facts(user, f"{name}-v{rng.randint(1, 9)}", "vc", gpus, first_s + number * 600.0))
        durations_s.append(math.exp(length + rng.gauss(0, 0.3)))
    return jobs, durations_s


def make_counts(days: int, *, interval_s: int = 600, seed: int = 0) -> Sequence[float]:
    """Make up submissions per interval: many in the afternoon, few at night."""
    rng = random.Random(seed)
    counts = []
    for number in range(int(days * DAY_S / interval_s)):
        hour = number * interval_s / 3600 % 24
        expected = 6 + 5 * math.sin((hour - 9) / 24 * 2 * math.pi)
        counts.append(float(sum(rng.random() < expected / 20 for _ in range(20))))
    return counts
