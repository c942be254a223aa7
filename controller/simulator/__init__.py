"""One event-driven simulator for all schedulers; its policies decide in the live controller too.

``simulate(jobs, cluster, policy, speed)`` → `Result`; ``measure(result)`` → `Metrics`. Trace readers
are in `controller.simulator.traces`, speed models in `controller.policies.scheduling.speed`.
"""

from controller.simulator.engine import simulate
from controller.simulator.record import EndedJob, Metrics, Result, measure

__all__ = ["EndedJob", "Metrics", "Result", "measure", "simulate"]
