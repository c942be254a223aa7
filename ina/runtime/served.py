"""Serves one job whose workers are started by others, and monitors it until they have left."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager

from controller import Registration
from controller.switches.tree import TreeAdmission
from hostlib.launcher import Rendezvous, WorkerExit
from ina.runtime.admission import admitted
from ina.runtime.fabric import SwitchFabric
from ina.runtime.groups import groups_of
from ina.runtime.lease import Renewal, renewed
from ina.runtime.spec import JobResult, LaunchSpec, Reports

LOOK_S = 0.1

Keeping = Callable[
    [SwitchFabric, TreeAdmission, Registration | None, Callable[[], Reports], Callable[[str], None]],
    AbstractContextManager[Renewal],
]
"""Keeps a job admitted while a context lasts; see `ina.runtime.lease.renewed`."""


def serve(
    fabric: SwitchFabric,
    spec: LaunchSpec,
    *,
    on_ready: Callable[[Sequence[str]], None],
    starter_left: Callable[[], bool],
    listen: str | None = None,
    keeping: Keeping = renewed,
) -> JobResult:
    """Admit a job, hand out the ranks' configurations, and serve it until all ranks have left.

    Args:
        fabric: The switches.
        spec: The job; its `command` is ignored.
        on_ready: Called with the ranks' configurations.
        starter_left: Called several times per second; if it returns True before all ranks have joined, no
            more will come, and the job ends.
        listen: Address of this machine at which the ranks meet; None: one that only this machine reaches.
        keeping: Keeps the job admitted.

    Raises:
        ControllerError: a switch refused the job.
        BadRun: nobody can listen at `listen`, or the machines are not the job's.
        ProcessFailed: the fallback server is not there.
    """
    with contextlib.ExitStack() as stack:
        job = stack.enter_context(admitted(fabric, spec))
        rendezvous = stack.enter_context(job.rendezvous(listen))
        stack.enter_context(keeping(fabric, job.tree, job.registration, rendezvous.reports, rendezvous.fault))
        started = time.monotonic()
        stack.enter_context(groups_of(job, rendezvous, listen))
        on_ready([job.config(rank, rendezvous) for rank in range(spec.job.workers)])
        failure = _watch(fabric, rendezvous, starter_left)
        switches = {} if fabric.switch_ended() or fabric.silent else job.counters()
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
    """Wait for the end of the job; return the failure that ended it, or None."""
    failure: WorkerExit | None = None
    pause = threading.Event()
    while not rendezvous.finished:
        if not rendezvous.complete and starter_left():
            break
        if failure is None and (why := fabric.ended()):
            rendezvous.fault(why)
            failure = WorkerExit(-1, 1, why)
        pause.wait(LOOK_S)
    if failure is None and not rendezvous.complete:
        return WorkerExit(-1, 1, "its launcher ended before all ranks had joined")
    if failure is None and (gone := rendezvous.gone):
        rank, why = next(iter(gone.items()))
        return WorkerExit(rank, 1, f"rank {rank}: {why}")
    return failure
