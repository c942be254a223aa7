"""A job that a controller has admitted, for ranks that somebody else has started on its servers."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace

from ina.errors import BadRun
from ina.launch.hosts import UdpHosts
from ina.launch.job_run import JobRun
from ina.launch.machine_hosts import identified, reached_at, switch_address
from ina.launch.orders import RunOrder
from ina.launch.plain import record_of
from ina.launch.runner import given, launch_spec, topology_of


def given_job(
    text: str, machines: Sequence[Sequence[int]], known_as: Sequence[Sequence[str]]
) -> tuple[JobRun, str]:
    """Return a job whose ranks are there, and the address of the first rank's machine.

    Args:
        text: The order of the job's run, as JSON.
        machines: The ranks of each machine.
        known_as: Names and addresses by which each machine is known.

    Raises BadRun: the text is no order, or the ranks are not where the controller has placed the job.
    """
    try:
        order = record_of(RunOrder, json.loads(text))
        (job,) = order.jobs
    except ValueError as error:
        raise BadRun(f"INA_GIVEN is not as a controller sets it: {error}") from error
    topology = topology_of(order)
    names = [identified(topology, each) for each in known_as]
    if sorted(names) != sorted(job.servers):
        raise BadRun(
            f"the ranks are on {', '.join(names)}, but the controller has placed the job on "
            f"{', '.join(job.servers)}: want a rank or more on each of these"
        )
    ranks = dict(zip(names, machines, strict=True))
    here = replace(job, machines=tuple(tuple(ranks[server]) for server in job.servers))
    spec = launch_spec(here, switch=order.switch, places=job.servers)
    first = next(name for name in names if 0 in ranks[name])
    # Ranks are not in the order of servers: each server counts as one worker, whichever ranks it has.
    hierarchical = replace(spec, hierarchical=True)
    return given(order, hierarchical, UdpHosts(switch_address(topology))), reached_at(topology, first)
