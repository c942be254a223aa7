"""One run from start to end: its switches, all of its jobs, and their results."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass

from controller import ControllerError
from ina.runtime.fabric import SwitchFabric, open_fabric
from ina.runtime.fabric_jobs import FabricLauncher
from ina.runtime.jobs import JobEnd, OnOutput, OnProgress, run_jobs
from ina.runtime.spec import FabricSpec, LaunchSpec


@dataclass(frozen=True, slots=True)
class RunReport:
    """Report of a run."""

    ends: Sequence[JobEnd]
    """Of its jobs, in the order of their specs."""
    refused: Mapping[str, int]
    """Packets of no job during the run, by reason; nothing if the switches were gone."""
    elapsed_s: float
    interrupt: BaseException | None
    """Interrupt that ended the jobs: KeyboardInterrupt or SystemExit, raised in this thread."""


def run(
    fabric_spec: FabricSpec,
    specs: Sequence[LaunchSpec],
    *,
    on_output: OnOutput,
    on_progress: OnProgress = lambda reports: None,
    on_listening: Callable[[str, str], None] = lambda switch, address: None,
    on_ready: Callable[[], None] = lambda: None,
    opened: AbstractContextManager[SwitchFabric] | None = None,
) -> RunReport:
    """Run jobs at the same time on switches of their own, or that run already.

    A job that fails is reported; the others continue.

    Args:
        fabric_spec: The switches.
        specs: The jobs.
        on_output: Called with the output of workers.
        on_progress: Called with the reports of all ranks.
        on_listening: Called with name and address of each switch whose P4Runtime others may use, too.
        on_ready: Called when the switches are there and the jobs start.
        opened: Switches to use instead of those of `fabric_spec`.

    Raises the errors of `open_fabric`; no job has started then.
    """
    started = time.monotonic()
    ends = [JobEnd(spec) for spec in specs]
    interrupt: BaseException | None = None
    if opened is None:
        opened = open_fabric(fabric_spec, [spec.children for spec in specs], on_listening=on_listening)
    with opened as fabric:
        # switches of our own have counted from their start on for this run alone
        before = _refused(fabric) if fabric.lease_s is not None else {}
        on_ready()
        try:
            run_jobs(FabricLauncher(fabric), ends, on_output=on_output, on_progress=on_progress)
        except (KeyboardInterrupt, SystemExit) as error:
            interrupt = error
        refused = _since(before, _refused(fabric))
    return RunReport(ends, refused, time.monotonic() - started, interrupt)


def _refused(fabric: SwitchFabric) -> dict[str, int]:
    try:
        return {} if fabric.switch_ended() or fabric.silent else fabric.refused()
    except ControllerError:
        return {}


def _since(before: Mapping[str, int], now: Mapping[str, int]) -> dict[str, int]:
    """Return the difference of counts; a count that decreased started again, with a restarted switch."""
    grown = {
        name: count - (before.get(name, 0) if count >= before.get(name, 0) else 0)
        for name, count in now.items()
    }
    return {name: count for name, count in grown.items() if count}
