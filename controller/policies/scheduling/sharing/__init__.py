"""GPU sharing for heterogeneous job sizes, after a patent whose formulas are lost.

Each module says which parts are our own. `forests` profiles a job by running it beside reference jobs, and
predicts from the profiles how fast jobs will be on shared GPUs. `packing` chooses the jobs that share GPUs.
`policy` determines the order of jobs and preempts jobs (`scheduling.speed` has the cost of that). `pairs` has
the true speeds: measured or synthetic speeds for pairs of jobs on one GPU, from which the speeds of jobs with
several GPUs are derived.
"""
