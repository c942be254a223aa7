"""Made-up job streams, to try Lucid's parts on without anybody's data."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence

from controller.scheduling.lucid.durations import Facts
from controller.scheduling.lucid.measured import Config
from controller.scheduling.lucid.usage import Usage
from controller.scheduling.model import Submission

DAY_S = 86400.0


def make_jobs(count: int, usages: dict[Config, Usage], *, gap_s: float, seed: int = 0) -> list[Submission]:
    """Make up a trace: most jobs are short and have one GPU, a few run for hours on many."""
    rng = random.Random(seed)
    configs = list(usages)
    now_s, specs = 0.0, []
    for number in range(count):
        now_s += rng.expovariate(1 / gap_s)
        config = rng.choice(configs)
        gpus = rng.choices((1, 2, 4, 8), (70, 14, 10, 6))[0]
        duration_s = math.exp(rng.gauss(6.5, 1.6)) + 1
        specs.append(
            Submission(
                str(number),
                now_s,
                gpus,
                duration_s,
                1.0,
                model=config.model,
                batch=config.batch,
                estimate_s=duration_s * math.exp(rng.gauss(0, 0.4)),
                extra={"dataset": config.dataset, "amp": str(int(config.mixed_precision))},
            )
        )
    return specs


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
