"""Synergy: CPUs and memory by sensitivity, not by GPU share (Mohan et al., OSDI'22).

`profiling` or `matrix_csv` give a job's `Sensitivity`, `demand` turns it into a `Demand` on one server shape,
and an allocator makes a `SharePlan` of a list of demands in priority order. `synergy` makes a scheduling
policy of an order and an allocator, for jobs that run at `ShareSpeed`.
"""
