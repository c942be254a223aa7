"""Synergy: CPUs and memory by sensitivity, not by GPU share (Mohan et al., OSDI'22).

`profiling`, or a file that `demand.read_profiles` reads, provides a job's `Sensitivity` matrix. `demand`
computes the job's `Demand` on given servers from the matrix. An allocator (`allocators`, `opt`) makes a
`SharePlan` from a list of demands in priority order. `family` combines an order of jobs and an allocator to a
scheduling policy. `policy.ShareSpeed` is the speed model.
"""
