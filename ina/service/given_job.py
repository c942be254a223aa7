"""A job that a controller has admitted, for ranks that somebody else has started on its servers."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace

from ina.runtime.errors import BadRun
from ina.runtime.hosts import UdpHosts
from ina.runtime.launch import Admitted
from ina.runtime.machine_hosts import identified, reached_at, switch_address
from ina.service.orders import RunOrder
from ina.service.plain import record_of
from ina.service.runner import given, topology_of


def given_job(
    text: str, machines: Sequence[Sequence[int]], known_as: Sequence[Sequence[str]]
) -> tuple[Admitted, str]:
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
    spec = replace(
        job.spec,
        job=replace(job.spec.job, workers=sum(map(len, machines))),
        machines=tuple(tuple(ranks[server]) for server in job.servers),
        places=job.servers,
        # Ranks are not in the order of servers: each server counts as one worker, whichever ranks it has.
        hierarchical=True,
    )
    first = next(name for name in names if 0 in ranks[name])
    return given(order, spec, UdpHosts(switch_address(topology))), reached_at(topology, first)
