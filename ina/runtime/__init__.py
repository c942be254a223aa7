"""Runs jobs: starts or finds their switches, admits them, starts their workers, and stops everything again.

Beside the command line this is the only package that brings softswitch, controller and hostlib together,
through their public roots. It prints nothing and knows no exit codes: results go to callbacks, to `logging`,
and into the errors of `ina.runtime.errors`.

=====================  =========================================================================
`spec`                 the parts of a run, and the result of each job: plain data
`run`                  one run from start to end: start reading here
`fabric`               the switches of a run, started or found running, and the fallback server
`admission`, `lease`   a job's entries in the switches, and their renewal
`job`, `jobs`          one job from its admission to its end; several at the same time
`job_group`            jobs that take turns on storage, CPU, GPU and network
`profiling`            the stage times of a job, measured
`job_file`             jobs from a job file and the options beside it
`metrics`              metrics of jobs that ran
=====================  =========================================================================
"""
