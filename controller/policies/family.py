"""What belongs to a scheduling policy: its family, speed model, decision interval and options."""

from __future__ import annotations

import csv
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any, TypeVar

from controller.policies.scheduling.errors import BadSpec, BadTrace
from controller.policies.scheduling.policy import Setup as Setup
from controller.policies.scheduling.policy import Submission
from controller.vocabulary import Cluster


@dataclass(frozen=True, slots=True)
class SimulationConfig:
    """Configuration of a simulation: the cluster, and the data of the speed models.

    Attributes:
        cluster: The servers.
        matrix: File of sensitivity matrices (`scheduling.synergy.demand`); None: synthetic ones.
        profiles: File with the measured GPU usage of training configurations (`scheduling.lucid.family`);
            None: synthetic data.
        pairs: File with the measured speeds of pairs of these configurations on one GPU or, for the family
            `sharing`, Gavel's file of such pairs; None: synthetic pairs.
        seed: Seed of synthetic data and of training.
        estimates: File of jobs' expected durations (`controller.simulator.runs`); None: each job's own.
        settings: Name and value of each setting that differs from its family's default.
    """

    cluster: Cluster
    matrix: Path | None = None
    profiles: Path | None = None
    pairs: Path | None = None
    seed: int = 0
    estimates: Path | None = None
    settings: tuple[tuple[str, float], ...] = ()

    def __post_init__(self) -> None:
        if self.profiles is not None and self.pairs is None:
            raise BadSpec("--profiles and --pairs need each other: give both or neither")


def keep_jobs(specs: Sequence[Submission], config: SimulationConfig) -> list[Submission]:
    """Return the jobs unchanged: the generator sets all properties that the family needs."""
    return list(specs)


@dataclass(frozen=True, slots=True)
class Setting:
    """A numeric setting of a family's policies: from `least` to `most`, and an integer if `whole` is true."""

    about: str
    default: float
    least: float = 0.0
    most: float = math.inf
    whole: bool = False

    def check(self, name: str, value: float) -> None:
        """Raise BadSpec if `value` is out of range or has to be whole and is not; `name` is for the error."""
        if not self.least <= value <= self.most:
            raise BadSpec(f"setting {name}={value:g}: want {self.least:g} to {self.most:g}")
        if self.whole and value != int(value):
            raise BadSpec(f"setting {name}={value:g}: want a whole number")


def option(about: str, default: Any, least: float = 0.0, most: float = math.inf) -> Any:
    """Return a dataclass field for a subclass of `Options`: a number that users may set.

    Args:
        about: What the setting does, for ``--help`` and errors.
        default: The default value. If it is an integer, users may set whole numbers only; if it is a bool,
            0 or 1 only.
        least: Minimum value.
        most: Maximum value.
    """
    whole = isinstance(default, int)
    setting = Setting(about, int(default) if whole else default, least, most, whole)
    if isinstance(default, bool):
        setting = replace(setting, most=1)
    return field(default=default, metadata={"setting": setting})


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """Options of a family's policies; the fields made by `option` are settings that users may change.

    Raises BadSpec for a value out of range.
    """

    def __post_init__(self) -> None:
        for name, setting in declared_settings(type(self)).items():
            setting.check(name, getattr(self, name))


def declared_settings(options: type[Options]) -> dict[str, Setting]:
    """Return the settings that a class of options declares, by name."""
    return {each.name: each.metadata["setting"] for each in fields(options) if "setting" in each.metadata}


Chosen = TypeVar("Chosen", bound=Options)


def resolve_options(options: type[Chosen], config: SimulationConfig) -> Chosen:
    """Return `options` with the values in `config`; settings of other families are ignored.

    Raises BadSpec for a value out of range.
    """
    defaults = options()
    mine = {name: value for name, value in config.settings if name in declared_settings(options)}
    return replace(defaults, **{name: type(getattr(defaults, name))(value) for name, value in mine.items()})


def resolve_settings(settings: Mapping[str, Setting], config: SimulationConfig) -> dict[str, float]:
    """Return the value of each of `settings`, by name: the value in `config`, or else the default.

    Names in `config` that are not in `settings` are ignored.
    """
    chosen = dict(config.settings)
    return {name: chosen.get(name, setting.default) for name, setting in settings.items()}


@dataclass(frozen=True, slots=True)
class Family:
    """Policies that are simulated in one speed model, so that they can be compared with each other.

    Attributes:
        about: A description of the common speed model, in one line.
        policies: One-line descriptions of the policies, by the policy's name without the family's name.
        make: Function of a policy's name that returns a new policy with its speed model and interval. Raises
            the errors of reading files, and ExtraMissing without the packages that a policy needs.
        complete_jobs: Function that returns generated jobs with the properties that the family needs, drawn
            by seed. Families that share this function can be run on the same generated jobs.
        settings: The settings, by name.
        main: The policies to show to users first; other policies are baselines, combinations and replicas.
        three_stages: Whether generated jobs have three stages, not four: loading and preprocessing are one.
    """

    about: str
    policies: Mapping[str, str]
    make: Callable[[str, SimulationConfig], Setup]
    complete_jobs: Callable[[Sequence[Submission], SimulationConfig], list[Submission]] = keep_jobs
    settings: Mapping[str, Setting] = field(default_factory=dict)
    main: Sequence[str] = ()
    three_stages: bool = False


@contextmanager
def raising_bad_trace(path: Path) -> Iterator[None]:
    """Raise BadTrace if `path` is a pipe or a device, or if the file cannot be read within this context."""
    try:
        if path.exists() and not path.is_file():
            raise BadTrace(str(path), 0, "", "cannot be read: not a regular file")
        yield
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise BadTrace(str(path), 0, "", f"cannot be read: {error}") from error
