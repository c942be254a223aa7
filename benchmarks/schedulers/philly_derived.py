"""The "Philly-derived" workload of Synergy's public simulator, drawn as it is drawn there.

What comes from Philly is the shape only: durations (80 % of 60·10^U(1.5, 3) s, the others of 60·10^U(3, 4)
s), Poisson arrivals and models are synthetic, and all jobs have one GPU. The random generator is Python's,
asked in the order in which the public simulator asks it once it has cached its durations, so that equal seeds
give equal jobs.
"""

from __future__ import annotations

import math
import random
from collections.abc import Mapping, Sequence

from controller.policies.scheduling.errors import BadSpec
from controller.policies.scheduling.model import Submission

CLASSES: Mapping[str, Sequence[str]] = {
    "image": ("alexnet", "res18", "res50", "mobilenet", "shufflenet"),
    "language": ("gnmt", "transformer", "lstm"),
    "speech": ("m5", "deepspeech"),
}


def philly_derived(
    iteration_s: Mapping[str, float],
    *,
    jobs: int,
    jobs_per_hour: float,
    split: Sequence[float] = (20, 70, 10),
    classes: Mapping[str, Sequence[str]] = CLASSES,
    seed: int = 42,
) -> list[Submission]:
    """Draw `jobs` jobs, called 0, 1, 2 and so on.

    Args:
        iteration_s: Seconds per iteration at the fair share of each model in `classes`.
        jobs: How many to draw.
        jobs_per_hour: Load.
        split: Percent of the jobs of each class.
        classes: Models by class, in the order of `split`.
        seed: Of the generator.

    A job is of the class that is furthest behind its percentage, and takes its class's models in turn. Raises
    BadSpec for a bad load or split, or a model without a figure.
    """
    if not jobs_per_hour > 0 or len(split) != len(classes) or min(split) < 0 or sum(split) <= 0:
        raise BadSpec(
            f"{jobs_per_hour} jobs per hour with a split of {tuple(split)}; the load must be positive,"
            f" and the split a percentage of each of {', '.join(classes)}"
        )
    missing = [m for models in classes.values() for m in models if m not in iteration_s]
    if missing:
        raise BadSpec(f"there is no iteration time of model {missing[0]!r}")
    rng = random.Random(seed)
    durations_s = [_duration_s(rng) for _ in range(jobs)]
    rng = random.Random(seed)
    drawn = dict.fromkeys(classes, 0)
    specs = []
    now_s = 0.0
    for number, duration_s in enumerate(durations_s):
        now_s += math.ceil(-math.log(1.0 - rng.random()) / jobs_per_hour * 60 * 60)
        rng.randint(0, sum(map(len, classes.values())) - 1)  # asked for there, and not used
        behind = {
            name: percent / 100 - drawn[name] / number if number else 0.0
            for name, percent in zip(classes, split, strict=True)
        }
        kind = max(behind, key=lambda name: behind[name])
        model = classes[kind][drawn[kind] % len(classes[kind])]
        drawn[kind] += 1
        each_s = iteration_s[model]
        specs.append(Submission(str(number), now_s, 1, int(duration_s / each_s), each_s, model=model))
    return specs


def _duration_s(rng: random.Random) -> float:
    low, high = (3, 4) if rng.random() >= 0.8 else (1.5, 3)
    return float(60 * (10 ** rng.uniform(low, high)))
