"""Fallback servers: one at each server that jobs have theirs at; they do not end with the daemon.

Each is kept by a process of its own, found again by its folder:

``keeper.json``   how it is started, and where (`Kept`)
``alive``         its number; locked as long as it lives
``jobs.json``     the jobs that it is to serve, by the daemon
``serves.json``   those that it serves, and their counters, by the keeper
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Protocol

from bmv2_topos.testbeds import netns
from controller.switches.tree import TreeAdmission
from controller.vocabulary import Topology
from hostlib import command_line
from ina.runtime.errors import ProcessFailed
from ina.runtime.fallback_process import Fallback, description
from ina.runtime.remote_fallback import RemoteFallback
from ina.runtime.testbed_fallback import TestbedFallback
from ina.service import files
from ina.service.faults import fault_point

LOOK_S = 0.05
PATIENCE_S = 30.0
"""Longest time for one to start, and to take in a job."""
IDLE_S = 20.0
"""Time after which one without jobs ends; it is started again for the next."""
COUNT_S = 1.0
"""Interval at which counters are written down."""


@dataclass(frozen=True, slots=True)
class Kept:
    """A fallback server.

    Attributes:
        server: The server that it is at.
        lanes: Values of a packet.
        testbed: The testbed of that server, whose fallback server there the keeper tells of jobs.
        address: Else, ``host:port`` where ``ina fallback --serve`` serves.
    """

    server: str
    lanes: int
    testbed: str = ""
    address: str = ""


class FallbackServing(Protocol):
    """What has fallback servers serve jobs."""

    def serve(self, wanted: Mapping[str, Sequence[TreeAdmission]]) -> None:
        """Have each server serve these jobs and no others; return when it does. Raises RunError."""
        ...

    def lives(self, server: str) -> bool:
        """Return whether the fallback server at a server lives."""
        ...

    def counters(self, server: str, job: int) -> dict[str, float]:
        """Return the latest known counters of a job at a server, by name."""
        ...

    def change_cluster(self, cluster: Topology) -> None:
        """Find further servers in another cluster."""
        ...


class FallbackServers:
    """The daemon's end: starts what is not there, and says which jobs each is to serve."""

    def __init__(self, folder: Path, cluster: Topology, describe: Callable[[Topology, str], Kept]) -> None:
        """Start nothing yet.

        Args:
            folder: Of the keepers' folders.
            cluster: The cluster.
            describe: Returns how the fallback server at a server of a cluster is kept.
        """
        self._folder = folder
        self._cluster = cluster
        self._describe = describe
        self._children: dict[str, subprocess.Popen[bytes]] = {}

    def serve(self, wanted: Mapping[str, Sequence[TreeAdmission]]) -> None:
        """Have each server serve these jobs and no others; return when it does.

        Raises ProcessFailed if one does not.
        """
        for server, admissions in wanted.items():
            folder = self._of(server)
            jobs = {str(each.job): description(each) for each in admissions}
            if not folder.exists() and not jobs:
                continue
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            if server in self._cluster.server:  # else it has left the cluster, and gives up its jobs
                kept = asdict(self._describe(self._cluster, server))
                if files.read(folder / "keeper.json") != kept:
                    self._end(server)
                    fault_point("keeper ended")
                    files.write(folder / "keeper.json", kept)
                    fault_point("keeper described")
            if files.read(folder / "jobs.json") != jobs:
                files.write(folder / "jobs.json", jobs)
                fault_point("keeper told")
            if jobs:
                self._start(server)
                fault_point("keeper started")
        for server, admissions in wanted.items():
            self._await(server, {str(each.job): each.epoch for each in admissions})

    def counters(self, server: str, job: int) -> dict[str, float]:
        """Return the latest known counters of a job at a server, by name."""
        serves = files.read(self._of(server) / "serves.json") or {"counters": {}}
        found: dict[str, float] = serves["counters"].get(str(job), {})
        return found

    def lives(self, server: str) -> bool:
        """Return whether the fallback server at a server lives."""
        return files.process_of(self._of(server)) is not None

    def change_cluster(self, cluster: Topology) -> None:
        """Find further servers, and where they are reached, in another cluster."""
        self._cluster = cluster

    def stop(self) -> None:
        """Stop all of them."""
        for folder in self._folder.iterdir() if self._folder.exists() else ():
            _terminate(folder)

    def _end(self, server: str) -> None:
        """Have the keeper of a server that is described in another way end. Raises ProcessFailed."""
        until = time.monotonic() + PATIENCE_S
        while _terminate(self._of(server)):
            if time.monotonic() > until:
                raise ProcessFailed(
                    f"the process that keeps the fallback server at {server} running does not end"
                )
            time.sleep(LOOK_S)

    def _start(self, server: str) -> None:
        child = self._children.get(server)
        folder = self._of(server)
        if files.process_of(folder) is not None or (child is not None and child.poll() is None):
            return
        with (folder / "keeper.log").open("ab") as log:
            self._children[server] = subprocess.Popen(
                command_line.module("ina.service.fallback", str(folder)),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def _await(self, server: str, jobs: Mapping[str, int]) -> None:
        folder = self._of(server)
        until = time.monotonic() + PATIENCE_S
        while jobs:
            serves = files.read(folder / "serves.json")
            if serves is not None and serves["jobs"] == jobs and files.process_of(folder) == serves["by"]:
                return
            child = self._children.get(server)
            if child is not None and child.poll() is not None and files.process_of(folder) is None:
                raise ProcessFailed(f"the fallback server at {server} did not start: {_last(folder)}")
            if time.monotonic() > until:
                raise ProcessFailed(f"the fallback server at {server} does not answer")
            time.sleep(LOOK_S)

    def _of(self, server: str) -> Path:
        return self._folder / server


def _terminate(folder: Path) -> bool:
    """Ask the keeper of a folder to end; return whether one lived."""
    if (process := files.process_of(folder)) is None:
        return False
    with contextlib.suppress(ProcessLookupError):
        os.kill(process, signal.SIGTERM)
    return True


def _last(folder: Path) -> str:
    lines = (folder / "keeper.log").read_text(errors="replace").strip().split("\n")
    return lines[-1] or "it said nothing"


class Keeper:
    """Keeps one fallback server, and has it serve what ``jobs.json`` says."""

    def __init__(self, folder: Path, kept: Kept, by: int) -> None:
        self._folder = folder
        self._by = by
        self._server = (
            _remote(kept)
            if kept.address
            else TestbedFallback(netns.find(kept.testbed), kept.server, lanes=kept.lanes)
        )
        self._serves: dict[str, Mapping[str, Any]] = {}
        self._told = True
        """Whether it is written down which jobs it serves."""
        self._counted_at = 0.0

    def run(self, over: threading.Event) -> None:
        """Serve until `over` is set, or nobody needs it. Raises ProcessFailed if it cannot be kept alive."""
        needed = time.monotonic()
        try:
            while not over.wait(LOOK_S) and time.monotonic() - needed < IDLE_S:
                if why := self._server.check():
                    raise ProcessFailed(why)
                jobs = files.read(self._folder / "jobs.json") or {}
                if jobs:
                    needed = time.monotonic()
                self._follow(jobs)
        finally:
            self._server.stop()

    def _follow(self, jobs: Mapping[str, Mapping[str, Any]]) -> None:
        self._told &= jobs == self._serves
        for job in [job for job, known in self._serves.items() if jobs.get(job) != known]:
            self._server.remove(int(job))
            del self._serves[job]
        for job, described in jobs.items():
            if job not in self._serves:
                self._server.add(int(job), described)
                self._serves[job] = described
        now = time.monotonic()
        if not self._told or now - self._counted_at > COUNT_S:
            self._counted_at = now
            counters = {job: self._server.statistics(int(job)) for job in self._serves}
            serves = {job: known["epoch"] for job, known in self._serves.items()}
            with contextlib.suppress(OSError):  # the disk is full: it serves on, and says so later
                files.write(
                    self._folder / "serves.json", {"by": self._by, "jobs": serves, "counters": counters}
                )
                self._told = True


def _remote(kept: Kept) -> Fallback:
    """Return a fallback server that another machine serves. Raises BadRun, ProcessFailed."""
    host, _, port = kept.address.rpartition(":")
    secret = os.environ.get("INA_TOKEN", "")
    return RemoteFallback(0, kept.server, (host, int(port)), secret, lanes=kept.lanes)


def main(arguments: Sequence[str]) -> int:
    """Keep the fallback server of a folder, unless another process does."""
    folder = Path(arguments[0])
    over = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: over.set())
    with files.alive(folder) as first:
        if first:
            Keeper(folder, Kept(**files.read(folder / "keeper.json")), os.getpid()).run(over)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
