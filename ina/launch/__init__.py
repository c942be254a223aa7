"""Starts the workers of jobs: here, by ssh, Slurm or Ray; their settings, and their ends.

This package sends no requests to switches: `ina.service`, which admits a job, passes its switches' entries.
It prints nothing, and knows no exit codes: results go to callbacks, to `logging`, and into `ina.errors`.

=====================  =========================================================================
`spec`                 the parts of a run, and the result of each job: plain data
`job_run`              the workers of an admitted job, from start to end; `group_run`: of jobs at once
`hosts`                where workers run, and how they reach their switch (`testbed_hosts`, `machine_hosts`)
`agents`               start processes on other machines, by ssh or the like
`executor`             runs that outlive the controller: a process each (`runner`), here or by an engine
`orders`               the order of such a run, and its status
`job_file`             jobs from a job file and the options beside it
`metrics`              metrics of jobs that ran
=====================  =========================================================================
"""

PRIVATE = "unix"
"""P4Runtime at a Unix socket in a folder that only this user can enter (softswitch/p4runtime/server.py)."""
