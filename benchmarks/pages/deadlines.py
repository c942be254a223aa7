"""Deadlines: who meets them when jobs fight over switch memory, and who pays, by policy for memory.

As flows over memory, slack and load; packet by packet for the smallest setting; and one job whose region
grows and shrinks while it runs.
"""

from __future__ import annotations

from benchmarks.pages.cases import WINDOW
from benchmarks.pages.deadlines_findings import PUBLISHED_MISSES, PUBLISHED_TIMES, findings
from benchmarks.pages.deadlines_packets import CHANGING, SMALL_ITERATIONS
from benchmarks.pages.deadlines_page import plots, tables
from benchmarks.pages.deadlines_runs import FULL, HOLD_S, JOBS, LOAD, SEEDS, SERVERS, scenarios
from bmv2_topos.harness import Experiment, columns

QUESTION = f"""
Which jobs meet their deadlines when jobs compete for switch memory, and which are slowed down for it?
INAlloc (INFOCOM'23) grants deadline jobs the slots that their deadlines need and shares the rest; its
authors report {PUBLISHED_MISSES:.0%} fewer missed deadlines and completion times {PUBLISHED_TIMES:.0%}
shorter.
"""

ABOUT = f"""
As flows (`ina cluster simulate`, `average`): {JOBS} jobs of four workers with a computing time of 0.5, 1 or
2 times that of sending and 100 to 400 iterations. They arrive at random, so that about {LOAD} run at a
time; half of them have a deadline of *slack* times the time that they take alone. Every job has its own
servers and fallback server on one switch with links of 100 Gb/s: **jobs compete for memory only.** Memory
is given relative to the need of one job at the full rate of its links ({FULL:,} slots). A slot is held for
{HOLD_S * 1e6:.0f} µs, a round trip is 20 µs. Memory is divided anew when jobs start or end, and every 5 s.

`static`, `shared` (first come, first served), `preemptive` and `deadline` are [the
policies](../allocation.md#policies) as published; `deadline-lazy` is this project's: all jobs share the
slots, and only jobs that would miss their deadlines with an equal part are granted their own, most urgent
first. Two simple policies serve as baselines: `preemptive-ending` ends hopeless jobs as `deadline` does,
and `earliest` grants first the needed slots and then the rest in the order of deadlines. A job that is
*ended* (its deadline cannot be met any more) counts as missed. *Broken* are misses of jobs that had been
granted slots by the first division of memory after their arrival, and had none of their own later.

Missed deadlines are those of all {len(SEEDS)} seeds (least..most of a seed), half of which were drawn after
all policies were fixed. Completion times are relative to `shared`: the mean over completed jobs with
deadlines / the mean over the others. Where jobs wait for GPUs, they share {SERVERS} servers, and the
scheduler ignores deadlines (`fifo-backfill`, `srsf`) or uses them (`edf`). The article's formula assumes
that a slot is held for a round trip, 20 µs.

Packet by packet: six jobs of four workers with windows of {WINDOW} packets, {SMALL_ITERATIONS} iterations,
on one switch of the virtual testbed, three of them with deadlines of 1.15 to 1.5 times the time that they
take alone. The same jobs are also simulated as flows in phases. A job alone needs {WINDOW} slots. Hopeless
jobs are not ended there: they continue without slots. The last table is of one job of four workers that
gets other slots after a third and two thirds of {CHANGING.iterations} iterations, packet by packet.
"""

LIMITS = f"""
One switch, generated jobs, {len(SEEDS)} seeds; flows are not packets ([how far
off](cluster-validation.md)), and with six jobs of twelve iterations the packet table is small. In the
simulation of flows, restarts and moves cost nothing.
"""

EXPERIMENT = Experiment(
    name="deadlines",
    title="Deadlines and switch memory",
    question=QUESTION,
    about=ABOUT,
    scenarios=scenarios,
    measure=columns,
    tables=tables,
    findings=findings,
    limits=LIMITS,
    plots=plots,
)
