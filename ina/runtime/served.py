"""Serves one job whose workers somebody else starts, and watches over it until they have left."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Sequence

from hostlib.launcher import Rendezvous, WorkerExit
from ina.runtime.admission import admitted
from ina.runtime.fabric import SwitchFabric, open_fabric
from ina.runtime.lease import renewed
from ina.runtime.spec import FabricSpec, JobResult, LaunchSpec

LOOK_S = 0.1


def serve(
    fabric_spec: FabricSpec,
    spec: LaunchSpec,
    *,
    on_ready: Callable[[Sequence[str]], None],
    starter_left: Callable[[], bool],
    listen: str | None = None,
) -> JobResult:
    """Admit a job, hand out the ranks' configurations, and serve it until all ranks have left.

    Ends before all have joined if `starter_left`, which is asked several times per second, returns True: then
    nobody else will come. The `command` of `spec` does not matter. Ranks meet at an address of this machine,
    `listen`; None: at one that only this machine reaches.

    Raises:
        ControllerError: a switch refused the job.
        RunError: a switch did not start, and what else `open_fabric` raises.
    """
    with contextlib.ExitStack() as stack:
        fabric = stack.enter_context(open_fabric(fabric_spec, [spec.children]))
        job = stack.enter_context(admitted(fabric, spec))
        rendezvous = stack.enter_context(job.rendezvous(listen))
        stack.enter_context(renewed(fabric, job.tree, job.registration, rendezvous.reports, rendezvous.fault))
        started = time.monotonic()
        on_ready([job.config(rank, rendezvous) for rank in range(spec.job.workers)])
        failure = _watch(fabric, rendezvous, starter_left)
        switches = {} if fabric.switch_ended() else job.counters()
        counters: dict[str, int] = {}
        for found in switches.values():
            for name, number in found.items():
                counters[name] = counters.get(name, 0) + number
        fallback = {} if failure else job.fallback_statistics()
        elapsed_s = time.monotonic() - started
        return JobResult(failure, elapsed_s, rendezvous.reports(), counters, switches, fallback)


def _watch(
    fabric: SwitchFabric, rendezvous: Rendezvous, starter_left: Callable[[], bool]
) -> WorkerExit | None:
    """Wait for the end of the job; return what kept it from going on."""
    failure: WorkerExit | None = None
    pause = threading.Event()
    while not rendezvous.finished:
        if not rendezvous.complete and starter_left():
            break
        if failure is None and (why := fabric.ended()):
            rendezvous.fault(why)
            failure = WorkerExit(-1, 1, why)
        pause.wait(LOOK_S)
    return failure
