"""What a family of policies consists of, and what its setups are made for."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from controller.scheduling.errors import BadSpec, BadTrace
from controller.scheduling.model import Cluster, JobSpec
from controller.simulator.setups import Setup


@dataclass(frozen=True, slots=True)
class Background:
    """What setups are made for.

    Attributes:
        cluster: The servers.
        matrix: Sensitivity matrices (`controller.scheduling.synergy.matrix_csv`); None: made-up ones.
        profiles: Usage of configurations (`controller.scheduling.lucid.measured`); None: made-up ones.
        pairs: Measured pairs, of the same configurations, or, for `sharing`, Gavel's; None: made-up ones.
        seed: Of what is made up, and of training.
        estimates: How long jobs are expected to run (`controller.simulator.estimates`); None: as they say.
    """

    cluster: Cluster
    matrix: Path | None = None
    profiles: Path | None = None
    pairs: Path | None = None
    seed: int = 0
    estimates: Path | None = None

    def __post_init__(self) -> None:
        if self.profiles is not None and self.pairs is None:
            raise BadSpec("profiles and pairs belong together: give both or none")


def as_generated(specs: Sequence[JobSpec], background: Background) -> list[JobSpec]:
    """Return the jobs: the family needs nothing of them that the generator does not give."""
    return list(specs)


@dataclass(frozen=True, slots=True)
class Family:
    """Policies that are simulated in one speed model, so that they can be compared with each other.

    Attributes:
        about: What they have in common, in one line.
        policies: Their names without the family's, and what each is; "": its name says so.
        make: Returns a fresh setup by such a name. Raises what reading files raises, and ExtraMissing
            without the packages that a policy needs.
        dress: Returns generated jobs with what the family has to know of them, drawn by seed. Families that
            share this function can be run on the same generated jobs.
    """

    about: str
    policies: Mapping[str, str]
    make: Callable[[str, Background], Setup]
    dress: Callable[[Sequence[JobSpec], Background], list[JobSpec]] = as_generated


@contextmanager
def readable(path: Path) -> Iterator[None]:
    """Raise BadTrace for a file that cannot be read at all."""
    try:
        yield
    except (OSError, UnicodeDecodeError) as error:
        raise BadTrace(str(path), 0, "", f"cannot be read: {error}") from error
