import itertools
import math
import random
from collections import Counter

import pytest

from benchmarks.schedulers.synergy import CLASSES, philly_derived
from controller.policies.scheduling import BadSpec

TIMES = {model: 0.5 for models in CLASSES.values() for model in models}


def test_classes_follow_the_split_and_models_take_turns() -> None:
    specs = philly_derived(TIMES, jobs=1000, jobs_per_hour=9)
    counts = Counter(spec.model for spec in specs)
    per_class = {name: sum(counts[m] for m in models) for name, models in CLASSES.items()}
    assert per_class == {"image": 200, "language": 700, "speech": 100}
    for models in CLASSES.values():
        assert max(counts[m] for m in models) - min(counts[m] for m in models) <= 1


def test_arrivals_are_poisson_and_durations_have_two_parts() -> None:
    specs = philly_derived(TIMES, jobs=4000, jobs_per_hour=9, seed=1)
    gaps = [b.arrival_s - a.arrival_s for a, b in itertools.pairwise(specs)]
    assert sum(gaps) / len(gaps) == pytest.approx(400, rel=0.05)
    assert sum(gap > 400 for gap in gaps) / len(gaps) == pytest.approx(math.exp(-1), abs=0.03)
    minutes = [spec.duration_s / 60 for spec in specs]
    assert min(minutes) >= 31
    assert max(minutes) <= 10_000
    assert sum(m > 1000 for m in minutes) / len(minutes) == pytest.approx(0.2, abs=0.03)


def test_the_generator_is_asked_as_the_public_simulator_asks_it() -> None:
    first, second = philly_derived(TIMES, jobs=2, jobs_per_hour=9, seed=7)
    rng = random.Random(7)
    assert first.arrival_s == math.ceil(-math.log(1.0 - rng.random()) / 9 * 3600)
    rng.randint(0, 9)
    assert second.arrival_s - first.arrival_s == math.ceil(-math.log(1.0 - rng.random()) / 9 * 3600)
    assert (first.model, second.model) == ("alexnet", "gnmt")


def test_a_longer_trace_begins_as_a_shorter_one() -> None:
    short = philly_derived(TIMES, jobs=50, jobs_per_hour=9)
    assert philly_derived(TIMES, jobs=80, jobs_per_hour=9)[:50] == short


def test_classes_can_be_others() -> None:
    classes = {"short": ("a",), "long": ("b", "c")}
    specs = philly_derived(
        dict.fromkeys("abc", 1.0), jobs=200, jobs_per_hour=9, split=(50, 50), classes=classes
    )
    assert Counter(spec.model for spec in specs) == {"a": 100, "b": 50, "c": 50}


def test_bad_parameters_are_refused() -> None:
    with pytest.raises(BadSpec, match="0 jobs per hour"):
        philly_derived(TIMES, jobs=1, jobs_per_hour=0)
    with pytest.raises(BadSpec, match=r"a split of \(50, 50\)"):
        philly_derived(TIMES, jobs=1, jobs_per_hour=1, split=(50, 50))
    with pytest.raises(BadSpec, match="no iteration time of model 'alexnet'"):
        philly_derived({}, jobs=1, jobs_per_hour=1)
