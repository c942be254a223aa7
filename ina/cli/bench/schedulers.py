"""``ina bench schedulers``: how fast long traces and clusters are simulated, against their targets."""

from __future__ import annotations

import os
from dataclasses import asdict, replace
from typing import Annotated

import typer

from ina.bench.schedulers import CASES, LARGE, LIMIT_BYTES, Figure, measure_schedulers
from ina.cli import options
from ina.cli.output import table
from ina.cli.plain import Result, count, say, seconds

EPILOG = """Examples:

  ina bench schedulers

  ina bench schedulers --large --json

  ina bench schedulers --share 0.1
"""


def schedulers(
    *,
    large: Annotated[
        bool, typer.Option(help="Simulate 100,000 jobs on 2,048 servers, too, which takes minutes.")
    ] = False,
    share: Annotated[
        float,
        typer.Option(
            min=0.001, max=1, help="Simulate this share of the jobs, against that share of targets."
        ),
    ] = 1.0,
    seed: Annotated[
        int, typer.Option(min=0, help="Seed the random numbers; the same seed gives the same jobs.")
    ] = 0,
    json: options.Json = False,
) -> None:
    """Measure schedulers on long traces and a cluster of 256 servers: processor time.

    Jobs of schedulers are generated, at a load of 0.9 on eight nodes of eight GPUs. Prints each figure beside
    its target, and the ratio of both: at most 1, the target is met. Processor time grows by half and more
    while others use the same processors, so the machine's load is printed, too.
    """
    cases = [
        replace(case, jobs=max(1, round(case.jobs * share)), target_s=case.target_s * share)
        for case in (*CASES, *([LARGE] if large else []))
    ]
    found = measure_schedulers(
        cases, seed=seed, say=(lambda text: None) if json else lambda text: say(f"ina: {text}")
    )
    load = os.getloadavg()[0]
    if json:
        rows = [{**asdict(each), "ratio": each.ratio} for each in found]
        Result("bench schedulers", {"load": load, "seed": seed}, {"figures": rows}).print_json()
        return
    title = f"schedulers; load {load:.1f} of {os.cpu_count()}"
    table(title, ["", "processor", "target", "ratio", "memory"], [_row(each) for each in found])


def _row(figure: Figure) -> tuple[str, ...]:
    case = figure.case
    where = f", {count(case.servers)} servers" if case.servers else ""
    over = " (too much)" if figure.memory_bytes > LIMIT_BYTES else ""
    return (
        f"{case.policy}, {count(case.jobs)} jobs{where}",
        seconds(figure.processor_s),
        seconds(case.target_s),
        f"{figure.ratio:.2f}",
        f"{figure.memory_bytes / (1 << 20):.0f} MiB{over}",
    )
