"""The order of a run, from the daemon to the runner, and the run's status, which the runner reports."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from controller.switches.layout import TreeAdmission
from controller.vocabulary import Mode
from hostlib.launch.launcher import ACCOUNT, SETTINGS
from ina.launch.spec import LaunchSpec

GRANTED = "granted.json"
"""The file with the limit of packets in flight of each job of a run."""

Engine = Literal["local", "ssh", "slurm", "ray"]


@dataclass(frozen=True, slots=True)
class JobOrder:
    """A job of a run.

    Attributes:
        spec: The job, and how its ranks run; `spec.machines` has the ranks of each of its servers.
        admission: Its entries on the switches.
        offset: The stage at which it starts a round, in a group.
        logs: The folder for its ranks' output.
        servers: Names of its servers, in the order of the machines.
        granted: Number of its own slots, over all switches.
        in_flight: Limit of packets in flight; 0: only its window limits them.
        driver: Whether its command runs once, as a driver of Ray, and Ray Train starts the workers.
    """

    spec: LaunchSpec
    admission: TreeAdmission
    offset: int
    logs: str
    servers: tuple[str, ...] = ()
    granted: int = 0
    in_flight: int = 0
    driver: bool = False

    @property
    def name(self) -> str:
        """The job's name."""
        return self.spec.job.name

    @property
    def ranks(self) -> dict[str, int]:
        """The number of ranks on each server."""
        return {server: len(ranks) for server, ranks in zip(self.servers, self.spec.machines, strict=True)}


@dataclass(frozen=True, slots=True)
class RunOrder:
    """The order for a runner: jobs that start and stop together.

    Attributes:
        number: The run's number.
        testbed: The testbed whose hosts are the servers.
        switch: Whether workers need a switch; not if all are on one server.
        lanes: Number of values in a packet.
        salted: Whether packets have a salt (`SwitchInfo`).
        jobs: The jobs.
        mode: How the jobs use the memory of switches.
        paced: Whether time-outs must follow the pace of results: switches or links are slow.
        engine: The engine that starts processes on the servers.
        cluster: Except with engine local: the cluster (`topology_document`), with the addresses of servers.
        launch_with: With ssh: the command that starts a command on a machine (`agents.launch_command`).
        here: With ssh: the server that is this machine; "": none.
        inherited: Patterns of the environment variables that commands inherit (`Workers`).
    """

    number: int
    testbed: str
    switch: bool
    lanes: int
    salted: bool
    jobs: tuple[JobOrder, ...]
    mode: Mode = "shared"
    paced: bool = False
    engine: Engine = "local"
    cluster: Mapping[str, Any] | None = None
    launch_with: str = ""
    here: str = ""
    inherited: tuple[str, ...] = (*ACCOUNT, *SETTINGS)


@dataclass(slots=True)
class RunStatus:
    """Status of a run.

    Attributes:
        done: Iterations of each job in this run, if its program reports them (`hostlib.interleave`).
        iteration_s: Median time of an iteration of each job.
        compute_s: The part of that time outside the network stage, at the slowest rank.
        hold_s: Time for which a packet of each job occupies its place in the window, and its slot.
        ends: The error of each ended job; "": none.
        ended_at: The Unix time at which each of these jobs ended.
        blame: The job that broke its group; None: none.
        broke: The error that broke the group, with job and rank; "": none.
        lost: Servers that were lost with their workers, with reasons.
        engine: Name and state of the run in Ray; "": not yet known, or another engine.
        over: Whether all jobs have ended, or the run failed as a whole.
        failure: Why the run failed as a whole; "": it did not.
        final: Whether the failure is final: the workers must not be started again.
    """

    done: dict[str, int] = field(default_factory=dict)
    iteration_s: dict[str, float] = field(default_factory=dict)
    compute_s: dict[str, float] = field(default_factory=dict)
    hold_s: dict[str, float] = field(default_factory=dict)
    ends: dict[str, str] = field(default_factory=dict)
    ended_at: dict[str, float] = field(default_factory=dict)
    blame: str | None = None
    broke: str = ""
    lost: Mapping[str, str] = field(default_factory=dict)
    engine: str = ""
    over: bool = False
    failure: str = ""
    final: bool = False
