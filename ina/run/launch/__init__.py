"""Starts the workers of jobs on this machine or by ssh, Slurm or Ray, and reports how they end.

This package sends no requests to switches: `ina.run` admits a job, and passes the job's switch entries to
this package. It prints nothing and sets no exit codes: results go to callbacks and to `logging`,
and failures are exceptions of `ina.errors`.

=====================  =========================================================================
`spec`                 the parts of a run, and the result and metrics of each job: plain data
`job_run`              runs the workers of an admitted job; `group_run`: of several jobs at the same time
`hosts`                where workers run, and how they reach their switch (`testbed_hosts`, `machine_hosts`)
`agents`               start processes on other machines, by ssh or a similar command
`engines`              what starts the runs of a controller: this machine and ssh (`executor`), Slurm
                       (`slurm_runs`, `slurm`), Ray (`ray_runs`, `ray_agents`, `ray_train`)
`executor`             starts runs that go on when the controller ends, each in a process (`runner`)
`orders`               what a runner must do (`RunOrder`), and the status that it reports
=====================  =========================================================================
"""

PRIVATE = "unix"
"""P4Runtime address that means: a Unix socket in a new folder that only this user can enter
(softswitch/p4runtime/server.py)."""
