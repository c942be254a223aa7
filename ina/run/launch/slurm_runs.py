"""An executor that submits each run to Slurm as a Slurm job.

The batch script of the Slurm job is the runner, which starts the workers by ``srun``. The folder of a run
must be on a file system that this machine and all nodes share, and the names of Slurm's nodes must be the
names of the cluster's servers. Slurm jobs continue if the daemon ends; a new daemon finds them by their
comments.
"""

from __future__ import annotations

import logging
import math
import shlex
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from operator import attrgetter
from pathlib import Path

from controller.vocabulary import Topology
from hostlib.launch import command_line
from ina.errors import EngineError, RunnerGone
from ina.run.launch import files, slurm
from ina.run.launch.executor import STOP_S, RunFolders
from ina.run.launch.orders import RunOrder, RunStatus

LOOK_S = 2.0
"""Interval, in s, at which Slurm's jobs and nodes are read."""
FINISH_S = 10.0
"""Maximum time, in s, from a runner's report that all jobs have ended to the end of the runner. After this
time, the runner's Slurm job is cancelled."""
HOLD_S = 30.0
"""Maximum time, in s, for which `status` does not report a run's failure while the run's Slurm job is not
over. If Slurm ends the Slurm job within this time, that is the cause of the failure."""
SUSPECT_S = 600.0
"""Time, in s, from the moment at which a run has lost a server. During this time, the server counts as
unusable while it does not respond to Slurm. After it, Slurm's state of the node alone decides."""
HOSTS = "hosts"
"""Name of the file in a run's folder that has the name of each rank's server, one a line."""
CANCELLED = "cancelled.json"
"""Name of the file in a run's folder with the numbers of the Slurm jobs that this service has cancelled."""
LOST = ("NODE_FAIL", "BOOT_FAIL", "PREEMPTED")
"""Final states of Slurm jobs whose runs must be restarted."""
BY_HAND = ("CANCELLED", "TIMEOUT", "DEADLINE", "OUT_OF_MEMORY")
"""Final states of Slurm jobs that a user of Slurm or a limit has ended. Their runs are not restarted, unless
this service has cancelled the Slurm job."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class _View:
    """The state of Slurm, read at the time `at_s` of the monotonic clock.

    `jobs` has the Slurm jobs of each run by the run's number, oldest first; `nodes` has all nodes by name.
    """

    at_s: float = -math.inf
    jobs: Mapping[int, tuple[slurm.SlurmJob, ...]] = field(default_factory=dict)
    nodes: Mapping[str, slurm.SlurmNode] = field(default_factory=dict)


class SlurmRuns(RunFolders):
    """An executor that starts workers on the nodes of Slurm. Any thread may call its methods."""

    engine = "slurm"
    _cluster: Topology

    def __init__(
        self,
        folder: Path,
        service: str,
        cluster: Topology,
        licence: str = "",
        passed: Sequence[str] = (),
    ) -> None:
        """Find the Slurm jobs of the service's runs, and start a thread that watches Slurm.

        Args:
            folder: The folder in which the runs' folders are created.
            service: A unique name of the service, which the comments of its Slurm jobs contain.
            cluster: The cluster, with the addresses of its servers.
            licence: Name of the Slurm licence that stands for slots; a job requests one licence for each of
                its exclusive slots. "": jobs request no licences.
            passed: Names of further environment variables that jobs' commands inherit.

        Raises EngineError: Slurm does not answer, or has no such licence.
        """
        super().__init__(folder, passed, cluster)
        self._comment = f"ina:{service}:"
        self._licence = licence
        self._lock = threading.Lock()
        self._view = _View()
        self._submitted: dict[int, tuple[float, slurm.SlurmJob]] = {}
        """By run, the time and the Slurm job of its latest submission, until `_view` has that job."""
        self._failed_s: dict[int, float] = {}
        """By run, the time, on the monotonic clock, at which its failure was first seen."""
        self._suspects: dict[str, float] = {}
        """By name of each server that a run has lost, the time of the loss, on the monotonic clock."""
        self._trouble = ""
        self._closing = threading.Event()
        if licence and not slurm.has_licence(licence):
            raise EngineError(
                f"Slurm has no licence {licence!r}: want Licenses={licence}:SLOTS in slurm.conf, with the "
                "slots of all switches together"
            )
        self._look()
        self._watcher = threading.Thread(target=self._watch, name="slurm", daemon=True)
        self._watcher.start()

    def start(self, order: RunOrder) -> None:
        """Submit a run to Slurm, unless it has a Slurm job that is not over.

        Raises OSError and EngineError, and BadSpec for a group of jobs or a driver of Ray.
        """
        self._look()
        if self._live(order.number):
            return
        folder = self._written(order)
        (job,) = order.jobs
        hosts = folder / HOSTS
        hosts.write_text("".join(f"{server}\n" * ranks for server, ranks in job.ranks.items()))
        comment = f"{self._comment}{order.number}"
        licences = f"{self._licence}:{job.granted}" if self._licence and job.granted else ""
        batch = slurm.Batch(job.name, comment, job.ranks, str(folder / "runner.log"), licences)
        runner = shlex.join(command_line.module("ina.run.launch.run_process", str(folder)))
        number = slurm.submit(batch, f"#!/bin/sh\nexec {runner}\n", str(hosts))
        with self._lock:
            self._submitted[order.number] = time.monotonic(), slurm.SlurmJob(number, comment, "PENDING")

    def stop(self, number: int) -> None:
        """End a run and all of its processes. Raises RunnerGone if they do not end, and EngineError."""
        status = super().status(number)
        finishing = status is not None and status.over
        began = time.monotonic()
        cancelled = False
        while True:
            self._look()
            live = self._live(number)
            if not live:
                return
            waited_s = time.monotonic() - began
            if not cancelled and not (finishing and waited_s < FINISH_S):
                numbers = [job.number for job in live]
                self._note_cancelled(number, numbers)
                slurm.cancel(numbers)
                cancelled = True
            elif (
                all(job.state == "COMPLETING" for job in live) and self._is_lost(number) and waited_s > STOP_S
            ):
                return  # its remaining processes are on nodes that are gone
            if waited_s > FINISH_S + 2 * STOP_S:
                raise RunnerGone(f"{self.shown(number)[0]}: the Slurm job does not end")
            time.sleep(LOOK_S / 4)

    def status(self, number: int) -> RunStatus | None:
        """Return the status of a run; None: it was never started.

        A failure is reported only after the run's Slurm job is over, or after `HOLD_S`: if a user of Slurm is
        ending the Slurm job, then that is the cause of the failure.
        """
        found = super().status(number)
        if found is None:
            return None
        self._suspects |= dict.fromkeys(found.lost, time.monotonic())
        failed = bool(found.failure) or any(found.ends.values())
        job = self._latest(number)
        if job is None or (found.ends and not failed):
            return found
        if not job.live and job.state in BY_HAND and job.number not in self._cancelled(number):
            return _ended_by_hand(found, job)
        since_s = self._failed_s.setdefault(number, time.monotonic()) if failed else -math.inf
        if job.state in LOST or (job.live and time.monotonic() - since_s < HOLD_S):
            completed = {name: "" for name, why in found.ends.items() if not why}
            return replace(found, ends=completed, failure="", over=False)
        return found

    def lives(self, number: int) -> bool:
        """Return True until all Slurm jobs of a run are over; False if the run has no Slurm job."""
        return bool(self._live(number))

    def forget(self, number: int) -> None:
        """Remove the files of a run that is over; keep the files with its ranks' output."""
        self._failed_s.pop(number, None)
        with self._lock:
            self._submitted.pop(number, None)
        super().forget(number)

    def why_ended(self, number: int) -> str:
        """Return the state of a run's Slurm job, and the last line of the runner's log, as text."""
        job = self._latest(number)
        reason = super().why_ended(number)
        return f"Slurm no longer has its job; {reason}" if job is None else f"{_named(job)}; {reason}"

    def shown(self, number: int) -> tuple[str, bool]:
        """Return the number and state of a run's Slurm job, as text, and whether Slurm has started it."""
        job = self._latest(number)
        if job is None:
            return "Slurm has no job for this run", True
        text = f"{_named(job)}; {self._trouble}" if self._trouble else _named(job)
        return text, job.state != "PENDING"

    def gone(self) -> Mapping[str, str]:
        """Return the names of the servers that Slurm cannot use, each with the reason."""
        nodes, found = self._view.nodes, {}
        for server in self._cluster.servers_for("worker"):
            node = nodes.get(server)
            if node is None:
                found[server] = f"Slurm has no node {server}"
            elif node.trouble:
                found[server] = node.trouble
            elif not node.answers and time.monotonic() - self._suspects.get(server, -math.inf) < SUSPECT_S:
                found[server] = f"Slurm: node {server} does not answer"
        return found

    def close(self) -> None:
        """Stop watching Slurm."""
        self._closing.set()
        self._watcher.join()

    # ------------------------------------------------------------------ jobs ended by this service

    def _note_cancelled(self, run: int, numbers: Sequence[int]) -> None:
        """Record that this service cancels Slurm jobs of a run, which `status` must not report as a failure.

        `numbers` has the numbers of these Slurm jobs.
        """
        folder = self._of(run)
        if folder.exists():  # otherwise no one reads the status of that run any more
            files.write(folder / CANCELLED, {"jobs": sorted({*self._cancelled(run), *numbers})})

    def _cancelled(self, run: int) -> Sequence[int]:
        return tuple((files.read(self._of(run) / CANCELLED) or {"jobs": ()})["jobs"])

    # ------------------------------------------------------------------ Slurm's view

    def _watch(self) -> None:
        while not self._closing.wait(LOOK_S):
            try:
                self._look()
            except EngineError as error:
                if not self._trouble:
                    _log.warning("%s; jobs run on meanwhile", error)
                self._trouble = str(error)
            else:
                self._trouble = ""

    def _look(self) -> None:
        began_s = time.monotonic()
        found: dict[int, list[slurm.SlurmJob]] = {}
        for job in slurm.jobs(self._comment):
            found.setdefault(int(job.comment.removeprefix(self._comment)), []).append(job)
        nodes = slurm.nodes()
        with self._lock:
            for number, (at_s, job) in list(self._submitted.items()):
                if at_s >= began_s:
                    found.setdefault(number, []).append(job)
                else:
                    del self._submitted[number]
            if began_s > self._view.at_s:  # several threads read it
                by_age = {
                    number: tuple(sorted(jobs, key=attrgetter("number"))) for number, jobs in found.items()
                }
                self._view = _View(began_s, by_age, nodes)

    def _jobs(self, number: int) -> tuple[slurm.SlurmJob, ...]:
        with self._lock:
            known = self._view.jobs.get(number, ())
            _, job = self._submitted.get(number, (0.0, None))
        return known if job is None or job.number in (each.number for each in known) else (*known, job)

    def _latest(self, number: int) -> slurm.SlurmJob | None:
        return next(reversed(self._jobs(number)), None)

    def _live(self, number: int) -> list[slurm.SlurmJob]:
        return [job for job in self._jobs(number) if job.live]

    def _is_lost(self, number: int) -> bool:
        """Return True if a server of a run does not respond to Slurm, or if no job may run on the server."""
        hosts = self._of(number) / HOSTS
        servers = hosts.read_text().split() if hosts.exists() else ()
        return any(
            node is None or node.trouble or not node.answers for node in map(self._view.nodes.get, servers)
        )


def _named(job: slurm.SlurmJob) -> str:
    return f"Slurm job {job.number}, {job.state.lower()}" + (f" ({job.reason})" if job.reason else "")


def _ended_by_hand(found: RunStatus, job: slurm.SlurmJob) -> RunStatus:
    """Return `found`, the status of a run, changed to a final failure.

    The failure says that Slurm, or a user of Slurm, has ended the run's Slurm job `job`.
    """
    why = f"{_named(job)}: ended by Slurm or by a user of Slurm"
    ends = {name: failure and why for name, failure in found.ends.items()}
    return replace(found, ends=ends, lost={}, over=True, final=True, failure=why)
