"""Measures the stage times of a job, alone on a fabric."""

from __future__ import annotations

from hostlib import interleave
from ina.errors import StagesNotMeasured
from ina.launch.group_run import OnOutput
from ina.launch.spec import LaunchSpec
from ina.service.live import grouped
from ina.switches.fabric import SwitchFabric

LOOK_S = 0.2
"""Interval at which the progress of the job is looked at."""
WARM_UP = 2
"""Iterations that pay for first uses."""


def measure(
    fabric: SwitchFabric, spec: LaunchSpec, iterations: int, on_output: OnOutput
) -> interleave.StageProfile:
    """Run a job alone to measure its stage times.

    Args:
        fabric: The switches.
        spec: The job.
        iterations: Number of iterations to measure; the first ones do not count.
        on_output: Called with the output of workers.

    Raises the error with which it failed, or StagesNotMeasured if it ends without having marked its stages.
    """
    name = spec.job.name
    with grouped(fabric, [spec], (0,), on_output) as group:
        while not group.over.wait(LOOK_S) and group.turns.iterations(name) < iterations + WARM_UP:
            pass
    group.check()
    try:
        return interleave.job_profile([times[WARM_UP:] for times in group.turns.measured(name)])
    except interleave.StageError as error:
        raise StagesNotMeasured(
            f"job {name}: {error} after {group.turns.iterations(name)} iterations, of which"
            f" {WARM_UP} do not count; its program must mark its stages (hostlib.interleave.join)"
        ) from error
