"""The files that a running service can read again: the cluster file and the policies file."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from controller.errors import BadSpec
from ina.errors import Conflict, ServiceError
from ina.service.daemon import Daemon
from ina.service.machines import read_cluster
from ina.service.policies import Policies, read_policies
from ina.service.views import Reloaded

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Files:
    """The files of a service.

    Attributes:
        cluster: The cluster file; None: the service's site is a testbed.
        policies: The policies file; None: command-line options set the policies.
        defaults: The policies and settings for keys that the policies file lacks.
    """

    cluster: Path | None
    policies: Path | None
    defaults: Policies

    async def reload(self, service: Daemon) -> Reloaded:
        """Replace a service's cluster and policies by the current contents of the files.

        Both files are read before anything is changed. The cluster is replaced first. If the policies are
        refused then, the new cluster stays.

        Raises Conflict, with the file's line and key, if a file is wrong or cannot replace the current
        cluster or policies, and StoreError.
        """
        if self.cluster is None and self.policies is None:
            raise Conflict(
                "the controller was started with neither --cluster nor --policies: there is no file to read"
            )
        try:
            cluster = None if self.cluster is None else await asyncio.to_thread(read_cluster, self.cluster)
            policies = self.defaults
            if self.policies is not None:
                policies = await asyncio.to_thread(read_policies, self.policies, self.defaults)
        except BadSpec as error:
            raise Conflict(f"nothing has changed: {error}") from error
        notes = () if cluster is None else tuple(await service.change_cluster(cluster))
        if self.policies is not None:
            await service.reload(policies)
        return Reloaded(notes, policies.names)


def reloading(service: Daemon, files: Files) -> Callable[[], None]:
    """Return a signal handler that reloads the service's files, and logs an error in them as a warning."""
    under_way: set[asyncio.Task[None]] = set()

    async def reload() -> None:
        try:
            found = await files.reload(service)
        except ServiceError as error:
            _log.warning("cannot reload the files: %s", error)
        else:
            _log.info("policies: %s; cluster: %s", found.policies, "; ".join(found.cluster) or "as before")

    def handle() -> None:
        task = asyncio.get_running_loop().create_task(reload())
        under_way.add(task)
        task.add_done_callback(under_way.discard)

    return handle
