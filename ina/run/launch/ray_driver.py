"""Runs a job whose command is a driver of Ray: starts the command once, here; Ray Train starts the workers.

This module needs Ray.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence

from controller.vocabulary import Topology
from hostlib.launch.launcher import Output, Workers
from ina.run.launch import ray_agents, ray_train
from ina.run.launch.machine_hosts import reached_at


class _Nobody:
    """Ignores the end of the driver's process, which is not a rank."""

    def ended(self, rank: int, status: int, reason: str) -> None:
        """Do nothing."""


def drive(
    command: Sequence[str],
    servers: Mapping[str, int],
    topology: Topology,
    inherited: Sequence[str],
    *,
    given: str,
    on_output: Output,
    stopping: threading.Event,
    on_placed: Callable[[str], None],
) -> str | None:
    """Run the driver of a job to its end, or until it is stopped.

    Args:
        command: Program and arguments of the driver.
        servers: The number of workers on each of the job's servers.
        topology: The cluster, with the addresses of its servers.
        inherited: Patterns of the variables that the driver inherits; see `Workers`.
        given: The run's order as JSON, which the workers get in ``INA_GIVEN`` for ``ina admit --given``.
        on_output: Called with the driver's output, as rank 0.
        stopping: The caller sets this event to end the driver.
        on_placed: Called with a text that names the workers' servers.

    Return the driver's error; "": none; None: it was stopped.

    Raises LaunchError if a server is no node of Ray, or the command cannot be run.
    """
    ray_agents.connect()
    at = ray_agents.placed({name: reached_at(topology, name) for name in servers})
    nodes = [at[name].number for name, workers in servers.items() for _ in range(workers)]
    driver = Workers(command, [ray_train.variables(given, nodes)], _Nobody(), on_output, inherited)
    on_placed(f"Ray Train on {', '.join(servers)}")
    failure = driver.wait(on_tick=lambda: driver.kill() if stopping.is_set() else None)
    error = "" if failure is None else f"the driver {failure.reason}"
    return None if stopping.is_set() else error
