"""Resulting rates of jobs that share links and switch memory: water-filling (NetPack, ASPLOS'24).

The rates x of all jobs rise together from zero. The flows on link l must not exceed its capacity:
``Σ flows_jl · x_j <= C_l``. A job uses the memory of switch s in proportion to its rate:
``Σ x_j · RTT <= M_s``. When a link is full, the rates of its jobs stay constant, and all other rates continue
to rise. When the memory of a switch is full, the rates of its jobs continue to rise: the excess packets pass
unsummed to the next switch with free memory, or to the job's fallback server (ATP, NetPack).

The result is exact: between two events all loads grow linearly, and the next event is the time at which the
first load reaches its capacity. If there is enough memory, the rates are max-min fair.

The algorithm runs in C (`controller._native`); tests compare it with a version in NumPy
(`tests.twins.waterfill`).

Complexity: O(events · (resources + nodes that the event affects)); there is at most one event per resource.

>>> two_links = JobFlows.of(jobs=3, link_bps=[10.0, 4.0], nodes=[
...     FlowNode(job=0, link=0), FlowNode(job=1, link=0), FlowNode(job=1, link=1), FlowNode(job=2, link=1)])
>>> [float(rate) for rate in waterfill(two_links).rate_bps]
[8.0, 2.0, 2.0]
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from controller import _native

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

NONE = -1
SAME = 1 + 1e-12
"""Events at rates that differ by less than this factor count as one event."""


class FlowNode(NamedTuple):
    """A node of the tree of job number `job`: a switch or a server.

    `link` is the number of the link up to the node `parent`, and `back` is the number of the link on which
    results come down. `pool` is the memory in which the node sums; `NONE`: it only forwards. `source` is the
    flow that begins at the node: 1 for a server. `kept` is the part of a sum that goes up: 0 for a root that
    sends results down itself. `held` is the time for which a packet holds a slot, relative to the time that
    the pool's rate assumes. Parents come before their children.
    """

    job: int
    link: int = NONE
    back: int = NONE
    parent: int = NONE
    pool: int = NONE
    source: float = 1.0
    kept: float = 1.0
    held: float = 1.0


@dataclass(frozen=True)
class JobFlows:
    """Trees of all jobs, as arrays over `FlowNode`s in order of job number."""

    jobs: int
    link_bps: Floats
    pool_bps: Floats
    limit_bps: Floats
    job: Ints
    link: Ints
    back: Ints
    parent: Ints
    pool: Ints
    source: Floats
    kept: Floats
    held: Floats

    @classmethod
    def of(
        cls,
        *,
        jobs: int,
        link_bps: Sequence[float] | Floats,
        nodes: Sequence[FlowNode] | Floats,
        pool_bps: Sequence[float] | Floats = (),
        limit_bps: Sequence[float] | None = None,
    ) -> JobFlows:
        """Return the arrays of these nodes.

        Args:
            jobs: Number of jobs.
            link_bps: Capacity of each link, bits per second.
            nodes: The nodes of all jobs, in the jobs' order, parents before children; or an array with a row
                of `FlowNode`'s fields for each node.
            pool_bps: Capacity of each pool, bits per second.
            limit_bps: Maximum rate of each job, bits per second; None: no limits.
        """
        columns = dict(
            zip(
                FlowNode._fields,
                np.array(nodes, dtype=np.float64).reshape(-1, len(FlowNode._fields)).T,
                strict=True,
            )
        )
        numbers = {name: column.astype(np.int64) for name, column in columns.items()}
        return cls(
            jobs=jobs,
            link_bps=np.asarray(link_bps, dtype=np.float64),
            pool_bps=np.asarray(pool_bps, dtype=np.float64),
            limit_bps=np.full(jobs, np.inf) if limit_bps is None else np.asarray(limit_bps, np.float64),
            job=numbers["job"],
            link=numbers["link"],
            back=numbers["back"],
            parent=numbers["parent"],
            pool=numbers["pool"],
            source=columns["source"],
            kept=columns["kept"],
            held=columns["held"],
        )


@dataclass(frozen=True)
class SteadyRates:
    """The result of a water-filling.

    `rate_bps` has the rate of each job, infinite for a job without a limit. `bound_by` has, for each job, the
    number of the link that stopped the rise of the job's rate; -1: the job's own limit or nothing stopped it.
    `load_bps` is the load of links and pools. `spilled_at_bps` has, for each pool, the rate of the jobs at
    which the pool was full, infinite if it never was.
    """

    rate_bps: Floats
    bound_by: Ints
    load_bps: Floats
    spilled_at_bps: Floats


def waterfill(flows: JobFlows) -> SteadyRates:
    """Return the rates of all jobs, their limits and the loads. Raises NativeMissing, and MemoryError."""
    links, pools = len(flows.link_bps), len(flows.pool_bps)
    rates = (flows.link_bps, flows.pool_bps, flows.limit_bps)
    numbers = (flows.job, flows.link, flows.back, flows.parent, flows.pool)
    parts = (flows.source, flows.kept, flows.held)
    columns = [
        *(np.ascontiguousarray(each, dtype=np.float64) for each in rates),
        *(np.ascontiguousarray(each, dtype=np.int64) for each in numbers),
        *(np.ascontiguousarray(each, dtype=np.float64) for each in parts),
    ]
    given = _native.WaterfillFlows(
        *(flows.jobs, len(flows.job), links, pools),
        *(column.ctypes.data for column in columns),
    )
    steady = SteadyRates(
        np.empty(flows.jobs), np.empty(flows.jobs, np.int64), np.empty(links + pools), np.empty(pools)
    )
    into = (steady.rate_bps, steady.bound_by, steady.load_bps, steady.spilled_at_bps)
    if _native.load().waterfill(ctypes.byref(given), *(each.ctypes.data for each in into)):
        raise MemoryError(f"too little memory to compute the rates of {flows.jobs} jobs")
    return steady
