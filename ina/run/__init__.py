"""The one runtime of jobs: starts, moves and ends them on a cluster as the core (`controller.core`) decides.

It runs as the controller, or inside one command such as ``ina run`` until the command ends.

Theory of operation
-------------------

One loop (`loop`) stores each input as an *event* (`ledger`, `store`), lets the core apply the event
(`controller.core`), and compares the desired state with the *held* state (`steps`): which runs hold GPUs and
switch entries at the moment. Each difference is a *step* (`steps`): start a run, stop it, or move a job to
other slots. The code that carries out a step is its *effect* (`effects`), which makes blocking calls in
threads (`threads`); when it ends, the loop records an event, or changes the held state. The loop also checks
the runs (`runs`), the switches and the fallback servers (`checks`). `reports` describes the state of all
of them.

Only events change the core, and the core is deterministic. So after a crash the events are replayed into a
new core, which then has the same desired state. The held state is found again, too: each run of workers is a
process of its own (`ina.run.launch.runner`), which does not end with the daemon, and has a folder that
describes it. Fallback servers keep the jobs of this service (`ina.run.fallback.remote`). Switches keep their
entries, which are compared with the stored holds (`controller.Fleet.reconcile`). So every effect can be
interrupted anywhere and retried.

`assembly` makes the controller's service (`daemon`) from a state on disk, a site and an engine.

`live` is such a service for the time of one command (`ina run`, `ina admit`, `ina schedule live`, scenarios).
Its state is in memory, its runs are threads of its process, and its switches belong to a fabric
(`fabric_network`); one switch of the fabric may be the root of all jobs' trees.

Layers; each imports only the layers below it: ``ina.api`` (HTTP; the only one with status codes) →
``daemon`` (users' requests) → ``loop`` → ``effects``, ``runs``, ``checks``, ``reports`` → ``ledger`` →
``store`` (the only one with SQLite), ``launch`` (processes), ``network`` (switches), ``fallback`` →
``steps``, ``records`` (pure).
"""
