"""GPU sharing for heterogeneous job sizes, after a patent whose formulas are lost.

Each module says which parts are our own. `forests` profiles a job by running it beside reference jobs, and
predicts from the profiles how fast jobs will be on shared GPUs; `packing` says which jobs share GPUs,
`policy` in which order they run and when they are preempted, and `interference` what a preemption costs. The
true speeds come from `pairs`: speeds of jobs on one GPU are measured or synthetic, and the speeds of jobs of
several GPUs are derived from them.
"""
