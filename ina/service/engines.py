"""Which engine starts the workers of a service's jobs: this machine itself, Slurm or Ray."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import assert_never, get_args

from bmv2_topos.testbeds import netns
from ina.service.errors import ServiceError
from ina.service.executor import Executor, LocalRuns
from ina.service.ray_runs import RayRuns
from ina.service.runner import Engine
from ina.service.slurm_runs import SlurmRuns


@dataclass(frozen=True, slots=True)
class EngineChoice:
    """An engine and its settings. Raises ServiceError.

    Attributes:
        engine: Its name.
        licence: With Slurm: the licence of which jobs use as many as they have slots of their own; "": none.
    """

    engine: Engine = "local"
    licence: str = ""

    def __post_init__(self) -> None:
        if self.engine not in get_args(Engine):
            raise ServiceError(f"executor {self.engine!r}: want one of {', '.join(get_args(Engine))}")
        if self.licence and self.engine != "slurm":
            raise ServiceError(
                f"licence {self.licence!r}: Slurm has licences, executor {self.engine!r} has none"
            )

    @contextlib.contextmanager
    def executor(self, folder: Path, service: str, bed: netns.State) -> Iterator[Executor]:
        """Give what starts, ends and finds the runs of a service on a testbed.

        Args:
            folder: Of the folders of runs.
            service: A name of the service that no other has.
            bed: The testbed; with Slurm and Ray its hosts are their nodes.

        Raises EngineError, ServiceError: the engine does not answer, or is not installed.
        """
        match self.engine:
            case "local":
                yield LocalRuns(folder)
            case "slurm":
                with contextlib.closing(
                    SlurmRuns(folder, service, netns.exported(bed), self.licence)
                ) as slurm:
                    yield slurm
            case "ray":
                with contextlib.closing(RayRuns(folder, netns.exported(bed))) as ray:
                    yield ray
            case _:
                assert_never(self.engine)
