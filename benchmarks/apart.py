"""Measurements in processes of their own: memory is that of one measurement alone."""

from __future__ import annotations

import multiprocessing
import resource
import sys
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import Any, TypeVar

from controller.errors import ControllerError
from controller.simulator.runs import RunFailed

Result = TypeVar("Result")


def apart(what: str, work: Callable[..., Result], *arguments: Any) -> tuple[Result, int]:
    """Call a function in a new process; return what it returns, and the most memory of that, in bytes.

    Function, arguments and result are pickled. Raises RunFailed and ControllerError as `work` does, and
    RunFailed, which names `what` is measured, if the process ends without a result.
    """
    context = multiprocessing.get_context("spawn")
    here, there = context.Pipe(duplex=False)
    process = context.Process(target=_child, args=(there, work, arguments))
    process.start()
    there.close()
    try:
        found: tuple[Result, int] | Exception = here.recv()
    except EOFError:
        process.join()
        raise RunFailed(f"{what}: its process ended with status {process.exitcode}") from None
    process.join()
    if isinstance(found, Exception):
        raise found
    return found


def _child(channel: Connection, work: Callable[..., Any], arguments: tuple[Any, ...]) -> None:
    try:
        result = work(*arguments)
    except (RunFailed, ControllerError) as error:
        channel.send(error)
        return
    channel.send((result, most_memory()))


def most_memory() -> int:
    """Return the most memory that this process has had, in bytes."""
    unit = 1024 if sys.platform != "darwin" else 1  # kilobytes, on macOS bytes
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit
