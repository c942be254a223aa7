"""The deciding core: which jobs run, where, on which trees and with which slots, and which jobs wait.

Theory of operation
-------------------

A `Core` is a pure object. *Events* (`events`) go in, in order of time: a job was submitted, reports its
progress, ended, or is past its deadline; a server, a switch or a link failed or came back; the time is now
`at_s` (`Tick`). A *desired state* (`desired`) comes out: the runs, their GPUs and servers, the trees and
slots of jobs that use the network, the stage at which each job starts its rounds, the waiting jobs, and the
time of the next tick. The core has no clock, threads, processes or files; the program that calls it
has them.

Deciding is a composition, in this order:

1. the **scheduling policy** decides which jobs run, in which groups, on how many GPUs, and, if it also
   chooses the places, on which GPUs (`controller.policies.scheduling.policy`);
2. the **placement policy** chooses servers for the jobs that start, the **routing policy** chooses trees over
   them, and the **memory policy** divides the switches' slots among all jobs that use the network
   (`allocation`, `allocator`). A job for which no servers have room waits, although its GPUs count as
   used; a job that can no longer meet its deadline is ended. Without a network the core skips this step.

The core decides only on a `Tick`; it records all other events and requests a tick. Jobs that end leave their
groups at once, and the other jobs of the groups continue. While servers are down (`Outages`), their GPUs are
unavailable and the jobs that ran there wait again. Jobs whose trees use a failed switch or link are rerouted
if possible.

The core predicts the jobs' progress by a speed model. Real jobs report their progress (`Rules.reported`). In
a simulator, jobs progress as predicted; the simulator only reports the speeds of jobs that use the network.

The `Log` has the reason for every decision, with the numbers that led to it. The core and its
policies keep state and are deterministic: **equal events give equal decisions**. A service uses this to
restart: it stores the events, as plain data, and replays them into a new core.

The simulator (`controller.simulator.engine`), ``ina cluster simulate``, ``ina schedule simulate`` and
``ina schedule live`` all drive this object; `compose` makes its parts from the names of its policies.
"""

from controller.core.core import Core, FinishedJob, Outcome, Rules
from controller.core.desired import Desired, Place, Run
from controller.core.events import (
    Cancelled,
    Ended,
    Event,
    Interrupted,
    LinkBack,
    LinkGone,
    Measured,
    Overdue,
    Progressed,
    Reallocated,
    Retried,
    ServerBack,
    ServerGone,
    Submitted,
    SwitchBack,
    SwitchGone,
    Tick,
)
from controller.core.reasons import Log, LogEntry

__all__ = [
    "Cancelled",
    "Core",
    "Desired",
    "Ended",
    "Event",
    "FinishedJob",
    "Interrupted",
    "LinkBack",
    "LinkGone",
    "Log",
    "LogEntry",
    "Measured",
    "Outcome",
    "Overdue",
    "Place",
    "Progressed",
    "Reallocated",
    "Retried",
    "Rules",
    "Run",
    "ServerBack",
    "ServerGone",
    "Submitted",
    "SwitchBack",
    "SwitchGone",
    "Tick",
]
