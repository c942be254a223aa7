"""The fallback servers for jobs of the controller's service; they outlive the service.

A server runs at a testbed's host, or by ``ina fallback --serve`` on a machine. The owner of the jobs is the
service's state: a server keeps its jobs while the service is not connected (`ina.fallback.service`).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence

from controller.switches.layout import TreeAdmission
from controller.vocabulary import Server, Topology
from ina.errors import RunError
from ina.fallback.process import description
from ina.fallback.remote import RemoteFallback
from ina.faults import fault_point

Connect = Callable[[Topology, str, bool], RemoteFallback]
"""Function (cluster, name, start) that connects to the fallback server on the machine with this name.

If `start` is true and no fallback server runs there, it starts one. Raises RunError if it cannot connect.
"""

_log = logging.getLogger(__name__)


class FallbackServers:
    """Connections to the fallback servers that have jobs of the service."""

    def __init__(self, connect: Connect) -> None:
        """Store `connect`; connections are made when they are needed."""
        self._connect = connect
        self._at: dict[str, tuple[Server | None, RemoteFallback]] = {}
        """By machine name: the machine's entry in the cluster when it was connected; the connection."""

    def serve(self, wanted: Mapping[str, Sequence[TreeAdmission]], cluster: Topology) -> None:
        """Make each of these servers serve exactly these jobs of the service, and wait until all of them do.

        Raises RunError if a server with jobs cannot be reached.
        """
        for server, admissions in wanted.items():
            jobs = {each.job: description(each) for each in admissions}
            described, at = self._at.get(server, (None, None))
            if at is not None and described != cluster.server.get(server):
                at.stop()
            try:
                at = self._found(server, cluster, start=bool(jobs))
            except RunError as error:
                if jobs:
                    raise
                _log.info("%s", error)  # a server that is gone serves no jobs, as desired
                continue
            at.hold(jobs)
            fault_point("fallback told")

    def lives(self, server: str, cluster: Topology) -> bool:
        """Return whether a server has served its jobs without a break since the last `serve`."""
        try:
            return self._found(server, cluster, start=False).lives()
        except RunError:
            return False

    def _found(self, server: str, cluster: Topology, *, start: bool) -> RemoteFallback:
        _, at = self._at.get(server, (None, None))
        if at is None or at.over:
            at = self._connect(cluster, server, start)
            self._at[server] = cluster.server.get(server), at
        return at
