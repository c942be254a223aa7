"""One event-driven simulator for all schedulers; the live controller uses the same policies.

``simulate(jobs, cluster, policy, speed)`` → `SimulationResult`; ``measure(result)`` → `Metrics`. Readers of
traces are in `controller.simulator.traces`, speed models in `controller.policies.scheduling.speed`.
"""

from controller.simulator.engine import EndedJob, Metrics, SimulationResult, measure, simulate

__all__ = ["EndedJob", "Metrics", "SimulationResult", "measure", "simulate"]
