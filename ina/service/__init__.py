"""Runs jobs, by the core's decisions: as a service on a cluster, and as a service of one command.

Theory of operation
-------------------

One loop (`loop`), in this order: what came is written down as an *event* (`ledger`, `store`), the deciding
core takes it in (`controller.core`), and what is to be is compared with what is held (`steps`). Each
difference is an *effect* (`effects`): admit a job to its switches, start, stop or move its workers. An effect
is carried out in a thread (`threads`), and its end is an event, or a change of what is held (`holds`). What
runs is looked at (`runs`), and so are the switches (`switches`) and fallback servers (`fallback_jobs`);
`reports` says how all is.

Nothing but events changes the core, and the core is deterministic: after a crash the events are replayed
into a fresh one, and it wants what it wanted. What is held is found again, too. Each run of workers is a
process of its own (`ina.launch.runner`), which does not end with the daemon, and has a folder that says what
it is. Fallback servers keep the jobs of their owner, the state (`ina.fallback.servers`).
Switches hold what they were told, and are compared with what was written down of it
(`controller.Fleet.reconcile`). So every effect can be broken off anywhere, and be tried again.

`live` is such a service for the time of one command (`ina run`, `ina admit`, `ina schedule live`, scenarios):
its state is in memory, its switches are those of a fabric (`fabric_network`), of which one may stand for the
root of each job's tree, and its runs are threads of its process.

Layers, each of which knows only those below it: ``api`` (HTTP; alone knows status codes) → ``daemon`` (what
people want) → ``loop`` →
``effects``, ``runs``, ``switches``, ``reports`` → ``ledger`` → ``store`` (alone knows SQLite), ``executor``
(processes), ``network`` (switches) → ``steps``, ``records`` (pure).
"""
