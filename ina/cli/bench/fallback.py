"""``ina bench fallback``: the fallback server alone, through real sockets."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

import typer

from ina.bench.fallback import MAX_BATCH, measure
from ina.cli import options
from ina.cli.errors import Failure
from ina.cli.output import table
from ina.cli.plain import Result, count, plural, rate, seconds

EPILOG = """Examples:

  ina bench fallback

  ina bench fallback --lanes 32 -np 8 --json
"""


def fallback(
    lanes: options.Lanes = 256,
    workers: Annotated[
        int,
        typer.Option(
            *options.WORKERS, min=1, max=32, help="Set the number of workers that contribute to each sum."
        ),
    ] = 4,
    contributions: Annotated[int, typer.Option(min=1000, help="Send this many packets.")] = 400_000,
    batch: Annotated[
        int,
        typer.Option(min=1, max=MAX_BATCH, help="Deliver this many packets at once; 1 is the worst case."),
    ] = MAX_BATCH,
    json: options.Json = False,
) -> None:
    """Measure how many contributions the fallback server sums per second of its own processor time."""
    try:
        measured = measure(lanes=lanes, workers=workers, contributions=contributions, batch=batch)
    except (RuntimeError, TimeoutError) as error:
        raise Failure(str(error)) from error
    setup = {
        "lanes": measured.lanes,
        "workers": measured.workers,
        "contributions": measured.contributions,
        "batch": measured.batch,
    }
    numbers = {name: value for name, value in asdict(measured).items() if name not in setup}
    if json:
        Result("bench fallback", setup, numbers).print_json()
        return
    rows = [
        (title, rate(bits), count(measured.contributions / time_s), seconds(time_s / measured.contributions))
        for title, bits, time_s in (
            ("per second of the server's processor time", measured.gradient_bps, measured.cpu_s),
            ("per second of wall time, driver included", measured.wall_gradient_bps, measured.wall_s),
        )
    ]
    table(
        f"fallback server, {measured.lanes} lanes, {plural(measured.workers, 'contributor')}",
        ["per second", "gradients", "packets/s", "per packet"],
        rows,
    )
