"""Serves jobs on fallback servers; a server as a process, which is kept running."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from controller.switches.layout import TreeAdmission
from controller.vocabulary import Server, Topology
from ina.errors import RunError
from ina.faults import fault_point
from ina.run.launch.server_process import AnsweringProcess

_log = logging.getLogger(__name__)
RESTARTS = 5
CALM_S = 60.0
"""Time of service, in seconds, after which the number of restarts is reset: `RESTARTS` more are allowed."""
START_S = 30.0

TITLE = "the fallback server"


def description(tree: TreeAdmission) -> dict[str, Any]:
    """Describe an admitted job to a fallback server: the JSON form of `hostlib.fallback.FallbackJob`."""
    found: dict[str, Any] = {
        "job": tree.job,
        "epoch": tree.epoch,
        "tree": {str(node): children for node, children in tree.tree.items()},
        "window": tree.window,
    }
    if tree.beside is not None:
        found["beside"] = f"{tree.beside.ip}:{tree.beside.udp_port}"
    return found


class Fallback(Protocol):
    """A fallback server that serves jobs of this process.

    An interface, so that one class (`FallbackServers`) supervises both a process that this one starts, and a
    connection to a server that other processes share.

    If the server ends, or the connection is lost, the object starts the server again (or waits until others
    have), and then makes it serve its jobs again. The jobs continue: their workers resend the packets that
    the server had not summed.
    """

    @property
    def breaks(self) -> int:
        """Number of times that the server may have lost its jobs."""

    @property
    def over(self) -> bool:
        """Whether this object has stopped, and cannot be used any more."""

    def hold(self, jobs: Mapping[int, Mapping[str, Any]]) -> None:
        """Make the server serve exactly these jobs, each the result of `description`, by id.

        Raises ProcessFailed if the server does not answer.
        """

    def check(self) -> str | None:
        """Return why the server is lost; None while it serves, or is expected to serve again.

        Call it several times per second.
        """

    def stop(self) -> None:
        """Disconnect from the server."""

    def statistics(self, job: int) -> dict[str, float]:
        """Return the server's latest counters of a job, by name."""


Connect = Callable[[Topology | None, str, bool], Fallback]
"""Function (cluster, name, start) that connects to the fallback server on the machine with this name.

If `start` is true and no fallback server runs there, it starts one. Raises RunError if it cannot connect.
"""


class FallbackServers:
    """Serves jobs on fallback servers, and finds the servers that have ended.

    A server that has ended is started again at once by its `Fallback`, and gets its jobs again. The loss is
    final when a process has ended after `RESTARTS` restarts, or when a shared server has not answered for
    `ina.run.fallback.remote.PATIENCE_S`; `Fallback.check` returns the reason.

    Calls of `serve` must follow each other; other calls may be made at any time.
    """

    def __init__(self, connect: Connect) -> None:
        """Store `connect`; connections are made when they are needed."""
        self._connect = connect
        self._at: dict[str, tuple[Server | None, Fallback]] = {}
        """By machine name: the machine's entry in the cluster when it was connected; the server."""
        self._breaks: dict[str, int] = {}
        """By machine name, the breaks of the server that `check` has returned."""

    def serve(
        self,
        wanted: Mapping[str, Sequence[TreeAdmission]],
        cluster: Topology | None = None,
        *,
        resumed: bool = False,
    ) -> None:
        """Make each of these servers serve exactly these jobs, and wait until they serve the new ones.

        With `resumed`, an earlier process has given the jobs to the servers; `check` then finds the servers
        that have lost them since. Raises RunError if a server with jobs cannot be reached.
        """
        for server, admissions in wanted.items():
            jobs = {each.job: description(each) for each in admissions}
            machine = None if cluster is None else cluster.server.get(server)
            known, at = self._at.get(server, (None, None))
            if at is not None and known != machine:
                at.stop()
            if at is None or at.over:
                try:
                    at = self._connect(cluster, server, bool(jobs))
                except RunError as error:
                    if jobs:
                        raise
                    _log.info("%s", error)  # a server that is gone serves no jobs, as desired
                    continue
                self._breaks[server] = 0 if resumed else at.breaks
                self._at[server] = machine, at
            at.hold(jobs)
            fault_point("fallback told")

    def check(self) -> dict[str, str]:
        """Return the servers that have ended since the last call, each with why its loss is final.

        The reason is "" if the server serves its jobs again, or is expected to.
        """
        ended = {}
        for server, (_, at) in list(self._at.items()):
            why = at.check() or ""
            if why or at.breaks > self._breaks[server]:
                ended[server] = why
            self._breaks[server] = at.breaks
        return ended

    def statistics(self, server: str, job: int) -> dict[str, float]:
        """Return a server's latest counters of a job, by name; {} if no job has needed the server."""
        _, at = self._at.get(server, (None, None))
        return {} if at is None else at.statistics(job)

    def close(self) -> None:
        """Disconnect from all servers."""
        for _, at in self._at.values():
            at.stop()


