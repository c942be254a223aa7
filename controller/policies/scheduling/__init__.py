"""Scheduling policies, and their interface to the simulator and the live controller.

Read `controller.policies.scheduling.policy` first. Each policy has a module of its own, except for the
policies that only rank jobs: these are in `baselines`.
"""

from controller.policies.scheduling.errors import (
    BadDecision,
    BadSpec,
    BadTrace,
    ExtraMissing,
    SchedulingError,
    Stuck,
)
from controller.policies.scheduling.policy import (
    RESOURCES,
    Decision,
    Group,
    JobState,
    Policy,
    SpeedModel,
    Submission,
    View,
)
from controller.vocabulary import Cluster, Server

__all__ = [
    "RESOURCES",
    "BadDecision",
    "BadSpec",
    "BadTrace",
    "Cluster",
    "Decision",
    "ExtraMissing",
    "Group",
    "JobState",
    "Policy",
    "SchedulingError",
    "Server",
    "SpeedModel",
    "Stuck",
    "Submission",
    "View",
]
