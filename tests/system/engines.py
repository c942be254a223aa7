"""A controller on ``p1`` whose jobs an engine runs on the other machines of a test's cluster."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from ina.service.client import Client, Refused
from tests.system.clusters import Cluster
from tests.system.command import WORKERS

PATIENCE_S = 300.0
OVER_S = 60.0
"""Patience once all jobs are over: what depends on them does not happen any more."""


class Service:
    """The controller, and what it says."""

    def __init__(
        self, here: Cluster, folder: Path, variables: Mapping[str, str], options: Sequence[str]
    ) -> None:
        self._here = here
        self._folder = folder
        self._variables = {**variables, "INA_TESTBEDS": os.environ["INA_TESTBEDS"]}
        self._options = options
        self.url = f"unix:{folder}/controller"
        self.start()

    def start(self) -> None:
        """Start it; return when it serves."""
        command = [sys.executable, "-m", "ina", "controller", "--state", str(self._folder / "state")]
        command += ["--testbed", self._here.state.name, "--listen", self.url, *self._options]
        self._process = process = self._here.start("p1", command, self._variables)
        said: list[str] = []
        self._said = said
        threading.Thread(target=_keep, args=(process, said), daemon=True).start()
        self.until(lambda: self._listens() and self._serves())

    def kill(self) -> None:
        """Kill it with SIGKILL."""
        os.kill(int((self._folder / "state" / "lock").read_text().split()[1]), signal.SIGKILL)
        self._process.wait()

    def stop(self) -> None:
        """End it."""
        os.kill(int((self._folder / "state" / "lock").read_text().split()[1]), signal.SIGTERM)
        self._process.wait(PATIENCE_S)

    def submit(self, *jobs: Mapping[str, Any]) -> None:
        """Submit jobs of two workers that sum, check the sums, and go on until the file ``stop`` is there."""
        command = [sys.executable, str(WORKERS / "marks.py")]
        until = ["--until", str(self._folder / "stop")]
        common = {"workers": 2}
        made = [
            {**common, "command": [*command, str(self._folder / job["name"]), *until], **job} for job in jobs
        ]
        with Client(self.url) as controller:
            controller.submit(made)

    def jobs(self) -> dict[str, Mapping[str, Any]]:
        """Return all jobs by name."""
        with Client(self.url) as controller:
            return {job["name"]: job for job in controller.jobs()}

    def states(self) -> dict[str, str]:
        """Return the states of all jobs."""
        return {name: job["state"] for name, job in self.jobs().items()}

    def sums(self, name: str) -> bool:
        """Return whether a job has summed some times."""
        return (self._folder / f"{name}.begun").exists()

    def audit(self) -> Mapping[str, Any]:
        """Return the differences between what is intended and what is."""
        with Client(self.url) as controller:
            return controller.audit()

    def until(self, holds: Callable[[], object]) -> None:
        """Wait until something holds; fail with all that is known if it does not in time."""
        began = over_since = time.monotonic()
        while not holds():
            now = time.monotonic()
            if (ended := self._process.poll() is not None) or not self._all_over():
                over_since = now
            if ended or now - began > PATIENCE_S or now - over_since > OVER_S:
                jobs = "it has ended" if ended else self.jobs()
                raise AssertionError(f"not in time: {jobs}\n{''.join(self._said)}\n{self.logs()}")
            time.sleep(0.2)

    def _all_over(self) -> bool:
        if not self._listens():
            return False
        try:
            jobs = self.jobs().values()
        except Refused:  # it starts
            return False
        return bool(jobs) and all(job["over"] for job in jobs)

    def _listens(self) -> bool:
        return any("controller at" in line for line in self._said)

    def logs(self) -> str:
        """Return what runners and ranks have written."""
        folders = (self._folder / "state" / "runs", self._folder / "state" / "logs")
        files = [
            path for folder in folders for path in folder.glob("*/*") if path.suffix in (".log", ".json")
        ]
        return "\n".join(f"{path}: {path.read_text(errors='replace')[-2000:]}" for path in files)

    def _serves(self) -> bool:
        try:
            self.jobs()
        except Refused:  # it starts
            return False
        return True


def _keep(process: subprocess.Popen[str], said: list[str]) -> None:
    assert process.stderr is not None
    for line in process.stderr:
        said.append(line)


def output(here: Cluster, variables: Mapping[str, str], *command: str) -> str:
    """Return what a command writes on ``p1``."""
    environment = {**here.variables, **variables}
    done = subprocess.run([*here.on("p1"), *command], capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stderr
    return done.stdout
