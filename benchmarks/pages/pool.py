"""Size of an exclusive job's pool of slots: how much of a link's rate it can use, by round trip."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from bmv2_topos.harness import Experiment, ResultRow, Scenario, markdown, number, selected
from bmv2_topos.plots import draw_lines, ticks
from bmv2_topos.testbeds.virtual import Report, VirtualSettings
from controller.vocabulary import Job, Link, float32_bytes

WORKERS = 4
ELEMENTS = 131072
ITERATIONS = 2
LANES = 64
FRAME_BYTES = 70 + 4 * LANES
RATE_BPS = 10e9
DELAYS_S = (2e-6, 20e-6)
POOLS = (2, 8, 16, 32, 64, 128, 256, 512, 1024)
POOL, WINDOW = "pool", "window alone"


def scenarios(quick: bool) -> list[Scenario]:
    """Return each pool with each delay, and the ablation."""
    return [
        Scenario(
            labels={"delay_s": delay_s, "what": what, "pool": pool},
            jobs=(_job(pool // 2, quick=quick),),
            settings=VirtualSettings(
                program="exclusive" if what == POOL else "shared",
                slots=pool if what == POOL else 8192,
                samples=0,
            ),
            link=Link("a", "b", rate_bps=RATE_BPS, delay_s=delay_s),
        )
        for delay_s in (DELAYS_S[:1] if quick else DELAYS_S)
        for what in (POOL, WINDOW)
        for pool in (POOLS[::4] if quick else POOLS)
    ]


def _job(window: int, *, quick: bool) -> Job:
    return Job(
        name="job",
        workers=WORKERS,
        window=window,
        numbers="fixed",
        iterations=1 if quick else ITERATIONS,
        layers_bytes=float32_bytes((ELEMENTS,)),
        compute_s=0.0,
    )


def measure(report: Report) -> ResultRow:
    """Return the time of an iteration, and what was sent again."""
    (job,) = report.jobs
    return {"iteration_s": job.mean_iteration_s, "resent_packets": job.resent_packets}


def rate(row: ResultRow) -> float:
    """Return the fraction of a link that data packets use."""
    return ELEMENTS / LANES * FRAME_BYTES * 8 / RATE_BPS / number(row, "iteration_s")


def predicted(rows: Sequence[ResultRow], row: ResultRow) -> float:
    """Return the prediction from the round trip with one packet in flight."""
    (one,) = selected(rows, delay_s=row["delay_s"], what=POOL, pool=POOLS[0])
    round_trip_s = number(one, "iteration_s") / (ELEMENTS / LANES)
    return min(1.0, number(row, "pool") / 2 * FRAME_BYTES * 8 / round_trip_s / RATE_BPS)


def _delays(rows: Sequence[ResultRow]) -> list[float]:
    return list(dict.fromkeys(number(row, "delay_s") for row in rows))


def tables(rows: Sequence[ResultRow]) -> str:
    """Return a table per delay."""
    parts = []
    for delay_s in _delays(rows):
        lines = []
        for row in selected(rows, delay_s=delay_s, what=POOL):
            (alone,) = selected(rows, delay_s=delay_s, what=WINDOW, pool=row["pool"])
            shares = [rate(row), predicted(rows, row), rate(alone)]
            lines.append([f"{row['pool']}", *(f"{share:.1%}" for share in shares)])
        head = f"### Links of {delay_s * 1e6:.0f} µs"
        parts.append(f"{head}\n\n{markdown(['slots', 'rate', 'predicted', 'window alone'], lines)}")
    return "\n\n".join(parts)


def plots(rows: Sequence[ResultRow], directory: Path) -> list[Path]:
    """Draw rates over pools."""
    pools = sorted({int(number(row, "pool")) for row in rows})
    lines = {}
    for delay_s in _delays(rows):
        of = selected(rows, delay_s=delay_s, what=POOL)
        at = [float(pools.index(int(number(row, "pool")))) for row in of]
        name = f"{delay_s * 1e6:.0f} µs"
        lines[name] = [(x, 100 * rate(row)) for x, row in zip(at, of, strict=True)]
        lines[f"{name}, predicted"] = [(x, 100 * predicted(rows, row)) for x, row in zip(at, of, strict=True)]
    path = directory / "pool.svg"
    dashed = [name for name in lines if name.endswith("predicted")]
    draw_lines(lines, path, x="slots", y="link's rate used (%)", x_ticks=ticks(pools), dashed=dashed)
    return [path]


EXPERIMENT = Experiment(
    name="pool",
    title="Pool size: how many slots a job needs",
    scenarios=scenarios,
    measure=measure,
    tables=tables,
    plots=plots,
)
