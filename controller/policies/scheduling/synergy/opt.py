"""Synergy-OPT: the best allocation by linear programming, a reference for other allocators (OSDI'22, 4.3).

The first program divides the CPUs and the memory of one imaginary server that has the resources of all
servers. The second program distributes the resulting shares over the real servers. Rounding turns parts of
GPUs into whole GPUs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from controller.policies.scheduling.errors import needed
from controller.policies.scheduling.synergy.allocators import (
    SLACK,
    ShareGrant,
    SharePlan,
    TuneAllocation,
    runnable,
    top_up,
)
from controller.policies.scheduling.synergy.demand import Demand, Infeasible, Servers, ShareOption, Split

if TYPE_CHECKING:
    from numpy.typing import NDArray


@dataclass(frozen=True, slots=True)
class Optimum:
    """OPT's solution: `bound` is the throughput on one machine with the CPUs and the memory of all servers.

    No allocation can exceed `bound`. `fractional` is the number of jobs to which the second program gave
    parts of GPUs on several servers.
    """

    plan: SharePlan
    bound: float
    fractional: int


def opt(demands: Sequence[Demand], servers: Servers) -> Optimum:
    """Return Synergy-OPT's plan: jobs chosen as by TUNE, shares by `share_out`, servers by `spread`.

    Jobs to which the second program gives whole GPUs get these. All other jobs are placed as TUNE places
    jobs: these jobs and the jobs on the same servers may get their fallback shares. `top_up` distributes the
    resources that are left then. The second program gives parts of GPUs to at most three jobs per server (one
    for each resource). If servers differ, it may have no solution: then all jobs are placed as TUNE places
    jobs.

    Raises ExtraMissing without scipy; Infeasible if the first program has no solution.
    """
    chosen, waiting = runnable(demands, servers.gpus)
    if not chosen:
        return Optimum(SharePlan((), tuple(waiting)), 0.0, 0)
    options, bound = share_out(chosen, servers)
    try:
        parts = spread(chosen, options, servers)
    except Infeasible:  # the first program ignores which of unequal servers has the CPUs
        parts = np.zeros((len(servers), len(chosen)))
    grants, fractional = _round(chosen, options, parts, servers)
    plan = top_up(SharePlan(tuple(grants), tuple(waiting)), servers)
    return Optimum(plan, bound, fractional)


def share_out(
    demands: Sequence[Demand], servers: Servers, *, counts: Sequence[int] = ()
) -> tuple[list[ShareOption], float]:
    """Solve the first program: choose an option for each job so that the sum of speeds is largest.

    maximise Σ gpus · speed[j, o] · y[j, o], with y 0 or 1, subject to Σ_o y[j, o] = 1 for each job, and Σ
    cpus · gpus · y and Σ memory · gpus · y within the cluster's. All options of a job are at least as fast as
    its fair share, so the published constraint on speeds always holds. Options that cost more than other
    options and are no faster may be left out without effect on the optimum. `counts`, if given, replaces the
    jobs' numbers of GPUs in the objective.

    Returns the options and the value of the program. Raises Infeasible if the solver finds no solution.
    """
    weights = counts or [d.gpus for d in demands]
    columns, y, value = _first_program(demands, servers, weights)
    chosen: list[tuple[float, ShareOption | None]] = [(0.0, None)] * len(demands)
    for (j, option), weight in zip(columns, y, strict=True):
        if weight > chosen[j][0]:
            chosen[j] = (float(weight), option)
    return [option for _, option in chosen if option is not None], value


def _first_program(
    demands: Sequence[Demand], servers: Servers, weights: Sequence[int]
) -> tuple[list[tuple[int, ShareOption]], NDArray[np.float64], float]:
    optimize = needed("scipy.optimize", "Synergy-OPT", "scipy")
    columns = [(j, o) for j, d in enumerate(demands) for o in d.options]
    rows = np.zeros((len(demands) + 2, len(columns)))
    for column, (j, option) in enumerate(columns):
        rows[j, column] = 1.0
        rows[-2, column] = demands[j].gpus * option.cpus
        rows[-1, column] = demands[j].gpus * option.memory_gb
    low = np.concatenate([np.ones(len(demands)), np.zeros(2)])
    high = np.concatenate([np.ones(len(demands)), [servers.cpus + SLACK, servers.memory_gb + SLACK]])
    result = optimize.milp(
        -np.array([weights[j] * o.speed for j, o in columns]),
        constraints=optimize.LinearConstraint(_sparse(rows), low, high),
        integrality=np.ones(len(columns)),
        bounds=optimize.Bounds(0, 1),
        options={"mip_rel_gap": 1e-9},
    )
    if result.x is None:
        raise Infeasible(f"no shares for {len(demands)} jobs on {len(servers)} servers: {result.message}")
    return columns, result.x, -float(result.fun)


def spread(
    demands: Sequence[Demand], options: Sequence[ShareOption], servers: Servers
) -> NDArray[np.float64]:
    """Solve the second linear program; return the fraction of each job on each server, shape (servers, jobs).

    Any feasible solution is good enough. The simplex method returns a vertex: at most three jobs per server
    are split between servers. Raises Infeasible if there is no solution.
    """
    optimize = needed("scipy.optimize", "Synergy-OPT", "scipy")
    jobs = len(demands)
    needs = np.array(
        [
            [d.gpus for d in demands],
            [d.gpus * o.cpus for d, o in zip(demands, options, strict=True)],
            [d.gpus * o.memory_gb for d, o in zip(demands, options, strict=True)],
        ]
    )
    caps = np.array([[s.gpus, s.cpus, s.memory_gb] for s in servers.shapes])
    number = len(servers)
    limits = np.zeros((3 * number, number * jobs))
    for server in range(number):
        limits[3 * server : 3 * server + 3, server * jobs : (server + 1) * jobs] = needs
    whole = np.tile(np.eye(jobs), number)
    result = optimize.linprog(
        np.zeros(number * jobs),
        A_ub=_sparse(limits),
        b_ub=caps.ravel() + 1e-6,
        A_eq=_sparse(whole),
        b_eq=np.ones(jobs),
        bounds=(0, 1),
        method="highs-ds",
    )
    if result.x is None:
        raise Infeasible(f"no servers for the shares of {jobs} jobs on {number} servers: {result.message}")
    parts: NDArray[np.float64] = result.x.reshape(number, jobs)
    return parts


def _round(
    demands: Sequence[Demand],
    options: Sequence[ShareOption],
    parts: NDArray[np.float64],
    servers: Servers,
) -> tuple[list[ShareGrant], int]:
    """Return the grants, and how many jobs were placed as by TUNE because their parts are not whole GPUs."""
    tuning = TuneAllocation(servers)
    broken = []
    for j, (job, option) in enumerate(zip(demands, options, strict=True)):
        split = _whole(parts[:, j] * job.gpus)
        if split is None:
            broken.append((job, option))
        else:
            tuning.run(job, option, split)
    for job, option in sorted(broken, key=lambda b: (-b[0].gpus, -b[1].cpus, -b[1].memory_gb)):
        tuning.add(job, option)
    return [tuning.grant(job) for job in demands], len(broken)


def _whole(gpus: NDArray[np.float64]) -> Split | None:
    nearest = np.rint(gpus).astype(int)
    if not nearest.any() or np.abs(gpus - nearest).max() > 1e-6:
        return None
    return tuple((int(s), int(nearest[s])) for s in np.flatnonzero(nearest))


def _sparse(matrix: NDArray[np.float64]) -> object:
    from scipy.sparse import csr_array

    return csr_array(matrix)
