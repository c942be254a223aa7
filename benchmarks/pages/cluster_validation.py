"""Validation of the flow-level simulator: completion times beside the packet testbed's.

Each scenario is run packet by packet in the virtual testbed, and as flows, in phases and on average: one to
sixteen jobs on one switch or on two racks, with a policy for switch memory.
"""

from __future__ import annotations

from benchmarks.pages.cases import LANES, RESENT, WINDOW
from benchmarks.pages.validation_findings import findings
from benchmarks.pages.validation_page import plots, tables
from benchmarks.pages.validation_runs import COUNTS, cases, scenarios
from bmv2_topos.harness import Experiment, columns

QUESTION = """
How far off are completion times of `ina cluster simulate` from those of the [virtual
testbed](../testbeds.md), which runs the compiled P4 and the host library packet by packet?
"""

ABOUT = f"""
{len(cases())} scenarios. 40 are random: {", ".join(map(str, COUNTS[:-1]))} or {COUNTS[-1]} jobs of 2 to 4
workers on one switch, or on two racks under a spine, with links of 10 Gb/s and 2 µs, windows of {WINDOW}
packets of {LANES} values, one to three tensors of 4,096 to 32,768 elements, and no, 5 % or 10 % of jitter in
computing; memory is scarce in half of them. 24 are six sets of jobs with deadlines, each under four policies
for memory that does not suffice.

No parameter is fitted to a scenario. The flow model derives its properties of packets from the setting:
frames are 326 bytes for 256 of gradients; the first {WINDOW} packets of a tensor only announce exponents; a
tensor takes a round trip beside its bits; the slowest rank's skew is that of the jitter's distribution; and
where ranks are skewed a job holds as many slots as its window has packets. Of what several jobs send over
one link {RESENT:.1%} for each further job is sent again, as is counted in the testbed, in the scenarios
with even numbers as in the others. Two settings are the same everywhere and were chosen on such runs: runs
of slots that meet at random cover each other, unless there is room for twice as much
(`controller/simulator/network/collisions.py`), and the round trip has 5 µs for the hosts' polling.

*In phases* is `--model phases`, *average* `--model average`. *Broken* are deadlines missed in phases by jobs
that had been granted slots on arrival, and lost them later. The last table is of one job of four workers,
packet by packet.
"""

LIMITS = f"""
The figures are of one run over all scenarios, of up to {COUNTS[-1]} jobs. Both settings were chosen on runs
like these, though not on each.
"""

EXPERIMENT = Experiment(
    name="cluster-validation",
    title="The flow-level simulator beside packets",
    question=QUESTION,
    about=ABOUT,
    scenarios=scenarios,
    measure=columns,
    tables=tables,
    findings=findings,
    limits=LIMITS,
    plots=plots,
)
