"""Scheduler, placement, memory and trees: what each brings alone, and what all bring together.

Generated jobs as flows: placements over memory and oversubscription, routing over the share of switches that
sum, and schedulers with placement and memory, one exchanged at a time and all at once.
"""

from __future__ import annotations

from benchmarks.pages.together_findings import (
    FIFTH,
    PUBLISHED_AT_A_FIFTH,
    PUBLISHED_PLACEMENT,
    PUBLISHED_ROUTING,
    findings,
)
from benchmarks.pages.together_page import plots, tables
from benchmarks.pages.together_runs import ITERATIONS, JOBS, SEEDS, USUAL, scenarios
from bmv2_topos.harness import Experiment, columns

QUESTION = f"""
What does each of these decisions bring on a cluster whose links and slots jobs contend for, and what do they
bring together? NetPack (ASPLOS'24) reports completion times up to {PUBLISHED_PLACEMENT:.0%} shorter by
placement alone, GRID (ToN 2023) {PUBLISHED_ROUTING:.0%} more throughput than sums in the racks only,
{PUBLISHED_AT_A_FIFTH} times as much where {FIFTH:.0%} of the switches sum.
"""

ABOUT = f"""
As flows: `ina cluster simulate --model average`, {JOBS} generated jobs (ResNet-50, VGG-16, BERT-base; 2 to 24
workers), 20 s between arrivals, two spines and four racks of eight servers with four GPUs, links of 100 Gb/s,
slots held for 40 µs. {len(SEEDS)} seeds, half of them drawn after all policies were fixed; cells are means
(least..most). How far off such times are is on [a page of its own](cluster-validation.md).

Placement is compared under `fifo-backfill` and shared memory, over slots of each switch and the rate of each
link between switches, and where half of the servers, drawn by the seed, have links of 10 Gb/s. *Together*
({USUAL[0]} slots) begins with `fifo-backfill`, `locality` and `static` and exchanges each for `srsf`,
`netpack` and `shared`, alone, in pairs and all; the last row spreads jobs instead. Routing is compared on
rates in the steady state, of twelve jobs of 8 or 16 workers, placed at random, that send all the time, over
the share of switches that sum. *ecmp* sums in the racks as `tor-only` does, and spreads jobs over shortest
paths by chance; *ecmp-everywhere* also sums at every switch on these paths that can.

NetPack's *estimate* is the iteration that water-filling foresees when a batch of such jobs, all there at
once, is placed; it is compared with {ITERATIONS} iterations in phases of all of them beside each other.
"""

LIMITS = f"""
One shape of cluster, generated jobs, and {len(SEEDS)} seeds; times are computed, not measured. Restarts under
SRSF cost nothing.
"""

EXPERIMENT = Experiment(
    name="together",
    title="Scheduler, placement, memory and trees: each alone, and together",
    question=QUESTION,
    about=ABOUT,
    scenarios=scenarios,
    measure=columns,
    tables=tables,
    findings=findings,
    limits=LIMITS,
    plots=plots,
)