class FallbackProcess:
    """A fallback server in a process of its own, for all jobs of a run.

    A process that dies or hangs is restarted: workers and switches can send all of its state again.
    """

    def __init__(
        self, arguments: Sequence[str], *, prefix: Sequence[str] = (), patience_s: float = 3.0
    ) -> None:
        """Start the process.

        Args:
            arguments: arguments of ``ina fallback``.
            prefix: a command that runs ``ina fallback``; see `ServerProcess`.
            patience_s: time without an answer, in seconds, after which the process is killed and restarted;
                shorter than the time for which workers wait.

        Raises:
            ProcessFailed: the process did not start, or is of another version.
        """
        self.breaks = 0
        self.over = False
        self._arguments = arguments
        self._prefix = prefix
        self._patience_s = patience_s
        self._jobs: dict[int, Mapping[str, Any]] = {}
        self._change = threading.Lock()
        self._restarts = 0
        self._final: str | None = None
        self._before: dict[int, dict[str, float]] = {}
        """Counters of earlier processes, by job."""
        self._child = self._start()
        try:
            self._child.ready()
        except BaseException:
            self._child.stop()
            raise

    def hold(self, jobs: Mapping[int, Mapping[str, Any]]) -> None:
        """Make the server serve exactly these jobs; see `Fallback.hold`.

        Does not wait for an answer: the process reads its commands within milliseconds.
        """
        with self._change:
            before, self._jobs = self._jobs, {**jobs}
            for job in [job for job, each in before.items() if jobs.get(job) != each]:
                self._before.pop(job, None)
                self._child.say({"remove": job})
            for each in [each for job, each in jobs.items() if before.get(job) != each]:
                self._child.say({"add": each})

    def check(self) -> str | None:
        """Restart the process if it died or hangs. Call it several times per second.

        Returns why the process is not restarted any more; None while it serves, or is restarted.
        """
        with self._change:
            if self._final is None and (why := self._child.ended()):
                self._revive(why)
            while (message := self._child.hear(0.0)) is not None:
                if why := message.get("error"):
                    _log.warning("%s refuses: %s", TITLE, why)
            self._final = self._final or self._child.refusal or None
            return self._final

    def stop(self) -> None:
        """Stop the process, and do not restart it."""
        with self._change:
            self.over = True
            self._final = self._final or f"{TITLE} was stopped"
        self._child.stop()

    def statistics(self, job: int) -> dict[str, float]:
        """Return the counters of a job, by name; see `counts`."""
        return self.counts([job])[job]

    def counts(self, jobs: Sequence[int]) -> dict[int, dict[str, float]]:
        """Return the counters of each job, by name, including the counts of earlier processes that died.

        Waits for an answer of the process (`AnsweringProcess`). Does not wait for a process that is starting,
        because it has counted nothing.
        """
        if (child := self._child).started:
            child.statistics()
        with self._change:
            return {job: self._of_job(job) for job in jobs}

    def _revive(self, why: str) -> None:
        if self._child.started and time.monotonic() - self._started_s > CALM_S:
            self._restarts = 0
        if self._restarts == RESTARTS:
            self._final = f"{why}, after {RESTARTS} restarts"
            return
        self._restarts += 1
        self.breaks += 1
        _log.warning("%s; restarting it (%d of %d)", why, self._restarts, RESTARTS)
        self._child.stop()
        for job in self._jobs:
            self._before[job] = self._of_job(job)
        self._child = self._start()
        for description in self._jobs.values():
            self._child.say({"add": description})

    def _start(self) -> AnsweringProcess:
        """Start a new process, with the same address as earlier ones; do not wait until it is ready."""
        self._started_s = time.monotonic()
        return AnsweringProcess(
            "fallback",
            TITLE,
            self._arguments,
            patience_s=self._patience_s,
            start_s=START_S,
            prefix=self._prefix,
        )

    def _of_job(self, job: int) -> dict[str, float]:
        before, now = self._before.get(job, {}), self._child.latest.get("jobs", {}).get(str(job), {})
        return {name: before.get(name, 0.0) + now.get(name, 0.0) for name in {**before, **now}}
