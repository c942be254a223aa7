"""Synthetic measurements, to try Lucid's policies without real data."""

from __future__ import annotations

import random

from controller.policies.scheduling.lucid.measured import Config, Pair
from controller.policies.scheduling.lucid.usage import Usage


def make_usages(models: int, *, seed: int = 0) -> dict[Config, Usage]:
    """Generate `models` models with three batch sizes, with and without mixed precision.

    Larger batches use more of a GPU; mixed precision uses less of it and of its memory.
    """
    rng = random.Random(seed)
    found = {}
    for number in range(models):
        base, memory = rng.uniform(5, 85), rng.uniform(1500, 9000)
        for step, batch in enumerate((32, 64, 128)):
            for mixed in (False, True):
                gpu = min(100.0, base * (1 + 0.35 * step) * (0.7 if mixed else 1.0) * rng.uniform(0.95, 1.05))
                found[Config(f"net{number}", "data", batch, mixed)] = Usage(
                    gpu,
                    gpu * rng.uniform(0.4, 0.7),
                    memory * (1 + 0.4 * step) * (0.8 if mixed else 1.0),
                    mixed,
                )
    return found


def pair_speeds(one: Usage, other: Usage) -> tuple[float, float]:
    """Return synthetic speeds of two jobs on one GPU: kernels take turns, and memory traffic costs extra."""

    def speed(mine: Usage, partner: Usage) -> float:
        overload = max(0.0, mine.gpu_util + partner.gpu_util - 100) / 200
        traffic = mine.memory_util * partner.memory_util / 100 / 300
        return max(0.3, 1 - overload * partner.gpu_util / 100 - traffic)

    return speed(one, other), speed(other, one)


def make_pairs(usages: dict[Config, Usage], *, noise: float = 0.02, seed: int = 0) -> list[Pair]:
    """Measure all pairs of configurations, with some noise."""
    rng = random.Random(seed)
    configs = list(usages)
    pairs = []
    for number, one in enumerate(configs):
        for other in configs[number:]:
            speeds = [max(0.1, v + rng.gauss(0, noise)) for v in pair_speeds(usages[one], usages[other])]
            pairs.append(Pair(one, other, *speeds))
    return pairs
