"""Executors: start, stop, check and find runs of workers. The runs continue if the daemon ends.

`LocalRuns` starts runs on this machine. ssh (`SshRuns`), Slurm (`ina.run.launch.slurm_runs`) and Ray
(`ina.run.launch.ray_runs`) are *engines*, which start processes on other machines. Slurm and Ray keep their
own state of jobs and servers.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import ClassVar, Protocol

from controller.vocabulary import BadSpec, Topology
from hostlib.launch import command_line
from hostlib.launch.keeper import GRACE_S
from hostlib.version import PROTOCOL, other_protocol
from ina.errors import RunnerGone
from ina.faults import fault_point
from ina.run.launch import files
from ina.run.launch.orders import GRANTED, Engine, RunOrder, RunStatus

STOP_S = 4 * GRACE_S + 10.0
"""Time, in s, for workers to end after SIGTERM. Then the runner is killed, and its keeper processes
(`hostlib.launch.keeper`) end the workers."""


class Executor(Protocol):
    """Starts, stops and finds runs of workers. A repeated call with the same arguments does no harm."""

    def start(self, order: RunOrder) -> None:
        """Start a run, unless it runs already.

        Raises OSError and EngineError, after which a retry may succeed, and BadSpec for a run that this
        executor can never start.
        """

    def grant(self, number: int, in_flight: Mapping[str, int]) -> None:
        """Set the maximum number of packets in flight of each job of a run; 0: no limit.

        The keys of `in_flight` are names of jobs. Raises OSError.
        """

    def stop(self, number: int) -> None:
        """End a run and all of its processes. Raises RunnerGone if they do not end, and EngineError."""

    def status(self, number: int) -> RunStatus | None:
        """Return the status of a run; None: it was never started."""

    def lives(self, number: int) -> bool:
        """Return whether the runner of a run, the process that starts its workers, is alive."""

    def other_version(self, number: int) -> str:
        """Return why the status of a run cannot be read: a service of another version started the run.

        "": it can be read. `stop` ends runs of any version.
        """
        return ""

    def forget(self, number: int) -> None:
        """Remove the files of a run that is over; keep the files with its ranks' output."""

    def known(self) -> list[int]:
        """Return the numbers of all runs that have been started and not yet forgotten."""

    def why_ended(self, number: int) -> str:
        """Return, as text, why a runner has ended without reporting the end of its run."""

    def shown(self, number: int) -> tuple[str, bool]:
        """Return the name and state of a run in Slurm or Ray, as one text, and whether it has started there.

        The result is ("", True) for other engines.
        """
        return "", True

    def gone(self) -> Mapping[str, str]:
        """Return the names of the servers that the engine cannot use, each with the reason.

        The result is empty if the engine does not watch servers.
        """
        return {}

    def looked_within(self, age_s: float) -> bool:
        """Return whether the look at the servers that `gone` last reported began in the last `age_s` s.

        The result is True if the engine does not watch servers, or names lost servers with a run's failure.
        """
        return True

    def change_cluster(self, cluster: Topology) -> None:
        """Start later runs on the servers of `cluster`; runs that have started are not affected."""
        del cluster  # orders name the hosts


def _check(order: RunOrder) -> None:
    """Raise BadSpec for an order that its engine cannot run.

    Only Ray can start drivers of Ray. Jobs of one run take turns on the same GPUs; only the executor
    ``local`` can run them.
    """
    for job in order.jobs:
        if job.driver and order.engine != "ray":
            raise BadSpec(f"job {job.name!r} is a driver of Ray: want a controller with --executor ray")
    if len(order.jobs) > 1 and order.engine != "local":
        names = ", ".join(job.name for job in order.jobs)
        raise BadSpec(f"jobs that take turns ({names}) need a controller of a testbed, with --executor local")


