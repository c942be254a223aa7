"""Synergy: CPUs and memory by sensitivity, not by GPU share (Mohan et al., OSDI'22).

`profiling` or `matrix_csv` give a job's `Sensitivity`, `demand` turns it into a `Demand` on one server shape,
and an allocator makes a `Plan` of a list of demands in priority order. `synergy` makes a scheduling policy of
an order and an allocator, for jobs that run at `SharedSpeed`.
"""

from controller.policies.scheduling.synergy.demand import Demand, Option, Servers, ServerShape, demand
from controller.policies.scheduling.synergy.drf import drf
from controller.policies.scheduling.synergy.errors import BadDemand, BadMatrix, Infeasible, SynergyError
from controller.policies.scheduling.synergy.fleet import Grant, Plan
from controller.policies.scheduling.synergy.greedy import greedy
from controller.policies.scheduling.synergy.matrix import Sensitivity
from controller.policies.scheduling.synergy.matrix_csv import ModelProfile, read_profiles
from controller.policies.scheduling.synergy.opt import Optimum, opt, relaxed_bound
from controller.policies.scheduling.synergy.policies import synergy
from controller.policies.scheduling.synergy.policy import (
    SynergyPolicy,
    demands_by_matrix,
    server_shape,
    servers_of,
)
from controller.policies.scheduling.synergy.profiling import Dataset, Profile, profile
from controller.policies.scheduling.synergy.proportional import proportional
from controller.policies.scheduling.synergy.speed import SharedSpeed
from controller.policies.scheduling.synergy.tetris import tetris
from controller.policies.scheduling.synergy.top_up import top_up
from controller.policies.scheduling.synergy.tune import tune

__all__ = [
    "BadDemand",
    "BadMatrix",
    "Dataset",
    "Demand",
    "Grant",
    "Infeasible",
    "ModelProfile",
    "Optimum",
    "Option",
    "Plan",
    "Profile",
    "Sensitivity",
    "ServerShape",
    "Servers",
    "SharedSpeed",
    "SynergyError",
    "SynergyPolicy",
    "demand",
    "demands_by_matrix",
    "drf",
    "greedy",
    "opt",
    "profile",
    "proportional",
    "read_profiles",
    "relaxed_bound",
    "server_shape",
    "servers_of",
    "synergy",
    "tetris",
    "top_up",
    "tune",
]
