"""Which jobs run, where, and with whom: policies and the interface that simulator and live controller ask.

Read `controller.scheduling.policy` first. Policies are one per module, or one line in `baselines`.
"""

from controller.scheduling.errors import BadDecision, BadSpec, BadTrace, ExtraMissing, SchedulingError, Stuck
from controller.scheduling.model import RESOURCES, Cluster, JobSpec, Node
from controller.scheduling.policy import Decision, Group, JobState, Policy, SpeedModel, View

__all__ = [
    "RESOURCES",
    "BadDecision",
    "BadSpec",
    "BadTrace",
    "Cluster",
    "Decision",
    "ExtraMissing",
    "Group",
    "JobSpec",
    "JobState",
    "Node",
    "Policy",
    "SchedulingError",
    "SpeedModel",
    "Stuck",
    "View",
]
