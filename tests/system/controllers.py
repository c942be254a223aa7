"""Controllers as processes: ``ina controller``, on testbeds and on machines."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from bmv2_topos.testbeds import netns
from ina.run.client import Client, Refused
from ina.run.views import JobView
from tests.system.clusters import Cluster
from tests.system.command import PATIENCE_S, ROOT, WORKERS, family, ina

CLUSTER = ROOT / "examples" / "cluster" / "two.toml"
PREFIX = f"t{os.getpid()}"
"""Of the names of this process's testbeds."""
OVER_S = 60.0
"""Patience once all jobs are over: what depends on them does not happen any more."""


@contextlib.contextmanager
def laid_out(
    folder: Path, name: str, cluster: Path | str = CLUSTER, *options: object
) -> Iterator[netns.State]:
    """Have a testbed of namespaces up, which no test ends; a cluster may be given as its text."""
    with pytest.MonkeyPatch.context() as patch, family():
        patch.setenv("INA_TESTBEDS", str(folder))
        if isinstance(cluster, str):
            (folder / "cluster.toml").write_text(cluster)
            cluster = folder / "cluster.toml"
        ina("topo", "up", cluster, "--name", name, "--program", "shared", *options, status=0)
        try:
            yield netns.find(name)
        finally:
            ina("topo", "down", name)


def marks(at: Path, *options: object) -> list[str]:
    """Return the command of a worker that sums, makes the file ``AT.begun`` soon, and a mark at its end."""
    return [sys.executable, str(WORKERS / "marks.py"), str(at), *map(str, options)]


@dataclass
class Controller:
    """``ina controller`` at a Unix socket, which processes of all namespaces reach.

    Attributes:
        folder: For its state, its socket and its log.
        options: Its further options, as where it finds its cluster.
        before: A command that runs it on a machine.
        environment: What it is started in: a test ends all that is started in its own.
    """

    folder: Path
    options: Sequence[str]
    before: Sequence[str] = ()
    environment: Mapping[str, str] = field(default_factory=lambda: dict(os.environ))
    process: subprocess.Popen[bytes] | None = None

    @classmethod
    def on(cls, here: Cluster, folder: Path, *more: str, **variables: str) -> Controller:
        """Return one on ``p1`` of a test's cluster, whose jobs run on its other machines."""
        beds = {"INA_TESTBEDS": os.environ["INA_TESTBEDS"]}
        options = ["--testbed", here.state.name, *more]
        return cls(folder, options, here.on("p1"), {**here.variables, **beds, **variables})

    @property
    def url(self) -> str:
        """Where it serves."""
        return f"unix:{self.folder / 'api'}"

    @property
    def state(self) -> Path:
        """The folder of its state."""
        return self.folder / "state"

    @property
    def command(self) -> list[str]:
        """The command, but for where it serves."""
        return [sys.executable, "-m", "ina", "controller", "--state", str(self.state), *self.options]

    def client(self) -> Client:
        """Return a client."""
        return Client(self.url)

    def start(self, **variables: str) -> None:
        """Start it; return when it serves."""
        self.spawn([*self.command, "--listen", self.url], **variables)
        self.until(self.serves)

    def spawn(self, command: Sequence[str], **variables: str) -> None:
        """Start a command as its process."""
        with (self.folder / "controller.log").open("ab") as log:
            self.process = subprocess.Popen(
                [*self.before, *command],
                cwd=ROOT,
                env={**self.environment, **variables},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    @contextlib.contextmanager
    def serving(self, **variables: str) -> Iterator[Client]:
        """Have it serve for a while, and kill it then if it still lives."""
        self.start(**variables)
        try:
            with self.client() as client:
                yield client
        finally:
            if self._lives():
                self.kill()

    def kill(self) -> None:
        """End it with SIGKILL; what it has started goes on."""
        self.end(signal.SIGKILL)

    def end(self, number: signal.Signals = signal.SIGTERM) -> None:
        """Send it a signal that ends it; return when it has."""
        with contextlib.suppress(ProcessLookupError, FileNotFoundError):
            os.kill(self.pid, number)
        self.process.wait(PATIENCE_S)

    @property
    def pid(self) -> int:
        """The process of the controller itself, which scripts may have started."""
        return int((self.state / "lock").read_text().split()[1])

    def submit(self, name: str, *options: object, **keys: object) -> None:
        """Submit a job that makes marks in the folder, by its name (`marks`)."""
        command = marks(self.folder / name, *options)
        with self.client() as client:
            client.submit([{"name": name, "workers": 2, "command": command, **keys}])

    def jobs(self) -> dict[str, JobView]:
        """Return all jobs by name."""
        with self.client() as client:
            return {job["name"]: job for job in client.jobs()}

    def job(self, name: str) -> JobView:
        """Return a job."""
        with self.client() as client:
            return client.job(name)

    def states(self) -> dict[str, str]:
        """Return the states of all jobs."""
        return {name: job["state"] for name, job in self.jobs().items()}

    def clean(self) -> bool:
        """Return whether all is as intended."""
        with self.client() as client:
            return client.audit()["clean"]

    def cancel(self, name: str) -> None:
        """Cancel a job; return when it is over."""
        with self.client() as client:
            client.cancel(name)
        self.until(lambda: self.job(name)["over"])

    def begun(self, name: str) -> bool:
        """Return whether a job has summed some times."""
        return (self.folder / f"{name}.begun").exists()

    def until(self, holds: Callable[[], object]) -> None:
        """Wait until something holds; fail with all that is known if it does not in time."""
        began = over_since = time.monotonic()
        while not holds():
            now = time.monotonic()
            if (gone := not self._lives()) or not self._all_over():
                over_since = now
            if gone or now - began > PATIENCE_S or now - over_since > OVER_S:
                pytest.fail(self.said())
            time.sleep(0.05)

    def said(self) -> str:
        """Return what it, runners and ranks have written, and the jobs."""
        folders = [self.state / "runs", self.state / "logs"]
        files = [path for each in folders for path in each.glob("*/*") if path.suffix in (".log", ".json")]
        texts = [f"{path}: {path.read_text(errors='replace')[-2000:]}" for path in files if path.exists()]
        texts += [str(self.jobs())] if self._lives() and self.serves() else []
        return "\n".join(["not in time", (self.folder / "controller.log").read_text(), *texts])

    def _lives(self) -> bool:
        return self.process is not None and self.process.poll() is None

    def serves(self) -> bool:
        """Return whether it answers."""
        with socket.socket(socket.AF_UNIX) as probe:  # httpx leaves one open that is refused
            if probe.connect_ex(str(self.folder / "api")):
                return False
        with contextlib.suppress(Refused), self.client() as client:
            client.cluster()
            return True
        return False  # not yet

    def _all_over(self) -> bool:
        jobs = self.jobs().values() if self.serves() else []
        return bool(jobs) and all(job["over"] for job in jobs)
