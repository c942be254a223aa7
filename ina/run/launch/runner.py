"""The runner, the process of one run: starts the jobs' workers, keeps their output, and reports their ends.

The daemon starts the runner. With Slurm, Slurm starts it on a server of the run. The runner does not end with
the daemon: a later daemon finds the runner by the run's folder, which has these files:

``run.json``     the order (`RunOrder`); the file's mode is 0600: jobs' environments may have secrets
``alive``        the ID of the runner's process; the file is locked as long as the runner lives
``status.json``  the status (`RunStatus`), rewritten after each change
``granted.json`` the maximum number of each job's packets in flight, if the daemon has changed it

The version in ``run.json`` is that of the folder. A runner refuses an order of another version; a daemon ends
the runs of another version that it finds, and starts their jobs again (`Executor.other_version`).

SIGTERM ends the workers and the runner. The runner does not control switches: the daemon has admitted the
jobs before it starts the runner.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from controller.vocabulary import Topology, parse_topology
from hostlib.launch import keeper
from hostlib.version import other_protocol
from ina.errors import BadRun
from ina.run.launch import files
from ina.run.launch.agents import Agents
from ina.run.launch.files import plain, record_of
from ina.run.launch.group_run import GroupRun
from ina.run.launch.hosts import Hosts, UdpHosts
from ina.run.launch.job_run import JobRun
from ina.run.launch.machine_hosts import MachineHosts, StartAgents, identified, reached_at, switch_address
from ina.run.launch.orders import GRANTED, RunOrder, RunStatus
from ina.run.launch.spec import LaunchSpec

RUN = "INA_RUN"
"""Name of the environment variable of workers and their child processes that has the folder of their run."""
PERIOD_S = 0.5
"""Interval, in s, at which the progress of jobs is written to ``status.json``."""
LOG_BYTES = 16 << 20
"""Size, in bytes, of the file with a rank's output at which the earlier half of the file is removed."""
SLURM_STEP = (
    "srun --nodes=1 --ntasks=1 --nodelist={host} --distribution=block --overlap --cpu-bind=none --mpi=none"
    " {command}"
)
"""Template of the command that starts a command on a server, inside the allocation of a Slurm job."""


