"""What runs of jobs consist of: switches that are started or found, entries in them, workers.

Beside the command line this is the only package that brings softswitch, controller and hostlib together,
through their public roots. It prints nothing and knows no exit codes: results go to callbacks, to `logging`,
and into the errors of `ina.runtime.errors`.

=====================  =========================================================================
`spec`                 the parts of a run, and the result of each job: plain data
`fabric`               the switches of a run, started or found running, and the fallback server
`hosts`                where workers run, and how they reach their switch (`testbed_hosts`, `machine_hosts`)
`admission`            a job's entries in the switches
`launch`               the workers of an admitted job, whoever admitted it
`job_file`             jobs from a job file and the options beside it
`metrics`              metrics of jobs that ran
=====================  =========================================================================
"""

PRIVATE = "unix"
"""P4Runtime at a Unix socket in a folder that only this user can enter (softswitch/p4runtime/server.py)."""
