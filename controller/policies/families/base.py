"""Families of policies, and the configuration that their policies are made for."""

from __future__ import annotations

import csv
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from controller.policies.setup import Setup
from controller.scheduling.errors import BadSpec, BadTrace
from controller.scheduling.model import Submission
from controller.vocabulary import Cluster


@dataclass(frozen=True, slots=True)
class SimulationConfig:
    """Configuration of a simulation: the cluster, and the data that speed models are made from.

    Attributes:
        cluster: The servers.
        matrix: Sensitivity matrices (`controller.scheduling.synergy.matrix_csv`); None: made-up ones.
        profiles: Usage of configurations (`controller.scheduling.lucid.measured`); None: made-up ones.
        pairs: Measured pairs, of the same configurations, or, for `sharing`, Gavel's; None: made-up ones.
        seed: Of what is made up, and of training.
        estimates: How long jobs are expected to run (`controller.simulator.estimates`); None: as they say.
        settings: Numbers by name that differ from their families' defaults.
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
            raise BadSpec("profiles and pairs belong together: give both or none")


def as_generated(specs: Sequence[Submission], config: SimulationConfig) -> list[Submission]:
    """Return the jobs: the family needs nothing of them that the generator does not give."""
    return list(specs)


@dataclass(frozen=True, slots=True)
class Setting:
    """A number that policies of a family go by, from `least` to `most`; `whole`: a whole one."""

    about: str
    default: float
    least: float = 0.0
    most: float = math.inf
    whole: bool = False

    def check(self, name: str, value: float) -> None:
        """Raise BadSpec for a value that it cannot have."""
        if not self.least <= value <= self.most:
            raise BadSpec(f"setting {name}={value:g}: want {self.least:g} to {self.most:g}")
        if self.whole and value != int(value):
            raise BadSpec(f"setting {name}={value:g}: want a whole number")


def resolve_settings(settings: Mapping[str, Setting], config: SimulationConfig) -> dict[str, float]:
    """Return the values that hold for a family with these settings; others are no business of it."""
    chosen = dict(config.settings)
    return {name: chosen.get(name, setting.default) for name, setting in settings.items()}


@dataclass(frozen=True, slots=True)
class Family:
    """Policies that are simulated in one speed model, so that they can be compared with each other.

    Attributes:
        about: What they have in common, in one line.
        policies: Their names without the family's, and what each is in one line.
        make: Returns a fresh policy by such a name, with what it is asked with. Raises what reading files
            raises, and ExtraMissing without the packages that a policy needs.
        dress: Returns generated jobs with what the family has to know of them, drawn by seed. Families that
            share this function can be run on the same generated jobs.
        settings: What can be set.
        main: The policies that a user is shown first; the others are baselines, combinations and replicas.
        three_stages: Generated jobs count loading and preprocessing as one stage.
    """

    about: str
    policies: Mapping[str, str]
    make: Callable[[str, SimulationConfig], Setup]
    dress: Callable[[Sequence[Submission], SimulationConfig], list[Submission]] = as_generated
    settings: Mapping[str, Setting] = field(default_factory=dict)
    main: Sequence[str] = ()
    three_stages: bool = False


@contextmanager
def readable(path: Path) -> Iterator[None]:
    """Raise BadTrace for a file that cannot be read at all; pipes and devices are none that can be."""
    try:
        if path.exists() and not path.is_file():
            raise BadTrace(str(path), 0, "", "cannot be read: not a regular file")
        yield
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise BadTrace(str(path), 0, "", f"cannot be read: {error}") from error
