"""The system tuner: better settings by replaying past jobs (Lucid, 3.6)."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from controller.policies.scheduling.errors import BadSpec

Settings = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Trial:
    """Settings and the cost of their replay."""

    settings: Settings
    cost: float


@dataclass(frozen=True, slots=True)
class TuningResult:
    """The best trial, and all trials in order."""

    best: Trial
    trials: tuple[Trial, ...]


def tune_settings(
    choices: Mapping[str, Sequence[Any]],
    start: Settings,
    replay: Callable[[Settings], float],
    *,
    rounds: int = 3,
    min_gain: float = 0.0,
) -> TuningResult:
    """Search for the settings of lowest cost, one setting after the other.

    Each round tries every choice of every setting, with the best values so far of all other settings. A round
    without a gain ends the search. No combination of settings is simulated twice. The search needs at most
    rounds · Σ choices simulations; all combinations would need Π choices. Like any descent, the search can
    miss a combination that is better only as a whole.

    Args:
        choices: The values to try for each setting.
        start: The present settings. Settings that are not in `choices` do not change.
        replay: Function that simulates with the given settings and returns their cost, such as the mean
            completion time.
        rounds: Maximum number of rounds.
        min_gain: Minimum gain, as a fraction of the cost, for which a setting is changed.

    Raises BadSpec for a setting without a start or without choices, or a cost that is not a number.
    """
    for name, values in choices.items():
        if name not in start or not values:
            raise BadSpec(
                f"setting '{name}' has {len(values)} choices, and {_is(name in start)} in `start`; want"
                " at least 1 choice, and a setting in `start`"
            )
    if not 0 <= min_gain < 1:
        raise BadSpec(f"a minimal gain of {min_gain}; want a fraction of the cost, from 0 to below 1")
    trials: list[Trial] = []

    def attempt(settings: Settings) -> Trial:
        for trial in trials:
            if trial.settings == settings:
                return trial
        trial = Trial(dict(settings), replay(settings))
        if math.isnan(trial.cost):
            raise BadSpec(f"the cost of the replay with {dict(settings)} must be a number, not {trial.cost}")
        trials.append(trial)
        return trial

    best = attempt(start)
    for _ in range(rounds):
        before = best
        for name, values in choices.items():
            for value in values:
                trial = attempt({**best.settings, name: value})
                if trial.cost < best.cost * (1 - min_gain):
                    best = trial
        if best is before:
            break
    return TuningResult(best, tuple(trials))


def _is(there: bool) -> str:
    return "is" if there else "is not"
