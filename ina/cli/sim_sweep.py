"""``ina sim --seeds N --sweep KEY=VALUE,…``: many runs of one simulation, and tables of them."""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from ina.cli.output import Bar, table
from ina.cli.plain import Result, count, plural, say, seconds

if TYPE_CHECKING:  # other commands need none of it
    from bmv2_topos.harness import ResultRow, Value
    from bmv2_topos.harness.simulation import Simulation

SEED = "seed"


def run(
    simulation: Simulation,
    texts: Sequence[str],
    seeds: int,
    processes: int,
    *,
    json: bool,
    unused_keys: list[str],
) -> None:
    """Run all combinations with all seeds, and print the results.

    Args:
        simulation: The simulation, with the options of `ina sim`.
        texts: The settings to sweep, each ``KEY=V,…``.
        seeds: Number of seeds.
        processes: Number of processes; 0: one per core.
        json: Print one JSON object instead of tables.
        unused_keys: See `Result.print_json`.

    Raises Failure.
    """
    from bmv2_topos.harness import sweep
    from bmv2_topos.harness.simulation import read_sweep, study

    began = time.monotonic()
    swept = read_sweep(texts)
    one = study(simulation, swept, seeds).experiment("sim", "")
    with Bar() as bar:
        rows = sweep(
            one,
            one.scenarios(False),
            processes=processes or len(os.sched_getaffinity(0)),
            progress=lambda done, total: bar.show(done / total, f"{done} of {total} runs"),
        )
    if json:
        _result(simulation, swept, rows, seeds).print_json(unused_keys=unused_keys)
        return
    _show(simulation, swept, rows, seeds)
    say(f"{plural(len(rows), 'run')} in {seconds(time.monotonic() - began)}")


def settings(swept: Sequence[str], rows: Sequence[ResultRow]) -> list[dict[str, Value]]:
    """Return the combinations that were run, each once, in order."""
    found = dict.fromkeys(tuple(row[name] for name in swept) for row in rows)
    return [dict(zip(swept, values, strict=True)) for values in found]


def figures(swept: Sequence[str], rows: Sequence[ResultRow]) -> list[str]:
    """Return the columns of what was measured."""
    return [name for name in rows[0] if name not in (*swept, SEED)]


HEADINGS = {
    "mean_jct_s": "mean completion",
    "aggregated_share": "summed in switches",
    "sent_packets": "packets sent",
    "resent_packets": "retransmitted",
    "dropped_packets": "dropped",
    "lost_packets": "lost",
}


def _show(
    simulation: Simulation, swept: Mapping[str, Sequence[Value]], rows: Sequence[ResultRow], seeds: int
) -> None:
    names = [*swept]
    of_jobs = {f"{job.name}_jct_s": job.name for job in simulation.jobs} if len(simulation.jobs) > 1 else {}
    shown = {name: text for name in figures(names, rows) if (text := (HEADINGS | of_jobs).get(name))}
    if names:
        columns = [*names, *shown.values()]
        lines = [
            [*map(_text, setting.values()), *(_cell(rows, setting, name) for name in shown)]
            for setting in settings(names, rows)
        ]
    else:
        columns = ["", "value"]
        lines = [[text, _cell(rows, {}, name)] for name, text in shown.items()]
    last = simulation.seed + seeds - 1
    of_seeds = f"seed {last}" if seeds == 1 else f"seeds {simulation.seed} to {last}: mean (least..greatest)"
    table(f"{plural(len(rows), 'run')}, {of_seeds}", columns, lines)


def _cell(rows: Sequence[ResultRow], setting: Mapping[str, Value], name: str) -> str:
    values = _numbers(rows, setting, name)
    if not values:
        return "-"
    parts = [statistics.fmean(values), min(values), max(values)]
    mean, least, most = (_figure(name, value) for value in parts)
    return mean if least == most else f"{mean} ({least}..{most})"


def _figure(name: str, value: float) -> str:
    if name.endswith("_s"):
        return seconds(value)
    return f"{value:.1%}" if name.endswith("share") else count(value)


def _numbers(rows: Sequence[ResultRow], setting: Mapping[str, Value], name: str) -> list[float]:
    from bmv2_topos.harness import selected

    found = (row[name] for row in selected(rows, **setting))
    return [value for value in found if isinstance(value, int | float)]


def _text(value: Value) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:g}" if isinstance(value, float) else str(value)


def _result(
    simulation: Simulation, swept: Mapping[str, Sequence[Value]], rows: Sequence[ResultRow], seeds: int
) -> Result:
    setup = {
        "jobs": [job.name for job in simulation.jobs],
        "sweep": {name: list(values) for name, values in swept.items()},
        "seeds": list(range(simulation.seed, simulation.seed + seeds)),
    }
    names = [*swept]
    spreads = [
        {
            **setting,
            **{name: _spread(_numbers(rows, setting, name)) for name in figures(names, rows)},
        }
        for setting in settings(names, rows)
    ]
    return Result("sim", setup, {"settings": spreads, "runs": [dict(row) for row in rows]})


def _spread(values: Sequence[float]) -> dict[str, float] | None:
    if not values:
        return None
    return {
        "mean": statistics.fmean(values),
        "least": min(values),
        "greatest": max(values),
        "deviation": statistics.stdev(values) if len(values) > 1 else 0.0,
    }
