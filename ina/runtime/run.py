"""Jobs that this process admits to switches of its own, or that run: started here or by others."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass

from controller import ControllerError
from hostlib.launch.launcher import JobLog
from ina.runtime.fabric import SwitchFabric, open_fabric
from ina.runtime.groups import Groups
from ina.runtime.hosts import Hosts
from ina.runtime.jobs import OnOutput, OnProgress, run_jobs
from ina.runtime.launch import JobRun, attend
from ina.runtime.metrics import metrics
from ina.runtime.served import ServedJob, served
from ina.runtime.spec import FabricSpec, JobResult, LaunchSpec


@dataclass(frozen=True, slots=True)
class RunReport:
    """Report of a run."""

    ends: Sequence[JobRun]
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
    runs = [JobRun(spec) for spec in specs]
    interrupt: BaseException | None = None
    if opened is None:
        opened = open_fabric(fabric_spec, [spec.children for spec in specs], on_listening=on_listening)
    with opened as fabric:
        # switches of our own have counted from their start on for this run alone
        before = _refused(fabric) if fabric.lease_s is not None else {}
        on_ready()
        try:
            run_jobs(FabricLauncher(fabric), runs, on_output=on_output, on_progress=on_progress)
        except (KeyboardInterrupt, SystemExit) as error:
            interrupt = error
        refused = _since(before, _refused(fabric))
    return RunReport(runs, refused, time.monotonic() - started, interrupt)


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


class FabricLauncher:
    """Runs jobs that this process admits to the switches of a fabric: a `Launcher`."""

    def __init__(self, fabric: SwitchFabric) -> None:
        self._fabric = fabric

    @property
    def hosts(self) -> Hosts:
        """Where workers run."""
        return self._fabric.hosts

    def ended(self) -> str | None:
        """Return which part of the fabric has ended for good, and how; None while all run."""
        return self._fabric.ended()

    def launch(self, run: JobRun) -> JobResult | None:
        """Run a job from its arrival to its end; None if it was cancelled before.

        Raises as `served`, and LaunchError: the command cannot be run.
        """
        if run.cancelled.wait(run.spec.job.arrival_s):
            return None
        with served(self._fabric, run.spec, run.cancelled) as job, contextlib.closing(Groups(job)):
            if run.spec.log is None:
                return job.counted(run.run(job.job, job.rendezvous))
            with contextlib.closing(JobLog(run.spec.log)) as log:
                return _logged(run, job, log)


def _logged(run: JobRun, job: ServedJob, log: JobLog) -> JobResult:
    """Run a job, and write when it starts, how each worker exits, and how it ends."""
    number, spec = job.job.tree.job, run.spec
    log.write(
        "start",
        job=number,
        name=spec.job.name,
        workers=spec.job.workers,
        ports=job.job.ports(),
        server=job.server_port,
    )
    result = job.counted(run.run(job.job, job.rendezvous))
    for exit_ in run.exits:
        log.write("exit", job=number, rank=exit_.rank, status=exit_.status, reason=exit_.reason)
    log.write("end", job=number, **metrics(result))
    return result


def serve(
    fabric: SwitchFabric,
    spec: LaunchSpec,
    *,
    on_ready: Callable[[Sequence[str]], None],
    starter_left: Callable[[], bool],
    listen: str | None = None,
) -> JobResult:
    """Admit a job whose workers others start, and serve it until all ranks have left.

    Args:
        fabric: The switches.
        spec: The job; its `command` is ignored.
        on_ready: See `attend`.
        starter_left: The same.
        listen: Address of this machine at which the ranks meet; None: one that only this machine reaches.

    Raises as `served`.
    """
    with (
        served(fabric, spec, threading.Event(), listen=listen) as job,
        contextlib.closing(Groups(job, listen)),
    ):
        found = attend(
            job.job, job.rendezvous, on_ready=on_ready, starter_left=starter_left, ended=fabric.ended
        )
        return job.counted(found)


def run_alone(
    fabric_spec: FabricSpec,
    spec: LaunchSpec,
    *,
    on_output: OnOutput,
    on_progress: OnProgress = lambda reports: None,
) -> JobResult:
    """Run one job on its own switches.

    Args:
        fabric_spec: The switches to start.
        spec: The job.
        on_output: Called with the output of workers.
        on_progress: Called with the reports of all ranks.

    Raises WorkerFailed if it failed, or the error that prevented it from running.
    """
    with open_fabric(fabric_spec, [spec.children]) as fabric:
        end = JobRun(spec)
        run_jobs(FabricLauncher(fabric), [end], on_output=on_output, on_progress=on_progress)
    end.check()
    assert end.result is not None
    return end.result
