"""Puts a service together: its state, the switches of a testbed, the processes of its runs."""

from __future__ import annotations

import contextlib
import secrets
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

from bmv2_topos.testbeds import netns
from bmv2_topos.testbeds.netns.ports import InterfaceWatch
from bmv2_topos.testbeds.netns.targets import target_of
from bmv2_topos.testbeds.netns.testbed import controllers
from controller import Fleet
from ina.runtime.testbed_fabric import program_of
from ina.service.clock import Clock
from ina.service.daemon import Daemon
from ina.service.engines import EngineChoice
from ina.service.errors import ServiceError
from ina.service.fallback import FallbackServers
from ina.service.ledger import Ledger
from ina.service.network import Network
from ina.service.policies import Policies
from ina.service.retention import Retention
from ina.service.store import Store, locked
from ina.service.threads import Threads


@asynccontextmanager
async def opened(
    state: Path,
    testbed: str | None,
    policies: Policies,
    *,
    engine: EngineChoice | None = None,
    retention: Retention | None = None,
    on_wait: Callable[[str], None] = lambda holder: None,
) -> AsyncIterator[Daemon]:
    """Make the daemon of a state and a testbed; its `run` is for the caller to start.

    Args:
        state: The folder of the state.
        testbed: The testbed's name; None: the only one that is up.
        policies: Who decides.
        engine: What starts the workers of jobs; None: this machine.
        retention: How long jobs that are over are kept; None: as by default.
        on_wait: Called if another process uses this state, with what it wrote of itself; it is waited for.

    Raises:
        StoreError: the state cannot be used.
        ServiceError: it was begun on another testbed, or with another engine, the engine does not answer, or
            the testbed's program does not share slots.
        LiveError: there is no such testbed, or this user cannot use it.
        ControllerError: a switch cannot be reached.
    """
    netns.check_here()
    engine = engine or EngineChoice()
    bed = netns.find(testbed)
    program = program_of(bed)
    if not program.offers().shared:
        raise ServiceError(
            f"testbed {bed.name!r} runs the program {bed.program.name!r}, whose jobs do not share slots: the"
            " service needs one whose jobs do (ina topo up … --program shared)"
        )
    with contextlib.ExitStack() as stack:
        stack.enter_context(locked(state, on_wait=on_wait))
        store = stack.enter_context(Store(state))
        known = store.fact("testbed", bed.name)
        if known != bed.name:
            raise ServiceError(f"{state} belongs to testbed {known!r}, not to {bed.name!r}")
        if (known := store.fact("engine", engine.engine)) != engine.engine:
            raise ServiceError(f"the jobs of {state} are run by executor {known!r}, not by {engine.engine!r}")
        service = store.fact("service", secrets.token_hex(4)) or ""
        began_at = float(store.fact("began", repr(time.time())) or 0.0)
        at = stack.enter_context(controllers(bed))
        target = target_of(bed.program)
        ports = None if target.tells_ports else stack.enter_context(InterfaceWatch(bed))
        last_s = max((row.body["event"]["at_s"] for row in store.events()), default=0.0)
        yield Daemon(
            Ledger(store, bed.topology, policies, Clock(began_at, last_s), retention=retention),
            testbed=bed.name,
            switches=Network(bed.topology, Fleet(at), program, target.queue_packets, ports),
            executor=stack.enter_context(engine.executor(state / "runs", service, bed)),
            fallbacks=FallbackServers(state / "fallback", bed.name, bed.program.lanes),
            blocking=Threads(),
            began_at=began_at,
        )
