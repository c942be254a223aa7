"""Synergy's policies by name: an order of the jobs and a way to allocate."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from controller.policies.scheduling.errors import BadSpec
from controller.policies.scheduling.synergy.demand import Demand, Servers
from controller.policies.scheduling.synergy.drf import drf
from controller.policies.scheduling.synergy.fleet import Plan
from controller.policies.scheduling.synergy.greedy import greedy
from controller.policies.scheduling.synergy.opt import opt
from controller.policies.scheduling.synergy.policy import RANKS, Allocator, SynergyPolicy, by_arrival
from controller.policies.scheduling.synergy.proportional import proportional
from controller.policies.scheduling.synergy.speed import DemandOf
from controller.policies.scheduling.synergy.tetris import tetris
from controller.policies.scheduling.synergy.top_up import top_up
from controller.policies.scheduling.synergy.tune import tune


def _opt(demands: Sequence[Demand], servers: Servers) -> Plan:
    return opt(demands, servers).plan


def tune_and_top_up(demands: Sequence[Demand], servers: Servers) -> Plan:
    """Allocate as TUNE on full or on empty servers, whichever is better, and distribute what is left over.

    Not part of Synergy. Like TUNE it leaves no job slower than its fair share, and its throughput is no less.
    """
    plans = [tune(demands, servers, spread=spread) for spread in (False, True)]
    return top_up(max(plans, key=lambda plan: plan.throughput), servers)


ALLOCATORS: Mapping[str, Allocator] = {
    "proportional": proportional,
    "greedy": greedy,
    "tune": tune,
    "tune+top-up": tune_and_top_up,
    "opt": _opt,
    "drf": drf,
    "tetris": tetris,
}


def synergy(
    order: str, allocator: str, demand_of: DemandOf, *, round_s: float = 300.0, stay: bool = False
) -> SynergyPolicy:
    """Return a fresh policy, such as `srtf` with `tune`.

    Args:
        order: One of `RANKS`. DRF and Tetris, which have their own order, use it only to break ties.
        allocator: One of `ALLOCATORS`.
        demand_of: Returns a job's demand; `demands_by_matrix` makes it.
        round_s: Length of a round.
        stay: Running jobs stay where they are, if their share is there.

    Raises BadSpec for an unknown name.
    """
    for name, known in ((order, RANKS), (allocator, ALLOCATORS)):
        if name not in known:
            raise BadSpec(f"{name!r} is not among Synergy's {', '.join(known)}")
    rank = RANKS[order]
    return SynergyPolicy(
        f"{order}+{allocator}",
        rank,
        ALLOCATORS[allocator],
        demand_of,
        round_s=round_s,
        drifts=rank is not by_arrival or allocator == "tetris",
        by_work=allocator == "tetris",
        stay=stay,
    )
