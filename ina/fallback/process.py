"""Starts the fallback server as a process, keeps it running, and reads its statistics."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from controller.switches.layout import TreeAdmission
from ina.errors import ProcessFailed
from ina.launch.server_process import ServerProcess

_log = logging.getLogger(__name__)
RESTARTS = 5
CALM_S = 60.0
"""Time of service, in seconds, after which the number of restarts is reset: `RESTARTS` more are allowed."""
ASK_S = 0.25
"""Interval, in seconds, of requests for statistics; the answers also show that the server's process lives."""

ANSWER_S = 10.0
"""Maximum time to wait for a job's counters, in seconds; the server's process may have to wait for a CPU."""
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
    """Interface to the fallback server of a run, which serves all jobs of the run."""

    @property
    def port(self) -> int:
        """The port of the root switch to which the server is connected."""

    def add(self, job: int, description: Mapping[str, Any]) -> None:
        """Make the server serve this job; `description` is the result of the function `description`."""

    def remove(self, job: int) -> None:
        """Make the server stop serving this job."""

    def check(self) -> str | None:
        """Return why the server has ended and is not restarted; None while it serves.

        Call it several times per second.
        """

    def stop(self) -> None:
        """Disconnect from the server."""

    def statistics(self, job: int) -> dict[str, float]:
        """Return the server's latest counters of a job, by name."""


class FallbackProcess:
    """A fallback server in a process of its own, for all jobs of a run.

    A process that dies or hangs is restarted: workers and switches can send all of its state again.
    """

    def __init__(
        self,
        port: int,
        arguments: Sequence[str],
        *,
        prefix: Sequence[str] = (),
        patience_s: float = 3.0,
    ) -> None:
        """Start the process.

        Args:
            port: the port of the root switch to which the server is connected.
            arguments: arguments of ``ina fallback``.
            prefix: a command that runs ``ina fallback``; see `ServerProcess`.
            patience_s: time without an answer, in seconds, after which the process is killed and restarted;
                shorter than the time for which workers wait.

        Raises:
            ProcessFailed: the process did not start, or is of another version.
        """
        self.port = port
        self._arguments = arguments
        self._prefix = prefix
        self._patience_s = patience_s
        self._jobs: dict[int, Mapping[str, Any]] = {}
        self._change = threading.Condition()
        self._restarts = 0
        self._final: str | None = None
        # Counters of earlier processes, by job, and the latest statistics of the present process.
        self._before: dict[int, dict[str, float]] = {}
        self._latest: dict[str, Any] = {}
        self._checked_at = self._silent_s = 0.0
        first = self._start()
        try:
            first.ready()
        except BaseException:
            first.stop()
            raise
        self._watch(first)

    def add(self, job: int, description: Mapping[str, Any]) -> None:
        """Make the server serve this job; see `Fallback.add`."""
        with self._change:
            self._jobs[job] = description
            self._child.say({"add": description})

    def remove(self, job: int) -> None:
        """Make the server stop serving this job."""
        with self._change:
            self._jobs.pop(job, None)
            self._before.pop(job, None)
            self._child.say({"remove": job})

    def check(self) -> str | None:
        """Restart the process if it died or hangs. Call it several times per second.

        Returns why the process is not restarted any more; None while it serves, or is restarted.
        """
        with self._change:
            if self._final is None:
                if why := self._child.ended():
                    self._revive(why)
                else:
                    self._check_answers()
            return self._final

    def stop(self) -> None:
        """Stop the process, and do not restart it."""
        with self._change:
            self._final = self._final or f"{TITLE} was stopped"
        self._child.stop()

    def statistics(self, job: int) -> dict[str, float]:
        """Return the counters of a job, by name; see `counts`."""
        return self.counts([job])[job]

    def counts(self, jobs: Sequence[int]) -> dict[int, dict[str, float]]:
        """Return the counters of each job, by name, including the counts of earlier processes that died.

        Waits for an answer of the process up to `ANSWER_S`. Does not wait for a process that is starting,
        because it has counted nothing.
        """
        with self._change:
            self._ask()
            child, wanted, deadline = self._child, self._requests, time.monotonic() + ANSWER_S
            while self._serves and self._replies < wanted and child is self._child and not child.ended():
                if not self._change.wait(ASK_S) and time.monotonic() > deadline:
                    break
            return {job: self._of_job(job) for job in jobs}

    def _check_answers(self) -> None:
        now = time.monotonic()
        # After a pause of our own process, only the last ASK_S count as silence: earlier answers could not
        # be received.
        self._silent_s += min(now - self._checked_at, ASK_S)
        self._checked_at = now
        if self._replies == self._requests:
            if now - self._asked_at > ASK_S:
                self._ask()
        elif self._silent_s > (self._patience_s if self._serves else START_S):
            self._child.kill()
            self._revive(f"{TITLE} did not answer for {self._patience_s if self._serves else START_S:g} s")

    def _revive(self, why: str) -> None:
        if self._serves and time.monotonic() - self._started_s > CALM_S:
            self._restarts = 0
        if self._restarts == RESTARTS:
            self._final = f"{why}, after {RESTARTS} restarts"
            return
        self._restarts += 1
        _log.warning("%s; restarting it (%d of %d)", why, self._restarts, RESTARTS)
        self._child.stop()
        for job in self._jobs:
            self._before[job] = self._of_job(job)
        self._latest = {}
        self._watch(self._start())
        for description in self._jobs.values():
            self._child.say({"add": description})

    def _start(self) -> ServerProcess:
        """Start a new process, with the same address as earlier ones."""
        return ServerProcess("fallback", TITLE, self._arguments, prefix=self._prefix)

    def _watch(self, child: ServerProcess) -> None:
        """Make `child`, which may still be starting, the current process; read its messages in a thread."""
        self._child = child
        self._serves = child.started
        self._started_s = self._asked_at = self._checked_at = time.monotonic()
        self._silent_s = 0.0
        self._requests = self._replies = 0
        threading.Thread(target=self._listen, args=(child,), daemon=True).start()

    def _listen(self, child: ServerProcess) -> None:
        try:
            message: Mapping[str, Any] | None = child.ready()
        except ProcessFailed as error:
            if not child.ended():  # it is of another version; otherwise `check` restarts it
                with self._change:
                    self._final = str(error)
            return
        while message is not None:
            with self._change:
                if child is not self._child:
                    return
                self._serves = True
                self._silent_s = 0.0
                if isinstance(found := message.get("statistics"), dict):
                    self._latest = found
                    self._replies += 1
                    self._change.notify_all()
                if why := message.get("error"):
                    _log.warning("%s refuses: %s", TITLE, why)
            message = child.hear()

    def _ask(self) -> None:
        self._requests += 1
        self._asked_at = time.monotonic()
        self._silent_s = 0.0
        self._child.say({"statistics": True})

    def _of_job(self, job: int) -> dict[str, float]:
        before, now = self._before.get(job, {}), self._latest.get("jobs", {}).get(str(job), {})
        return {name: before.get(name, 0.0) + now.get(name, 0.0) for name in {**before, **now}}
