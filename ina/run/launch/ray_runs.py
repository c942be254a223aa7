"""Runs whose workers Ray starts: the runner is a process of this machine, and a driver of Ray.

This machine must be a node of the Ray cluster (``ray start``), with or without CPUs for workers. Each server
of the cluster file is the node of the same name (``ray start --node-name``) or address.
"""

from __future__ import annotations

import contextlib
import importlib.util
import json
import logging
import subprocess
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from controller.vocabulary import Topology
from hostlib.launch import command_line
from hostlib.version import other_protocol
from ina.errors import EngineError
from ina.run.launch.executor import LocalRuns
from ina.run.launch.machine_hosts import reached_at

AGAIN_S = 5.0
"""Time, in s, until the process that watches Ray's nodes is restarted after its end."""

_log = logging.getLogger(__name__)


class RayRuns(LocalRuns):
    """An executor that starts workers on the nodes of Ray."""

    engine = "ray"
    _cluster: Topology

    def __init__(self, folder: Path, cluster: Topology, passed: Sequence[str] = ()) -> None:
        """Start to watch Ray's nodes. Raises EngineError if Ray is not installed, or does not answer.

        Args:
            folder: The folder in which the runs' folders are created.
            cluster: The cluster, with the addresses of its servers.
            passed: Names of further environment variables that jobs' commands inherit.
        """
        super().__init__(folder, passed, cluster)
        if importlib.util.find_spec("ray") is None:
            raise EngineError("executor ray needs ray: pip install 'ina[ray]'")
        self._last_look: tuple[float, frozenset[str]] = 0.0, frozenset()
        """The last look at Ray's nodes: its begin, on the monotonic clock, and the nodes that answered."""
        self._reported_s = 0.0
        """The begin of the look that `gone` has last reported."""
        self._trouble = ""
        self._watcher = self._watching()
        self._see()
        if self._trouble:
            self._watcher.communicate()  # it ends with its input
            raise EngineError(self._trouble)
        self._closing = False
        self._thread = threading.Thread(target=self._watch, name="ray", daemon=True)
        self._thread.start()

    def shown(self, number: int) -> tuple[str, bool]:
        """Return the placement group of a run and its state, as last reported, and whether it has started."""
        found = self.status(number)
        shown = found.engine if found is not None else ""
        text = "; ".join(filter(None, (shown or "not yet in Ray", self._trouble)))
        return text, bool(shown) and not shown.endswith(", pending")

    def gone(self) -> Mapping[str, str]:
        """Return the names of the servers that are no nodes of Ray which answer, each with the reason."""
        self._reported_s, alive = self._last_look
        return {
            name: f"no node of Ray at {address} answers"
            for name in self._cluster.servers_for("worker")
            if not {name, address := reached_at(self._cluster, name)} & alive
        }

    def looked_within(self, age_s: float) -> bool:
        """Return whether the look at Ray's nodes that `gone` last reported began in the last `age_s` s."""
        return time.monotonic() - age_s < self._reported_s

    def close(self) -> None:
        """Stop watching Ray's nodes."""
        self._closing = True
        self._watcher.kill()
        self._thread.join()

    def _watching(self) -> subprocess.Popen[str]:
        command = command_line.module("ina.run.launch.ray_agents")
        return subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        )

    def _watch(self) -> None:
        while True:
            while self._see():
                pass
            self._watcher.communicate()
            if self._closing:
                return
            self._trouble = self._trouble or "the process that watches Ray's nodes has ended"
            _log.warning("%s; starting it again in %g s, and jobs run on", self._trouble, AGAIN_S)
            time.sleep(AGAIN_S)
            self._watcher = self._watching()

    def _see(self) -> bool:
        """Handle the next line of the process that watches Ray's nodes.

        Return False once the output of that process has ended.
        """
        assert self._watcher.stdout is not None
        line = self._watcher.stdout.readline()
        message: Mapping[str, Any] = {}
        with contextlib.suppress(ValueError):
            message = json.loads(line)
        if "alive" in message:
            self._last_look = message.get("began_s", 0.0), frozenset(message["alive"])
            self._trouble = other_protocol(message)
        elif "failed" in message:
            self._trouble = str(message["failed"])
        return bool(line)
