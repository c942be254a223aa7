"""Memory policies by name."""

from __future__ import annotations

from collections.abc import Mapping

from controller.policies.memory.common import common
from controller.policies.memory.deadline import deadline, deadline_lazy
from controller.policies.memory.earliest import earliest
from controller.policies.memory.policy import Policy
from controller.policies.memory.preemptive import preemptive, preemptive_ending
from controller.policies.memory.static import static

POLICIES: Mapping[str, Policy] = {
    "deadline": deadline,
    "deadline-lazy": deadline_lazy,
    "static": static,
    "shared": common,
    "preemptive": preemptive,
    "preemptive-ending": preemptive_ending,
    "earliest": earliest,
}
