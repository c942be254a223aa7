"""The fallback servers of a service's jobs: each is a process that outlives the service.

A server runs at a testbed's host, or by ``ina fallback --serve`` on a machine. It keeps the jobs of an owner,
the service's state, also without a connection (`ina.fallback.service`).
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
"""Returns the fallback server at a server of a cluster, started on request. Raises RunError: it is gone."""

_log = logging.getLogger(__name__)


class FallbackServers:
    """Connections to fallback servers that have jobs."""

    def __init__(self, connect: Connect) -> None:
        """Prepare; connect to none."""
        self._connect = connect
        self._at: dict[str, tuple[Server | None, RemoteFallback]] = {}
        """Connections by name, with the cluster's description at that time."""

    def serve(self, wanted: Mapping[str, Sequence[TreeAdmission]], cluster: Topology) -> None:
        """Make each server serve these jobs and no others; return once it does. Raises RunError."""
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
                _log.info("%s", error)  # it serves none, then
                continue
            at.hold(jobs)
            fault_point("fallback told")

    def lives(self, server: str, cluster: Topology) -> bool:
        """Return whether a server has served its jobs since its last `serve`."""
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
