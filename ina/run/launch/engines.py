"""The engines that can start the workers of a service's jobs: local (this machine), ssh, Slurm and Ray."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import assert_never

from controller.vocabulary import Topology
from ina.errors import ServiceError
from ina.run.launch.agents import launch_command
from ina.run.launch.executor import Executor, LocalRuns, SshRuns
from ina.run.launch.orders import Engine
from ina.run.launch.ray_runs import RayRuns
from ina.run.launch.slurm_runs import SlurmRuns
from ina.run.launch.spec import SSH

LOCAL_ENGINES: tuple[Engine, ...] = ("local", "slurm", "ray")
"""Engines that can start workers on the hosts of a testbed."""
REMOTE_ENGINES: tuple[Engine, ...] = ("ssh", "slurm", "ray")
"""Engines that can start workers on the machines of a cluster file."""


@dataclass(frozen=True, slots=True)
class EngineChoice:
    """An engine and its settings. Raises ServiceError, and BadRun for a bad `launch_with`.

    Attributes:
        engine: The engine's name.
        licence: Only with Slurm: name of the Slurm licence that stands for slots. A job requests one licence
            for each of its exclusive slots. "": jobs request no licences.
        launch_with: Only with ssh: template of the command that starts a command on a machine
            (`agents.launch_command`).
        passed: Names of environment variables that jobs' commands get besides `launcher.SETTINGS`.
    """

    engine: Engine = "local"
    licence: str = ""
    launch_with: str = SSH
    passed: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.launch_with != SSH and self.engine != "ssh":
            raise ServiceError(
                f"launch_with {self.launch_with!r}: executor {self.engine!r} starts commands on machines in"
                " its own way; want executor ssh"
            )
        launch_command(self.launch_with, "machine", "10.0.0.1", ["true"])

    @contextlib.contextmanager
    def executor(self, folder: Path, service: str, machines: Topology) -> Iterator[Executor]:
        """Yield the executor, which starts, ends and finds the runs of a service.

        Args:
            folder: The folder in which the runs' folders are created.
            service: A unique name of the service.
            machines: The cluster, with the addresses of its servers. With Slurm or Ray, each server must be a
                node there.

        Raises EngineError, ServiceError: the engine does not answer, or is not installed.
        """
        match self.engine:
            case "local":
                yield LocalRuns(folder, self.passed)
            case "slurm":
                slurm = SlurmRuns(folder, service, machines, self.licence, self.passed)
                with contextlib.closing(slurm):
                    yield slurm
            case "ray":
                with contextlib.closing(RayRuns(folder, machines, self.passed)) as ray:
                    yield ray
            case "ssh":
                yield SshRuns(folder, machines, self.launch_with, self.passed)
            case _:
                assert_never(self.engine)