class _Logs:
    """Writes the output of ranks to one file per rank, of bounded size."""

    def __init__(self, folders: Mapping[str, str]) -> None:
        self._folders = {name: Path(folder) for name, folder in folders.items()}
        self._lock = threading.Lock()

    def write(self, spec: LaunchSpec, rank: int, data: bytes, is_error: bool) -> None:
        """Append output of a rank to the rank's file; output is lost while the disk is full."""
        path = log_file(self._folders[spec.name], rank)
        with self._lock, contextlib.suppress(OSError):
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            if path.exists() and path.stat().st_size + len(data) > LOG_BYTES:
                kept = path.read_bytes()[-LOG_BYTES // 2 :]
                path.write_bytes(b"... earlier lines are gone ...\n" + kept.partition(b"\n")[2])
            with path.open("ab") as file:
                file.write(data)


def log_file(folder: Path, rank: int) -> Path:
    """Return the path of the file with a rank's output, in the folder `folder` of its job's output."""
    return folder / f"rank-{rank}.log"


def order_of(found: object) -> RunOrder:
    """Return the order that a JSON document holds.

    Raises BadRun for an order of another version, and ValueError if the document is no order.
    """
    if isinstance(found, dict) and (other := other_protocol(found)):
        raise BadRun(f"the order of the run: {other}")
    return record_of(RunOrder, found)


def topology_of(order: RunOrder) -> Topology:
    """Return the cluster of an order. The order's engine must not be local."""
    return parse_topology(json.dumps(order.cluster), source="order.json")


def given(order: RunOrder, spec: LaunchSpec, hosts: Hosts) -> JobRun:
    """Return the `JobRun` of the job `spec`, with the job's admission that `order` contains."""
    return JobRun(spec, hosts=hosts, tree=order.admissions[spec.name], offers=order.offers, paced=order.paced)


def given_job(
    text: str, machines: Sequence[Sequence[int]], known_as: Sequence[Sequence[str]]
) -> tuple[JobRun, str]:
    """Return a placed job whose ranks another launcher has started, and the address of rank 0's machine.

    Args:
        text: The `RunOrder` of the job's run, as JSON.
        machines: The ranks of each machine.
        known_as: Names and addresses of each machine.

    Raises BadRun if the text is no order of this version, or if the ranks are not on the servers where the
    job was placed.
    """
    try:
        order = order_of(json.loads(text))
        (job,) = order.jobs
    except ValueError as error:
        raise BadRun(f"INA_GIVEN does not hold the order of a controller: {error}") from error
    topology = topology_of(order)
    names = [identified(topology, each) for each in known_as]
    if sorted(names) != sorted(job.places):
        raise BadRun(
            f"the ranks are on {', '.join(names)}, but the controller has placed the job on "
            f"{', '.join(job.places)}: want at least one rank on each of them"
        )
    ranks = dict(zip(names, machines, strict=True))
    spec = replace(
        job,
        job=replace(job.job, workers=sum(map(len, machines))),
        machines=tuple(tuple(ranks[server]) for server in job.places),
        # Ranks are not in the order of servers: each server counts as one worker, whichever ranks it has.
        hierarchical=True,
    )
    first = next(name for name in names if 0 in ranks[name])
    return given(order, spec, UdpHosts(switch_address(topology))), reached_at(topology, first)


class RunProcess:
    """Runs the jobs of a `RunOrder` until all have ended, or SIGTERM arrives.

    Writes the jobs' status to the run's folder.
    """

    def __init__(self, folder: Path, order: RunOrder) -> None:
        self._folder = folder
        self._order = order
        self._hosts: Hosts | None = None
        self._group: GroupRun | None = None
        self._engine = ""
        self._written = RunStatus()
        self._lock = threading.Lock()
        self._over = threading.Event()
        self._stopping = threading.Event()

    def run(self) -> None:
        """Run the jobs until all have ended; SIGTERM ends them early. Write the status after each change."""
        order, end = self._order, dict[str, Any](over=True)
        try:
            logs = _Logs({job.name: job.logs for job in order.jobs})
            if any(job.driver for job in order.jobs):
                end |= self._drive(logs)
                return
            self._hosts = hosts = self._hosts_of()
            self._group = group = GroupRun(
                [
                    given(
                        order,
                        replace(
                            job,
                            places=() if order.engine == "local" else job.places,
                            inherited=order.inherited,
                            variables={RUN: str(self._folder)},
                        ),
                        hosts,
                    )
                    for job in order.jobs
                ],
                [job.offset for job in order.jobs],
                on_output=logs.write,
                on_end=self._write,
            )
            group.grant({job.name: job.in_flight for job in order.jobs})
            signal.signal(signal.SIGTERM, lambda *_: self._stop(group))
            watcher = threading.Thread(target=self._watch, args=(group,))
            watcher.start()
            try:
                group.run()
            finally:
                self._over.set()
                watcher.join()
            if group.error is not None:
                raise group.error
        except Exception as error:
            end["failure"] = f"{type(error).__name__}: {error}"
            raise
        finally:
            # An end without a report counts as a kill: finished jobs would run again.
            while not self._write(**end) and not self._stopping.wait(PERIOD_S):
                pass

    def _drive(self, logs: _Logs) -> dict[str, Any]:
        """Run the driver of a job; return the job's end, as fields of the status: {} after SIGTERM."""
        from ina.run.launch import ray_agents

        (job,) = self._order.jobs
        signal.signal(signal.SIGTERM, lambda *_: self._stopping.set())
        end = ray_agents.drive(
            job.job.command or (),
            job.ranks,
            topology_of(self._order),
            self._order.inherited,
            given=json.dumps(plain(self._order)),
            on_output=partial(logs.write, job),
            stopping=self._stopping,
            on_placed=self._placed,
        )
        return {} if end is None else {"ends": {job.name: end}, "ended_at": {job.name: time.time()}}

    def _stop(self, group: GroupRun) -> None:
        self._stopping.set()
        group.cancel()

    def _hosts_of(self) -> Hosts:
        """Return the hosts on which the run's engine starts workers."""
        order = self._order
        if order.engine == "local":
            from bmv2_topos.testbeds import netns  # imports all that starts and asks switches
            from ina.run.launch.testbed_hosts import TestbedHosts

            return TestbedHosts(netns.find(order.testbed))
        (job,) = order.jobs
        if order.engine == "slurm":
            start: StartAgents = partial(Agents.launched, template=SLURM_STEP)
        elif order.engine == "ssh":
            start = partial(Agents.launched, template=order.launch_with, here=order.here)
        else:
            from ina.run.launch import ray_agents

            ray_agents.connect()  # before our handler of signals, for Ray sets its own
            start = partial(
                ray_agents.agents,
                name=f"ina {job.name}",
                ranks=job.ranks,
                stopping=self._stopping,
                on_placed=self._placed,
            )
        return MachineHosts(topology_of(order), job.places, start)

    def _placed(self, engine: str) -> None:
        self._engine = engine
        self._write()

    def _watch(self, group: GroupRun) -> None:
        while True:
            last = self._over.wait(PERIOD_S)
            if group.status.done != self._written.done:
                self._write()
            group.grant(files.read(self._folder / GRANTED) or {})
            if last:
                return

    def _write(self, **changes: Any) -> bool:
        """Write the run's status, with `changes` of its fields, to its folder.

        Return False if that failed, for example on a full disk.
        """
        with self._lock, contextlib.suppress(OSError):
            status = self._group.status if self._group else RunStatus()
            lost = dict(self._hosts.lost) if self._hosts else {}  # after the ends: these may be the reason
            status = replace(status, lost=lost, engine=self._engine, **changes)
            files.write(self._folder / "status.json", status)
            self._written = status
            return True
        return False


def left_behind(runs: Path) -> dict[int, int]:
    """Return the IDs of all processes on this machine that are workers, or were started by workers.

    Each process ID maps to the number of the run of that process. Only runs with folders in `runs` count.
    Processes whose environment cannot be read are missing.
    """
    found = {}
    wanted = f"{RUN}={runs}/".encode()
    for environment in Path("/proc").glob("[0-9]*/environ"):
        with contextlib.suppress(OSError, ValueError):
            for each in environment.read_bytes().split(b"\0"):
                if each.startswith(wanted):
                    found[int(environment.parent.name)] = int(each.removeprefix(wanted))
    return found


def main(arguments: Sequence[str]) -> int:
    """Run the jobs of the `RunOrder` in a run's folder; return the exit code 0.

    Do nothing if another process runs the jobs, or has run them. `arguments` has one item, the folder's path.
    Raises BadRun for an order of another version.
    """
    folder = Path(arguments[0])
    with files.alive(folder) as first:
        status: RunStatus | None = files.read(folder / "status.json", RunStatus)
        if not first or (status is not None and status.over):
            return 0
        os.chdir("/")
        keeper.adopt()
        try:
            RunProcess(folder, order_of(files.read(folder / "run.json"))).run()
        finally:
            if left := keeper.end_adopted():
                print(f"its workers left {left} processes running in sessions of their own, now ended")
    return 0
