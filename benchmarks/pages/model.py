"""How far off virtual time is: the same allreduce in virtual time and in network namespaces."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Final

from benchmarks.pages import real
from bmv2_topos.harness import (
    Experiment,
    ResultRow,
    Run,
    column,
    markdown,
    number,
    selected,
    spread,
)
from bmv2_topos.plots import draw_lines, ticks
from bmv2_topos.testbeds.virtual import Report, VirtualSettings

WORKERS = 4
WINDOW = 128
SIZE_BYTES = 2 << 20
ITERATIONS = 5
SEEDS = (1, 2, 3, 4, 5)
NETNS, VIRTUAL, OTHER = "netns", "virtual", "virtual, its own time-outs"

CASES: Final[Mapping[str, Mapping[str, float]]] = {
    "100 Mb/s": {"rate_bps": 1e8},
    "20 Mb/s": {"rate_bps": 2e7},
    "100 Mb/s, 5 ms": {"rate_bps": 1e8, "delay_s": 5e-3},
    "100 Mb/s, 0.1 % lost": {"rate_bps": 1e8, "loss": 1e-3},
    "100 Mb/s, 1 % lost": {"rate_bps": 1e8, "loss": 1e-2},
}


def scenarios(quick: bool) -> list[Run]:
    """Return each case on each runner."""
    return list(_scenarios(quick))


def _scenarios(quick: bool) -> Iterator[Run]:
    for name, case in CASES.items():
        if quick and name != "100 Mb/s":
            continue
        run = real.RealAllreduce(
            labels={"case": name, "runner": NETNS, "seed": 1},
            workers=WORKERS,
            size_bytes=SIZE_BYTES,
            iterations=1 if quick else ITERATIONS,
            gloo=False,
            window=WINDOW,
            rate_bps=case["rate_bps"],
            delay_s=case.get("delay_s", real.DELAY_S),
            loss=case.get("loss", 0.0),
        )
        yield run
        for runner, rto in ((VIRTUAL, real.RTO), (OTHER, VirtualSettings().rto)):
            if runner == OTHER and name != "100 Mb/s":
                continue
            for seed in SEEDS[:1] if quick or not run.loss else SEEDS:
                labels: ResultRow = {"case": name, "runner": runner, "seed": seed}
                yield real.in_virtual_time(run, labels, rto=rto, seed=seed, iterations=2)


def measure(report: Report | real.Times) -> ResultRow:
    """Return mean, least and greatest time."""
    if isinstance(report, Report):
        (job,) = report.jobs
        return {
            "time_s": job.iteration_s[-1],
            "first_s": job.iteration_s[0],
            "resent_packets": job.resent_packets,
        }
    times = {"time_s": fmean(report.ina_s), "best_s": min(report.ina_s), "worst_s": max(report.ina_s)}
    return {**times, "resent_packets": report.resent_packets, "load": report.load}


def off(rows: Sequence[ResultRow], case: str, runner: str = VIRTUAL) -> float | None:
    """Return how far virtual time is from real time, relatively; None: not run."""
    measured = column(rows, "time_s", case=case, runner=NETNS)
    modelled = column(rows, "time_s", case=case, runner=runner)
    return fmean(modelled) / measured[0] - 1 if measured and modelled else None


def _cases(rows: Sequence[ResultRow]) -> list[str]:
    return list(dict.fromkeys(str(row["case"]) for row in rows))


def tables(rows: Sequence[ResultRow]) -> str:
    """Return one table."""
    lines = []
    for case in _cases(rows):
        measured = selected(rows, case=case, runner=NETNS)
        line = [case, _measured(measured[0]) if measured else "not run"]
        modelled = [1e3 * of for of in column(rows, "time_s", case=case, runner=VIRTUAL)]
        line.append(spread(modelled, ".0f") if modelled else "not run")
        line += [_signed(off(rows, case)), _signed(off(rows, case, OTHER))]
        lines.append([*line, f"{number(measured[0], 'load'):.1f}" if measured else "not run"])
    return markdown(["links", f"{NETNS}, ms", f"{VIRTUAL}, ms", "off by", OTHER, "load"], lines)


def _measured(row: ResultRow) -> str:
    mean, least, most = (f"{1e3 * number(row, name):.0f}" for name in ("time_s", "best_s", "worst_s"))
    return f"{mean} ({least}..{most})"


def _signed(value: float | None) -> str:
    return "not run" if value is None else f"{value:+.0%}"


def plots(rows: Sequence[ResultRow], directory: Path) -> list[Path]:
    """Draw both times by case."""
    cases = _cases(rows)
    lines = {}
    for runner in (NETNS, VIRTUAL):
        points = [
            (float(place), 1e3 * fmean(times))
            for place, case in enumerate(cases)
            if (times := column(rows, "time_s", case=case, runner=runner))
        ]
        if points:
            lines[runner] = points
    path = directory / "model.svg"
    labels = ticks(case.replace(", ", "\n") for case in cases)
    draw_lines(lines, path, x="links", y="allreduce (ms)", x_ticks=labels)
    return [path]


EXPERIMENT = Experiment(
    name="model",
    title="How far off virtual time is",
    scenarios=scenarios,
    measure=measure,
    tables=tables,
    plots=plots,
)
