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
Who meets a deadline when jobs fight over switch memory, and who pays for it? INAlloc (INFOCOM'23) grants
deadline jobs the slots that their deadlines need and shares the rest; its authors report
{PUBLISHED_MISSES:.0%} fewer missed deadlines and completion times {PUBLISHED_TIMES:.0%} shorter.
"""

ABOUT = f"""
As flows (`ina cluster simulate`, `average`): {JOBS} jobs of four workers with a computing time of 0.5, 1 or 2
times that of sending, 100 to 400 iterations, arriving by chance so that about {LOAD} run at a time; half of
them have a deadline of *slack* times what they take alone. Every job has servers and a fallback server of its
own on one switch with links of 100 Gb/s: **memory is all that they fight over.** Memory is given in parts of
what one job needs at the full rate of its links ({FULL:,} slots). A slot is held for {HOLD_S * 1e6:.0f} µs, a
round trip is 20 µs. Memory is divided anew when jobs start or end, and every 5 s.

`static`, `shared` (first come, first served), `preemptive` and `deadline` are [the
policies](../allocation.md#policies) as published; `deadline-lazy` is ours: everybody shares, and only
deadlines that an equal part of the shared slots does not do for are granted slots of their own, most urgent
first. `preemptive-ending` ends hopeless jobs as `deadline` does, and `earliest` grants needs by deadline and
then the rest by deadline: simple policies to compare with. A job that is *ended* (its deadline cannot be met
any more) counts as missed.

Missed deadlines are those of all {len(SEEDS)} seeds (least..most of a seed), half of which were drawn after
all policies were fixed. Completion times are means over the jobs with deadlines that were done / over the
others, against `shared`. With GPUs that jobs wait for, {SERVERS} servers are common, and the scheduler knows
no deadlines (`fifo-backfill`, `srsf`) or is told them (`edf`). The article's formula takes a slot to be held
for a round trip, 20 µs.

Packet by packet: six jobs of four workers with windows of {WINDOW} packets, {SMALL_ITERATIONS} iterations, on
one switch of the virtual testbed, three of them with deadlines of 1.15 to 1.5 times what they take alone, and
beside that the same as flows in phases; a job alone needs {WINDOW} slots. Jobs are not ended there, and go on
unsummed. The last table is of one job of four workers that is given other slots after a third and two thirds
of {CHANGING.iterations} iterations, packet by packet.
"""

LIMITS = f"""
One switch, generated jobs, {len(SEEDS)} seeds; flows are not packets ([how far off](cluster-validation.md)),
and with six jobs of twelve iterations the packet table is small. Restarts and moves cost nothing as flows.
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
