"""Memory policies by name."""

from __future__ import annotations

from collections.abc import Mapping

from controller.memory.common import common
from controller.memory.deadline import deadline, deadline_lazy
from controller.memory.earliest import earliest
from controller.memory.policy import Policy
from controller.memory.preemptive import preemptive, preemptive_ending
from controller.memory.static import static

POLICIES: Mapping[str, Policy] = {
    "deadline": deadline,
    "deadline-lazy": deadline_lazy,
    "static": static,
    "shared": common,
    "preemptive": preemptive,
    "preemptive-ending": preemptive_ending,
    "earliest": earliest,
}
