"""A job whose command is a driver of Ray: it runs once, on this machine, and Ray Train starts its workers.

Only imported with Ray installed.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence

from controller.vocabulary import Topology
from hostlib.launch.launcher import Output, Workers
from ina.launch import ray_agents, ray_train
from ina.launch.machine_hosts import reached_at


class _Nobody:
    """Ignores the end of the driver: its workers are Ray's."""

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
) -> tuple[str | None, Mapping[str, str]]:
    """Run the driver of a job to its end, or until it is stopped.

    Args:
        command: Its program and arguments.
        servers: The number of workers on each of the job's servers.
        topology: The cluster, with the addresses of its servers.
        inherited: See `Workers`.
        given: The run's order, as for ``ina admit --given``.
        on_output: Called with its output, as rank 0.
        stopping: Set to end it.
        on_placed: Called with the desired nodes of the workers.

    Returns:
        Its error, "" for none and None if it was stopped; and the servers that are gone, with reasons.

    Raises LaunchError: a server is no node of Ray, or the command cannot be run.
    """
    ray_agents.connect()
    at = ray_agents.placed({name: reached_at(topology, name) for name in servers})
    nodes = [at[name].number for name, workers in servers.items() for _ in range(workers)]
    driver = Workers(command, [ray_train.variables(given, nodes)], _Nobody(), on_output, inherited)
    on_placed(f"Ray Train on {', '.join(servers)}")
    failure = driver.wait(on_tick=lambda: driver.kill() if stopping.is_set() else None)
    if stopping.is_set():
        return None, {}
    alive = ray_agents.nodes()
    lost = {name: "its node of Ray has died" for name, node in at.items() if node.address not in alive}
    return ("" if failure is None else f"the driver {failure.reason}"), lost
