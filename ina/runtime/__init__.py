"""Runs jobs: starts or finds their switches, admits them, starts their workers, and stops everything again.

Beside the command line this is the only package that brings softswitch, controller and hostlib together,
through their public roots. It prints nothing and knows no exit codes: results go to callbacks, to `logging`,
and into the errors of `ina.runtime.errors`.

=====================  =========================================================================
`spec`                 the parts of a run, and the result of each job: plain data
`run`                  jobs that this process admits and launches, from start to end: start reading here
`fabric`               the switches of a run, started or found running, and the fallback server
`hosts`                where workers run, and how they reach their switch (`testbed_hosts`, `machine_hosts`)
`admission`            a job's entries in the switches
`served`               a job that this process admits, from its admission to its removal: its lease
`launch`               the workers of an admitted job, whoever admitted it
`jobs`                 jobs at the same time; in turns on storage, CPU, GPU and network
`profiling`            the stage times of a job, measured
`job_file`             jobs from a job file and the options beside it
`metrics`              metrics of jobs that ran
=====================  =========================================================================
"""

PRIVATE = "unix"
"""P4Runtime at a Unix socket in a folder that only this user can enter (softswitch/p4runtime/server.py)."""
