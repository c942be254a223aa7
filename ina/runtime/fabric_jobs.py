"""Jobs that this process admits to a fabric: their workers are started here, or by others."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Sequence

from hostlib.launch.launcher import JobLog
from ina.runtime.fabric import SwitchFabric, open_fabric
from ina.runtime.groups import Groups
from ina.runtime.hosts import Hosts
from ina.runtime.jobs import JobEnd, OnOutput, OnProgress, run_jobs
from ina.runtime.launch import JobRun, attend
from ina.runtime.metrics import metrics
from ina.runtime.served import ServedJob, served
from ina.runtime.spec import FabricSpec, JobResult, LaunchSpec


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
        end = JobEnd(spec)
        run_jobs(FabricLauncher(fabric), [end], on_output=on_output, on_progress=on_progress)
    end.check()
    assert end.result is not None
    return end.result
