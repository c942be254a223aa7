import math
from collections.abc import Mapping, Sequence

import pytest

from controller.policies.scheduling import BadSpec
from controller.policies.scheduling.lucid.online import UpdateEngine
from controller.policies.scheduling.lucid.tuner import tune_settings
from controller.policies.scheduling.lucid.usage import BadSample

CHOICES = {"limit": [50, 100, 200], "nodes": [1, 2, 3]}


def bowl(settings: Mapping[str, float]) -> float:
    return (settings["limit"] - 100) ** 2 + 1000 * (settings["nodes"] - 3) ** 2 + 10


def test_the_descent_finds_the_bottom_and_replays_nothing_twice() -> None:
    asked: list[Mapping[str, float]] = []

    def replay(settings: Mapping[str, float]) -> float:
        asked.append(dict(settings))
        return bowl(settings)

    found = tune_settings(CHOICES, {"limit": 200, "nodes": 1, "other": 7}, replay)
    assert found.best.settings == {"limit": 100, "nodes": 3, "other": 7}
    assert found.best.cost == 10
    assert len(asked) == len(found.trials)
    assert all(asked.count(s) == 1 for s in asked)
    assert found.trials[0].settings == {"limit": 200, "nodes": 1, "other": 7}


def test_settings_in_use_stay_unless_it_pays() -> None:
    found = tune_settings({"x": [1, 2]}, {"x": 1}, lambda s: {1: 100.0, 2: 99.0}[s["x"]], min_gain=0.05)
    assert found.best.settings == {"x": 1}


def test_what_cannot_be_tuned_is_refused() -> None:
    with pytest.raises(BadSpec, match="setting 'x' has 1 choices, and it is not in use"):
        tune_settings({"x": [1]}, {}, bowl)
    with pytest.raises(BadSpec, match="setting 'x' has 0 choices, and it is in use"):
        tune_settings({"x": []}, {"x": 1}, bowl)
    with pytest.raises(BadSpec, match="costs nan"):
        tune_settings({"x": [1]}, {"x": 1}, lambda s: math.nan)
    with pytest.raises(BadSpec, match="a minimal gain of 1"):
        tune_settings({"x": [1]}, {"x": 1}, bowl, min_gain=1)


def mean(samples: Sequence[float]) -> float:
    return sum(samples) / len(samples)


def test_models_are_trained_once_in_a_period_on_the_latest_samples() -> None:
    engine = UpdateEngine(mean, period_s=100, window=4, minimum=2)
    engine.observe(1)
    assert engine.model(0) is None
    engine.observe(3)
    assert engine.model(0) == 2
    engine.observe(8)
    assert engine.model(50) == 2  # not due yet
    assert engine.model(100) == 4
    assert engine.model(500) == 4
    assert engine.trained == 2  # nothing new, nothing trained
    for value in (10, 10, 10, 10):
        engine.observe(value)
    assert engine.model(600) == 10  # the window has moved on


def test_a_failed_training_leaves_the_model_in_use() -> None:
    def train(samples: Sequence[float]) -> float:
        if max(samples) > 9:
            raise BadSample("too large")
        return mean(samples)

    engine = UpdateEngine(train, period_s=10, minimum=1)
    engine.observe(2)
    assert engine.model(0) == 2
    engine.observe(10)
    assert engine.model(20) == 2
    assert engine.trained == 1


def test_bad_engines_are_refused() -> None:
    with pytest.raises(BadSpec, match="every 0 s"):
        UpdateEngine(mean, period_s=0)
    with pytest.raises(BadSpec, match="with 5 of 4 samples"):
        UpdateEngine(mean, period_s=1, window=4, minimum=5)
