"""Assembles a service from its state, site, policies and engine."""

from __future__ import annotations

import contextlib
import os
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

from controller.errors import OtherOwner
from controller.switches.leases import Owner, this_process
from ina.errors import ServiceError
from ina.launch.engines import EngineChoice
from ina.service.clock import Clock
from ina.service.daemon import Daemon
from ina.service.ledger import Ledger
from ina.service.policies import Policies
from ina.service.recovery import check_processes
from ina.service.retention import Retention
from ina.service.site import Site
from ina.service.store import Store, locked
from ina.service.threads import Threads


@asynccontextmanager
async def opened(
    state: Path,
    site: Site,
    policies: Policies,
    *,
    engine: EngineChoice | None = None,
    retention: Retention | None = None,
    take_over: bool = False,
    on_wait: Callable[[str], None] = lambda holder: None,
) -> AsyncIterator[Daemon]:
    """Make and yield the daemon that continues a state; the caller starts its `run`.

    Args:
        state: The folder of the state.
        site: The switches and servers.
        policies: The policies.
        engine: The engine that starts workers; None: this machine itself.
        retention: How many ended jobs are kept, and how long; None: the default of `Retention`.
        take_over: Whether to take switches that other controllers own. Those controllers then lose the
            switches, and the jobs that they have on them.
        on_wait: Called before a wait for the end of another process that uses this state, with a description
            of that process.

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
        stack.enter_context(locked(state, on_wait=on_wait))
        store = stack.enter_context(Store(state))
        if (known := store.fact("testbed", site.name)) != site.name:
            raise ServiceError(
                f"{state} is the state of a controller of {known!r}, not of {site.name!r}: want another"
                " --state"
            )
        if (known := store.fact("engine", engine.engine)) != engine.engine:
            raise ServiceError(
                f"{state} is the state of a controller with executor {known!r}, not {engine.engine!r}: want"
                " another --state"
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
