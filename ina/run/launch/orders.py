"""`RunOrder`, which tells a runner what to start, and `RunStatus`, which the runner reports to the daemon.

A runner is the process that starts the workers of a run (`ina.run.launch.runner`). Orders and statuses have a
version, because a daemon that was upgraded meets runners of the version before.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from controller.switches.layout import TreeAdmission
from controller.switches.model import SwitchInfo
from hostlib.launch.launcher import ACCOUNT, SETTINGS
from hostlib.version import PROTOCOL
from ina.run.launch.spec import LaunchSpec

GRANTED = "granted.json"
"""Name of the file in a run's folder that has the maximum number of packets in flight of each job."""
ON_NO_SWITCH = 0
"""The job number in the admissions of jobs that need no switch, because their workers are on one server."""

Engine = Literal["local", "ssh", "slurm", "ray"]


@dataclass(frozen=True, slots=True)
class RunOrder:
    """What a runner must do: the jobs of one run, which start and stop together, and how to start them.

    Attributes:
        number: The run's number.
        testbed: Name of the testbed whose hosts are the servers; "": they are not hosts of a testbed.
        offers: Features and sizes that the program of the switches offers to jobs.
        jobs: The jobs.
        admissions: By job, the job's entries on the switches.
        paced: Whether the workers' time-outs must follow the pace of results, because switches or links are
            slow.
        engine: The engine that starts processes on the servers.
        cluster: The cluster, with the addresses of servers, in the form of `topology_document`; None with the
            engine local.
        launch_with: Only with ssh: template of the command that starts a command on a machine
            (`agents.launch_command`).
        here: Only with ssh: name of the server that is this machine; "": none.
        inherited: Patterns of the environment variables that commands inherit (see `Workers`).
        protocol: Version of the order, and of all files in the run's folder.
    """

    number: int
    testbed: str
    offers: SwitchInfo
    jobs: tuple[LaunchSpec, ...]
    admissions: Mapping[str, TreeAdmission]
    paced: bool = False
    engine: Engine = "local"
    cluster: Mapping[str, Any] | None = None
    launch_with: str = ""
    here: str = ""
    inherited: tuple[str, ...] = (*ACCOUNT, *SETTINGS)
    protocol: int = PROTOCOL


@dataclass(frozen=True, slots=True)
class RunStatus:
    """Status of a run at one time.

    Attributes:
        done: Number of iterations of each job in this run. A job is missing unless its program reports
            iterations (`hostlib.interleave`).
        iteration_s: Median time of an iteration of each job, in s.
        compute_s: Median time, in s, of an iteration of each job without the network stage, at the slowest
            rank.
        hold_s: Time, in s, for which a packet of each job occupies a slot, at the slowest rank.
        ends: The error of each ended job; "": it ended without an error.
        ended_at: The Unix time at which each ended job ended.
        blame: Name of the job because of which the group cannot take turns any more; None: none.
        broke: Why the jobs cannot take turns any more, with job and rank; "": they can.
        lost: By name of each server that was lost with its workers, the reason of the loss.
        engine: With Ray: name and state of the run in Ray; "": not yet known.
        over: Whether all jobs have ended, or the run failed as a whole.
        failure: Why the run failed as a whole; "": it did not.
        final: Whether the failure is final: the workers must not be started again.
        protocol: Version of the status.
    """

    done: Mapping[str, int] = field(default_factory=dict)
    iteration_s: Mapping[str, float] = field(default_factory=dict)
    compute_s: Mapping[str, float] = field(default_factory=dict)
    hold_s: Mapping[str, float] = field(default_factory=dict)
    ends: Mapping[str, str] = field(default_factory=dict)
    ended_at: Mapping[str, float] = field(default_factory=dict)
    blame: str | None = None
    broke: str = ""
    lost: Mapping[str, str] = field(default_factory=dict)
    engine: str = ""
    over: bool = False
    failure: str = ""
    final: bool = False
    protocol: int = PROTOCOL
