"""GPU sharing for heterogeneous job sizes, after a patent whose formulas are lost.

Each module names our own parts. `forests` profile a job by running it beside reference jobs, and predict
from that how fast any two jobs will be on shared GPUs; `packing` says which jobs share them, `policy` in
which order they run, and `interference` when jobs may be preempted. The true speeds come from `pairs`: of
jobs on one GPU, measured or synthetic, and from these of jobs of several GPUs.
"""