class RunFolders(Executor):
    """An executor that has a folder for each run, where the run's runner writes its status.

    `ina.run.launch.runner` describes the files in such a folder.
    """

    engine: ClassVar[Engine] = "local"
    """The engine that starts processes on the servers."""

    def __init__(self, folder: Path, passed: Sequence[str] = (), cluster: Topology | None = None) -> None:
        """Store the arguments; start no process.

        Args:
            folder: The folder in which the runs' folders are created.
            passed: Names of environment variables that jobs' commands inherit besides the default ones
                (`RunOrder.inherited`).
            cluster: The cluster, with the addresses of its servers; None: all servers are on this machine.
        """
        self._folder = folder
        self._passed = passed
        self._cluster = cluster

    def status(self, number: int) -> RunStatus | None:
        """Return the status of a run; None: it was never started."""
        folder = self._of(number)
        if found := files.read(folder / "status.json"):
            other = other_protocol(found)
            return RunStatus(failure=f"its runner: {other}") if other else files.record_of(RunStatus, found)
        return RunStatus() if (folder / "run.json").exists() else None

    def other_version(self, number: int) -> str:
        """Return why the status of a run cannot be read: a service of another version started the run."""
        return other_protocol(files.read(self._of(number) / "run.json") or {"protocol": PROTOCOL})

    def grant(self, number: int, in_flight: Mapping[str, int]) -> None:
        """Set the maximum number of packets in flight of each job of a run; 0: no limit.

        The keys of `in_flight` are names of jobs. Raises OSError.
        """
        with contextlib.suppress(FileNotFoundError):  # it is over, and forgotten
            files.write(self._of(number) / GRANTED, dict(in_flight))

    def forget(self, number: int) -> None:
        """Remove the files of a run that is over; keep the files with its ranks' output."""
        shutil.rmtree(self._of(number), ignore_errors=True)

    def known(self) -> list[int]:
        """Return the numbers of all runs that have been started and not yet forgotten."""
        return [int(path.name) for path in self._folder.iterdir()] if self._folder.exists() else []

    def why_ended(self, number: int) -> str:
        """Return why a runner has ended without reporting the end of its run: the last line of its log."""
        with contextlib.suppress(OSError):
            lines = (self._of(number) / "runner.log").read_text(errors="replace").split("\n")
            if written := [line for line in lines if line.strip()]:
                return written[-1]
        return "it was killed"

    def change_cluster(self, cluster: Topology) -> None:
        """Start later runs on the servers of `cluster`; runs that have started are not affected."""
        self._cluster = cluster

    def _of(self, number: int) -> Path:
        return self._folder / str(number)

    def _written(self, order: RunOrder) -> Path:
        """Write the order of a run to the run's folder; return the folder.

        Raises OSError, and BadSpec for an order that the engine cannot run.
        """
        order = replace(order, engine=self.engine, inherited=(*order.inherited, *self._passed))
        _check(order)
        if self._cluster is not None:
            from controller.vocabulary.files import topology_document

            order = replace(order, cluster=topology_document(self._cluster))
        folder = self._of(order.number)
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        files.write(folder / "run.json", order)
        fault_point("ordered")
        return folder


class LocalRuns(RunFolders):
    """An executor whose runners are processes of this machine."""

    def __init__(self, folder: Path, passed: Sequence[str] = (), cluster: Topology | None = None) -> None:
        super().__init__(folder, passed, cluster)
        self._children: dict[int, subprocess.Popen[bytes]] = {}

    def start(self, order: RunOrder) -> None:
        """Start a run, unless it runs already. Raises OSError, and BadSpec if the engine cannot run it."""
        folder = self._written(order)
        with (folder / "runner.log").open("ab") as log:
            self._children[order.number] = subprocess.Popen(
                command_line.module("ina.run.launch.run_process", str(folder)),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def stop(self, number: int) -> None:
        """End a run and all of its processes. Raises RunnerGone if they do not end."""
        for signal_, patience_s in ((signal.SIGTERM, STOP_S), (signal.SIGKILL, GRACE_S)):
            until = time.monotonic() + patience_s
            signalled = False
            while self.lives(number):
                process = files.process_of(self._of(number)) or self._child(number)
                if process is not None and not signalled:
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(process, signal_)
                    signalled = files.process_of(self._of(number)) is not None
                if time.monotonic() > until:
                    break
                time.sleep(0.02)
            else:
                return
        raise RunnerGone(f"the workers of run {number} do not end")

    def lives(self, number: int) -> bool:
        """Return whether the runner of a run, the process that starts its workers, is alive."""
        return self._child(number) is not None or files.process_of(self._of(number)) is not None

    def forget(self, number: int) -> None:
        """Remove the files of a run that is over; keep the files with its ranks' output."""
        self._children.pop(number, None)
        super().forget(number)

    def _child(self, number: int) -> int | None:
        child = self._children.get(number)
        return child.pid if child is not None and child.poll() is None else None


class SshRuns(LocalRuns):
    """An executor that starts workers on the machines of a cluster, by ssh or, on this machine, directly."""

    engine = "ssh"
    _cluster: Topology

    def __init__(self, folder: Path, cluster: Topology, launch_with: str, passed: Sequence[str] = ()) -> None:
        """Store the arguments; start no process.

        Args:
            folder: The folder in which the runs' folders are created.
            cluster: The cluster, with the addresses of its servers.
            launch_with: Template of the command that starts a command on a machine
                (`agents.launch_command`).
            passed: Names of further environment variables that jobs' commands inherit.
        """
        super().__init__(folder, passed, cluster)
        self._launch_with = launch_with

    def start(self, order: RunOrder) -> None:
        """Start a run, unless it runs already.

        Raises OSError, and BadSpec for a group of jobs or a driver of Ray.
        """
        from ina.run.launch.machine_hosts import this_machine  # imports the start of agents

        here = this_machine(self._cluster) or ""
        super().start(replace(order, launch_with=self._launch_with, here=here))
