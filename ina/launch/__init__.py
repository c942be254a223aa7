"""Starts the workers of jobs on this machine or by ssh, Slurm or Ray, and reports how they end.

This package sends no requests to switches: `ina.service` admits a job, and passes the job's switch
entries to this package. It prints nothing and sets no exit codes: results go to callbacks and to `logging`,
and failures are exceptions of `ina.errors`.

=====================  =========================================================================
`spec`                 the parts of a run, and the result of each job: plain data
`job_run`              the workers of an admitted job, from start to end; `group_run`: of several jobs at once
`hosts`                where workers run, and how they reach their switch (`testbed_hosts`, `machine_hosts`)
`agents`               start processes on other machines, by ssh or the like
`executor`             runs that outlive the controller: each a process (`runner`), here or by an engine
`orders`               what a runner must do (`RunOrder`), and the status that it reports
`job_file`             jobs of a job file, and the options that override it
`metrics`              metrics of ended jobs
=====================  =========================================================================
"""

PRIVATE = "unix"
"""P4Runtime address that stands for a Unix socket in a folder that only this user can enter
(softswitch/p4runtime/server.py)."""
