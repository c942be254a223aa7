"""Runs whose workers are started on machines by ssh: the runner is a process of this machine."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from controller.vocabulary import Topology
from controller.vocabulary.files import topology_document
from ina.runtime.machine_hosts import this_machine
from ina.service.executor import LocalRuns, check_alone
from ina.service.runner import RunOrder


class SshRuns(LocalRuns):
    """Runs on the machines of a cluster; those of this one are started without ssh."""

    def __init__(self, folder: Path, cluster: Topology, launch_with: str, passed: Sequence[str] = ()) -> None:
        """Start nothing yet.

        Args:
            folder: Of the folders of runs.
            cluster: The cluster, with the addresses of its servers.
            launch_with: The command that starts a command on a machine (`agents.launch_command`).
            passed: Names of environment variables that commands get, too.
        """
        super().__init__(folder, passed)
        self._cluster = cluster
        self._launch_with = launch_with

    def start(self, order: RunOrder) -> None:
        """Start a run, unless it runs already. Raises OSError; BadSpec for a group, and a driver of Ray."""
        check_alone(order)
        cluster = self._cluster
        super().start(
            replace(
                order,
                engine="ssh",
                cluster=topology_document(cluster),
                launch_with=self._launch_with,
                here=this_machine(cluster) or "",
            )
        )

    def change_cluster(self, cluster: Topology) -> None:
        """Start the workers of further runs on these machines."""
        self._cluster = cluster
