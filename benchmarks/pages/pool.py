"""Size of an exclusive job's pool of slots: how much of a link's rate it can use, by round trip."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import product
from typing import Final

from bmv2_topos.harness import Experiment, ResultRow, Scenario, grouped, markdown, number, selected
from bmv2_topos.testbeds.virtual import Report, VirtualSettings
from controller.vocabulary import Job, Link, float32_bytes

ELEMENTS: Final = 131072
LANES: Final = 64
FRAME_BYTES: Final = 70 + 4 * LANES
RATE_BPS: Final = 10e9
DELAYS_S: Final = (2e-6, 20e-6)
POOLS: Final = (2, 8, 16, 32, 64, 128, 256, 512, 1024)
POOL, WINDOW = "pool", "window alone"
"""The second is the ablation: as many packets under way, with slots to spare."""


def scenarios(quick: bool) -> Iterator[Scenario]:
    """Return each pool with each delay, and the ablation."""
    delays, pools = (DELAYS_S[:1], POOLS[::4]) if quick else (DELAYS_S, POOLS)
    for delay_s, what, pool in product(delays, (POOL, WINDOW), pools):
        program, slots = ("exclusive", pool) if what == POOL else ("shared", 8192)
        job = Job(
            name="job",
            workers=4,
            window=pool // 2,
            numbers="fixed",
            iterations=1 if quick else 2,
            layers_bytes=float32_bytes((ELEMENTS,)),
            compute_s=0.0,
        )
        yield Scenario(
            labels={"delay_s": delay_s, "what": what, "pool": pool},
            jobs=(job,),
            settings=VirtualSettings(program=program, slots=slots, samples=0),
            link=Link("a", "b", rate_bps=RATE_BPS, delay_s=delay_s),
        )


def measure(report: Report) -> ResultRow:
    """Return the time of an iteration, and what was sent again."""
    (job,) = report.jobs
    return {"iteration_s": job.mean_iteration_s, "resent_packets": job.resent_packets}


def rates(rows: Sequence[ResultRow], delay_s: float, what: str) -> dict[int, float]:
    """Return the fraction of a link that data packets use, by pool."""
    bits = ELEMENTS / LANES * FRAME_BYTES * 8
    here = selected(rows, delay_s=delay_s, what=what)
    return {int(number(row, "pool")): bits / RATE_BPS / number(row, "iteration_s") for row in here}


def predicted(measured: dict[int, float]) -> dict[int, float]:
    """Return the prediction from the round trip with one packet in flight: as many times its rate."""
    return {pool: min(1.0, pool / 2 * measured[POOLS[0]]) for pool in measured}


def tables(rows: Sequence[ResultRow]) -> str:
    """Return a table per delay."""
    parts = []
    for (delay_s,) in grouped(rows, "delay_s"):
        found, alone = (rates(rows, delay_s, what) for what in (POOL, WINDOW))
        shares = {pool: (found[pool], share, alone[pool]) for pool, share in predicted(found).items()}
        lines = [[f"{pool}", *(f"{share:.1%}" for share in of)] for pool, of in shares.items()]
        table = markdown(["slots", "rate", "predicted", "window alone"], lines)
        parts.append(f"### Links of {delay_s * 1e6:.0f} µs\n\n{table}")
    return "\n\n".join(parts)


EXPERIMENT = Experiment(
    name="pool",
    title="Pool size: how many slots a job needs",
    scenarios=scenarios,
    measure=measure,
    tables=tables,
)
