"""Scheduling policies, and the interface through which simulator and live controller use them.

Read `controller.policies.scheduling.policy` first. Each policy has a module of its own; policies that consist
of a rank only are in `baselines`.
"""

from controller.policies.scheduling.errors import (
    BadDecision,
    BadSpec,
    BadTrace,
    ExtraMissing,
    SchedulingError,
    Stuck,
)
from controller.policies.scheduling.model import RESOURCES, Submission
from controller.policies.scheduling.policy import Decision, Group, JobState, Policy, SpeedModel, View
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
