"""Cost of lost packets: goodput under loss relative to none, exclusive and shared, by size of the tensor.

One job does nothing but sum; every link loses packets at random, in both directions. Each run is made with
tail probes and without.
"""

from __future__ import annotations

from benchmarks.pages.loss_page import TARGETS, findings, plots, tables
from benchmarks.pages.loss_runs import (
    KINDS,
    SEEDS,
    SIZES_KB,
    SLOTS,
    STRAGGLER_S,
    WORKERS,
    measure,
    scenarios,
)
from bmv2_topos.harness import Experiment

_ASKED = "; ".join(
    f"{target.least:.0%} at {target.loss:.1%} loss with tensors of {target.size_kb} KB" for target in TARGETS
)

QUESTION = f"""
How much of the goodput is left when links lose packets, with slots of a job's own and with shared ones?
Asked for is at least: {_ASKED}. ATP says that it recovers from losses 34 % better than SwitchML. And how
much of it is owed to tail probes, which ask early for packets whose loss no later packet reveals?
"""

ABOUT = f"""
One job of {" or ".join(map(str, WORKERS))} workers on one switch, links of 10 Gb/s and 2 µs, each of which
loses packets independently, in both directions: a sum of 8 workers takes 16 packets. The workers sum tensors
of {min(SIZES_KB)} KB to {max(SIZES_KB) >> 10} MB one after the other and without computing; packets of 64
values; {SLOTS} slots; no congestion control. Exclusive: up to {KINDS["exclusive"].in_flight} packets in
flight. Shared: up to {KINDS["shared"].in_flight}, a bit more than a round trip's worth, and for comparison
{KINDS["shared, 256 in flight"].in_flight}.

*Goodput* is bits of float32 values summed per second, as one worker sees it. The tables give it relative to
that without loss: mean of {len(SEEDS)} seeds (least..most), with probes and, *no probes*, without. *Again*
are the packets that workers sent again, relative to those that they sent once. The straggler is one rank of
four that computes for {STRAGGLER_S * 1e3:g} ms instead of an eighth of it, before 12 tensors of 16 KB.
"""

LIMITS = """
**What differs from the papers.** Their exclusive and shared modes are two systems with two transports:
SwitchML waits for a time-out, 10 ms as published, ATP for three results out of order or a time-out. Here both
modes have the same worker, which looks for both and probes besides, and the switch multicasts the sums in
both. So only the two ways to hold memory are compared; how a loss is found, which ATP's advantage may well
come from, is the same.

The packets in flight are set by hand: more of them bridge the time that repairs take, but what is more than a
round trip's worth waits in the sender's own queue, and every repair behind it. With 256 in flight, tensors
up to 64 KB leave at once: no later packet shows a loss, the round trip seems long for the wait in that queue,
and at 1 % it takes several rounds of probes. Losses are independent; losses in bursts, as of a full queue,
hit fewer sums each time and cost less. Hosts look every 5 µs at what has arrived, so a tensor of 16 KB takes
25, 30 or 35 µs and nothing in between. A probe comes 5 µs late here; on sockets of a machine whose scheduler
adds milliseconds it comes 2 ms late, and saves less.
"""

EXPERIMENT = Experiment(
    name="loss",
    title="Loss: goodput relative to a network that loses nothing",
    question=QUESTION,
    about=ABOUT,
    scenarios=scenarios,
    measure=measure,
    tables=tables,
    findings=findings,
    limits=LIMITS,
    plots=plots,
)
