"""Many simulations at once: on the cores of this machine, or on a Ray cluster.

The outcomes are in the order of the tasks and do not depend on the number of processes.
"""

from __future__ import annotations

import importlib
import multiprocessing
import os
import queue
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from functools import partial
from multiprocessing.queues import Queue
from multiprocessing.synchronize import Event
from typing import Any, Protocol, TypeVar

from controller.interrupts import delay_interrupts
from controller.policies.scheduling.errors import SchedulingError
from controller.simulator.runs import Progress, SimulationOutcome, SimulationTask, run

_Task = TypeVar("_Task", contravariant=True)
_Outcome = TypeVar("_Outcome", covariant=True)

Report = Callable[[int, float], None]
"""Function that is called with a task's position and the fraction of its jobs that have ended."""

STEPS = 100
"""Maximum number of progress reports of a task."""


class RayMissing(SchedulingError):
    """Ray is not installed; the message says how to install it."""

    def __init__(self) -> None:
        super().__init__("a Ray cluster needs ray: pip install ray")


class _Work(Protocol[_Task, _Outcome]):
    """A function that runs a task; other processes import it, so it must be at the top of a module."""

    def __call__(self, task: _Task, progress: Progress | None = None, /) -> _Outcome: ...


def run_all(
    tasks: Sequence[SimulationTask], *, processes: int = 0, report: Report | None = None
) -> list[SimulationOutcome]:
    """Run all tasks. The first failure ends them all.

    `processes` is the number of processes, 0: one per core; `report` is called as tasks progress. Raises the
    errors of `run`, and ValueError for a negative number of processes.
    """
    return run_each(run, tasks, processes=processes, report=report)


def run_each(
    work: _Work[_Task, _Outcome],
    tasks: Sequence[_Task],
    *,
    processes: int = 0,
    report: Report | None = None,
) -> list[_Outcome]:
    """Run `work` on all tasks in processes; the first failure ends all tasks.

    Args:
        work: A function defined at the top of a module, so that other processes can import it.
        tasks: The tasks; `work` is called with each of them.
        processes: Number of processes; 0: one per CPU core.
        report: Function that is called while tasks progress.

    Returns:
        The outcomes in the order of the tasks.

    Raises the errors of `work`, and ValueError for a negative number of processes.
    """
    if processes < 0:
        raise ValueError(f"{processes} processes; want 0 (one per core) or more")
    processes = min(processes or os.cpu_count() or 1, len(tasks))
    if processes <= 1:
        return [work(task, _stepwise(number, report)) for number, task in enumerate(tasks)]
    # spawned: the caller may have threads, such as a progress bar's, which a fork would not survive
    context = multiprocessing.get_context("spawn")
    channel: Queue[tuple[int, float]] | None = context.Queue() if report is not None else None
    stop = context.Event()
    with ProcessPoolExecutor(
        processes, mp_context=context, initializer=_prepare, initargs=(channel, stop)
    ) as pool:
        with delay_interrupts():
            futures = [
                pool.submit(partial(_run_here, work), number, task) for number, task in enumerate(tasks)
            ]
        try:
            _watch(futures, channel, report)
        except BaseException:
            stop.set()
            pool.shutdown(cancel_futures=True)
            raise
        return [future.result() for future in futures]


def run_on_ray(
    tasks: Sequence[SimulationTask], *, address: str = "", report: Report | None = None
) -> list[SimulationOutcome]:
    """Run all tasks on the Ray cluster at `address`.

    If `address` is "", the cluster at RAY_ADDRESS is used, or else a new cluster on this machine. Each task
    uses one CPU. Files that tasks name must have the same paths on every node. Raises RayMissing, and the
    errors of `run`.
    """
    try:
        ray: Any = importlib.import_module("ray")  # has no types, and is seldom installed
    except ImportError:
        raise RayMissing from None
    started = not ray.is_initialized()
    if started:
        ray.init(address=address or None, log_to_driver=False, configure_logging=False)
    try:
        remote: Any = ray.remote(run)
        places = {remote.remote(task): number for number, task in enumerate(tasks)}
        outcomes: dict[int, SimulationOutcome] = {}
        pending = list(places)
        while pending:
            (done,), pending = ray.wait(pending)
            outcomes[places[done]] = _fetch(ray, done)
            if report is not None:
                report(places[done], 1.0)
        return [outcomes[number] for number in range(len(tasks))]
    finally:
        if started:
            ray.shutdown()


def _fetch(ray: Any, done: Any) -> SimulationOutcome:
    try:
        outcome: SimulationOutcome = ray.get(done)
    except ray.exceptions.RayTaskError as error:
        raise error.cause from None
    return outcome


def _stepwise(number: int, report: Report | None) -> Callable[[int, int], None] | None:
    """Return a `Progress` that reports the fraction of ended jobs of task `number`, at most `STEPS` times.

    It reports whenever the fraction has grown by 1 / `STEPS`.
    """
    if report is None:
        return None
    shown = -1

    def progress(ended: int, total: int) -> None:
        nonlocal shown
        step = ended * STEPS // total
        if step != shown:
            shown = step
            report(number, ended / total)

    return progress


def _watch(
    futures: Sequence[Future[Any]], channel: Queue[tuple[int, float]] | None, report: Report | None
) -> None:
    """Wait for all tasks, forward their reports to `report`, and raise the first error."""
    pending = set(futures)
    while pending:
        done, pending = wait(pending, None if report is None else 0.1, FIRST_COMPLETED)
        while report is not None and channel is not None:
            try:
                report(*channel.get_nowait())
            except queue.Empty:
                break
        for future in done:
            future.result()
    if report is not None:
        for number in range(len(futures)):
            report(number, 1.0)


# In a process of the pool.

_channel: Queue[tuple[int, float]] | None = None
_stop: Event | None = None


class _NotNeeded(Exception):
    """Raised in a process of the pool to end a simulation whose outcome is no longer needed."""


def _prepare(channel: Queue[tuple[int, float]] | None, stop: Event) -> None:
    global _channel, _stop
    _channel, _stop = channel, stop
    if channel is not None:
        channel.cancel_join_thread()  # the parent may have stopped reading


def _run_here(work: Callable[[Any, Progress | None], Any], number: int, task: Any) -> Any:
    assert _stop is not None
    channel, stop = _channel, _stop

    def report(position: int, fraction: float) -> None:
        if stop.is_set():
            raise _NotNeeded
        if channel is not None:
            channel.put((position, fraction))

    return work(task, _stepwise(number, report))
