"""Expected durations, learned from jobs that have ended (Lucid's workload estimate model)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from controller.policies.family import SimulationConfig
from controller.policies.scheduling.errors import BadSpec
from controller.policies.scheduling.lucid.family import usage_of
from controller.policies.scheduling.model import Submission

if TYPE_CHECKING:  # loaded when somebody learns
    from controller.policies.scheduling.lucid.estimates import DurationModel, Facts


def learn(ended: Sequence[Submission], config: SimulationConfig) -> DurationModel:
    """Return a model of the durations of jobs like `ended`.

    Raises BadSample for too few jobs, ExtraMissing without the packages that train it.
    """
    from controller.policies.scheduling.lucid.estimates import LONG, train_durations

    submissions = [submission(spec, config) for spec in ended]
    return train_durations(submissions, [spec.duration_s for spec in ended], replace(LONG, seed=config.seed))


def submission(spec: Submission, config: SimulationConfig) -> Facts:
    """Return a job's features before it runs, with its usage if that has been measured."""
    from controller.policies.scheduling.lucid.estimates import submission as described

    try:
        return described(spec, usage_of(spec, config))
    except BadSpec:  # nobody has profiled it
        return described(spec)


def expect(specs: Sequence[Submission], model: DurationModel, config: SimulationConfig) -> list[Submission]:
    """Return the jobs with the model's predictions as their estimates."""
    return [replace(spec, estimate_s=model.predict_s(submission(spec, config))) for spec in specs]
