"""The job service, which carries out the core's decisions on a cluster, or for the time of one command.

Theory of operation
-------------------

One loop (`loop`) stores each input as an *event* (`ledger`, `store`), lets the core apply the event
(`controller.core`), and compares the desired state with the held state (`steps`). Each difference is an
*effect* (`effects`): admit a job to its switches, start, stop or move its workers. A thread (`threads`)
carries out an effect; the effect's end is an event, or a change of the held state (`holds`). The loop also
checks the runs (`runs`), the switches (`switches`) and the fallback servers (`fallback_jobs`); `reports`
describes the state of all of them.

Only events change the core, and the core is deterministic: after a crash the events are replayed into a
fresh core, which has the same desired state. The held state is found again, too: each run of workers is a
process of its own (`ina.launch.runner`), which does not end with the daemon, and has a folder that describes
it. Fallback servers keep the jobs of this service (`ina.fallback.servers`). Switches keep their entries,
which are compared with the stored holds (`controller.Fleet.reconcile`). So every effect can be interrupted
anywhere and retried.

`live` is such a service for the time of one command (`ina run`, `ina admit`, `ina schedule live`, scenarios).
Its state is in memory, its runs are threads of its process, and its switches belong to a fabric
(`fabric_network`); one switch of the fabric may be the root of all jobs' trees.

Layers; each imports only the layers below it: ``api`` (HTTP; the only one with status codes) → ``daemon``
(users' requests) → ``loop`` → ``effects``, ``runs``, ``switches``, ``reports`` → ``ledger`` → ``store``
(the only one with SQLite), ``executor`` (processes), ``network`` (switches) → ``steps``, ``records`` (pure).
"""
