"""Runs jobs, by the core's decisions: as a service on a cluster, and as a service of one command.

Theory of operation
-------------------

One loop (`loop`) stores each input as an *event* (`ledger`, `store`), applies it to the deciding core
(`controller.core`), and compares the core's desired state with the held runs (`holds`, `steps`). Each
difference is an *effect* (`effects`): admit a job to its switches; start, stop or move its workers. An effect
runs in a thread (`threads`); its end is an event, or a change of a held run. The loop also polls runs
(`runs`), switches (`switches`) and fallback servers (`fallback_jobs`). `reports` describes the state.

Only events change the core, and the core is deterministic: after a crash the stored events are replayed into
a fresh core, whose desired state is the same as before. Held runs are found again, too: each run is a process
of its own (`ina.launch.runner`), which outlives the daemon and has a folder with its description. Fallback
servers keep the jobs of their owner, the state (`ina.fallback.servers`). Switches keep their entries, which
are compared with the stored ones (`controller.Fleet.reconcile`). So an effect can stop at any point, and be
repeated.

`live` is such a service for the time of one command (`ina run`, `ina admit`, `ina schedule live`, scenarios):
its state is in memory, its switches are a fabric (`fabric_network`), one of which may stand for the root of
each job's tree, and its runs are threads of its process.

Layers, each of which knows only those below it: ``api`` (HTTP; alone knows status codes) → ``daemon`` (what
people want) → ``loop`` →
``effects``, ``runs``, ``switches``, ``reports`` → ``ledger`` → ``store`` (alone knows SQLite), ``executor``
(processes), ``network`` (switches) → ``steps``, ``records`` (pure).
"""
