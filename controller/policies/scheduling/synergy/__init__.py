"""Synergy: CPUs and memory by sensitivity, not by GPU share (Mohan et al., OSDI'22).

`profiling` or `matrix_csv` gives a job's `Sensitivity`, `demand` computes from it a `Demand` on given
servers, and an allocator (`allocators`, `opt`) makes a `SharePlan` from a list of demands in priority order.
`family` combines an order and an allocator to a scheduling policy; `policy.ShareSpeed` is the speed model.
"""
