"""What decides: which jobs run, where, on which trees, with which slots, and who waits.

Theory of operation
-------------------

A `Core` is a pure object. *Events* (`events`) go in, in order of time: a job was submitted, says how far it
is, is over; a server or a switch is gone, or back; it is so late (`Tick`). A *desired state* (`desired`)
comes out: the runs, their GPUs and servers, the trees and slots of jobs that use the network, whose rounds
begin at which stage, who waits, and when the core wants to be asked again. It knows no clock, no threads, no
processes and no files: whoever drives it has these. Two desired states differ by `difference`: what to stop,
what to change, what to start.

Deciding is a composition, in this order:

1. the **scheduling policy** says which jobs run, in which groups, on how many GPUs, and, if the servers are
   its own, on which (`controller.scheduling.policy`);
2. the **placement policy** finds servers for what has started, the **routing policy** trees over them, and
   the **memory policy** divides the switches' slots among all jobs that use the network (`allocation`,
   `allocator`). A job that no servers have room for waits, though its GPUs are counted; one whose deadline
   cannot be met any more is ended. Without a network this part is left out.

Only a `Tick` decides; all other events are noted, and ask for a tick. Jobs that end leave their groups at
once, and their partners go on. Where servers or switches are down (`losses`) their GPUs are not to be had,
jobs that ran there wait again, and jobs whose trees have a way around get it and go on.

How far jobs are the core foresees by a speed model. Real jobs report it (`Rules.reported`); a simulator lets
them run just as foreseen, and where they contend tells how fast they are.

Everything that is decided has its reason in the `Log`, with the numbers it was decided by. Policies keep
state and are deterministic, and so is the core: **the same events give the same decisions**. That is how a
service starts again: it keeps the events, as plain data, and replays them into a fresh core.

The simulator (`controller.simulator.engine`), ``ina cluster simulate``, ``ina schedule simulate`` and
``ina schedule live`` all drive this object; `compose` makes one by its policies' names.
"""

from controller.core.core import Core, Outcome, Over, Rules
from controller.core.desired import Action, Change, Desired, Place, Run, Start, Stop, difference
from controller.core.events import (
    Cancelled,
    Ended,
    Event,
    Interrupted,
    Progressed,
    Retried,
    ServerBack,
    ServerGone,
    Submitted,
    SwitchBack,
    SwitchGone,
    Tick,
)
from controller.core.log import Entry, Log

__all__ = [
    "Action",
    "Cancelled",
    "Change",
    "Core",
    "Desired",
    "Ended",
    "Entry",
    "Event",
    "Interrupted",
    "Log",
    "Outcome",
    "Over",
    "Place",
    "Progressed",
    "Retried",
    "Rules",
    "Run",
    "ServerBack",
    "ServerGone",
    "Start",
    "Stop",
    "Submitted",
    "SwitchBack",
    "SwitchGone",
    "Tick",
    "difference",
]
