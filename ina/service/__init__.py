"""The job service, by the core's decisions: on a cluster, or for the time of one command.

Theory of operation
-------------------

One loop (`loop`), in this order: it writes each input down as an *event* (`ledger`, `store`), the deciding
core applies the event (`controller.core`), and `steps` compares the desired state with the held state. Each
difference is an *effect* (`effects`): admit a job to its switches, start, stop or move its workers. A thread
(`threads`) carries out an effect; its end is an event, or a change of the held state (`holds`). The loop also
checks the runs (`runs`), the switches (`switches`) and the fallback servers (`fallback_jobs`); `reports`
describes the state of all of them.

Only events change the core, and the core is deterministic: after a crash the events are replayed into a
fresh core, which has the same desired state. The held state is found again, too. Each run of workers is a
process of its own (`ina.launch.runner`), which does not end with the daemon, and has a folder that describes
it. Fallback servers keep the jobs of their owner, the state (`ina.fallback.servers`). Switches keep their
entries, which are compared with the stored holds (`controller.Fleet.reconcile`). So every effect can be
interrupted anywhere, and be retried.

`live` is such a service for the time of one command (`ina run`, `ina admit`, `ina schedule live`, scenarios):
its state is in memory, its switches belong to a fabric (`fabric_network`), one of which may stand for the
root of each job's tree, and its runs are threads of its process.

Layers, each of which knows only the layers below it: ``api`` (HTTP; alone knows status codes) → ``daemon``
(users' requests) → ``loop`` → ``effects``, ``runs``, ``switches``, ``reports`` → ``ledger`` → ``store``
(alone knows SQLite), ``executor`` (processes), ``network`` (switches) → ``steps``, ``records`` (pure).
"""
