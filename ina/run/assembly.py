"""Assembles a service from its state, site, policies and engine, and reads its files again."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from controller.errors import BadSpec, OtherOwner
from controller.switches.leases import Owner, this_process
from ina.errors import Conflict, ServiceError
from ina.run.clock import Clock
from ina.run.daemon import Daemon
from ina.run.launch.engines import EngineChoice
from ina.run.ledger import Ledger
from ina.run.policies import Policies, read_policies
from ina.run.records import Retention
from ina.run.recovery import check_processes
from ina.run.site import Site, read_cluster
from ina.run.store import Store
from ina.run.threads import Threads
from ina.run.views import ReloadView


@asynccontextmanager
async def opened(
    state: Path,
    site: Site,
    policies: Policies,
    *,
    engine: EngineChoice | None = None,
    retention: Retention | None = None,
    take_over: bool = False,
) -> AsyncIterator[Daemon]:
    """Make and yield the daemon that continues a state; the caller starts its `run`.

    Args:
        state: The folder of the state, which the caller has locked.
        site: The switches and servers.
        policies: The policies.
        engine: The engine that starts workers; None: this machine itself.
        retention: How many ended jobs are kept, and how long; None: the default of `Retention`.
        take_over: Whether to take switches that other controllers own. Those controllers then lose the
            switches, and the jobs that they have on them.

    Raises:
        StoreError: the state cannot be used.
        ServiceError: the state belongs to another site or engine, the engine does not answer or cannot start
            workers at this site, another controller owns a switch, or the switches run a program whose jobs
            do not share slots.
        BadSpec: the cluster cannot replace the cluster of the state.
    """
    engine = engine or EngineChoice()
    site.check(engine)
    with contextlib.ExitStack() as stack:
        store = stack.enter_context(Store(state))
        for fact, of, wanted in (("testbed", "of", site.name), ("engine", "with executor", engine.engine)):
            if (known := store.fact(fact, wanted)) != wanted:
                raise ServiceError(
                    f"{state} is the state of a controller {of} {known!r}, not {of} {wanted!r}: want another"
                    " --state"
                )
        service = store.identity
        check_processes(state, service)
        network = stack.enter_context(site.network(state / "program"))
        name = f"the controller with process {os.getpid()} on {socket.gethostname()}, --state {state}"
        try:
            network.own(site.cluster, Owner(service, name, this_process()), take_over=take_over)
        except OtherOwner as error:
            raise ServiceError(
                f"{error}: end that controller; if it is gone, or its state is lost, --take-over takes the"
                " switches, and removes its jobs from them"
            ) from error
        yield Daemon(
            Ledger(store, site.cluster, policies, Clock.of(store), retention=retention),
            testbed=site.testbed,
            switches=network,
            executor=stack.enter_context(engine.executor(state / "runs", service, site.machines)),
            fallbacks=site.fallbacks(service, network.offers.lanes),
            blocking=Threads(),
        )


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

    async def reload(self, service: Daemon) -> ReloadView:
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
            policies = (
                self.defaults
                if self.policies is None
                else await asyncio.to_thread(read_policies, self.policies, self.defaults)
            )
        except BadSpec as error:
            raise Conflict(f"nothing has changed: {error}") from error
        notes = () if cluster is None else await service.change_cluster(cluster)
        if self.policies is not None:
            await service.reload(policies)
        return {"cluster": list(notes), "policies": policies.names}


def reloading(service: Daemon, files: Files) -> Callable[[], None]:
    """Return a signal handler that reloads the service's files, and logs an error in them as a warning."""
    under_way: set[asyncio.Task[None]] = set()

    async def reload() -> None:
        try:
            found = await files.reload(service)
        except ServiceError as error:
            _log.warning("cannot reload the files: %s", error)
        else:
            _log.info(
                "policies: %s; cluster: %s", found["policies"], "; ".join(found["cluster"]) or "as before"
            )

    def handle() -> None:
        task = asyncio.get_running_loop().create_task(reload())
        under_way.add(task)
        task.add_done_callback(under_way.discard)

    return handle
