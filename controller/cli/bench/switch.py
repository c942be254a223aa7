"""``ina bench switch``: the embedded switch as a switch, in memory."""

from __future__ import annotations

from typing import Annotated

import typer

from controller.bench.switch import bench_switch
from controller.cli import options
from controller.cli.output import out, table
from controller.cli.plain import Result, count, seconds

ROUNDS = 5

EPILOG = """Examples:

  ina bench switch

  ina bench switch --exact 1000000 --json
"""


def switch(
    exact: Annotated[int, typer.Option(min=1, help="Entries of the exact table.")] = 100_000,
    lpm: Annotated[int, typer.Option(min=1, help="Prefixes of the longest-prefix table.")] = 100_000,
    ternary: Annotated[int, typer.Option(min=1, help="Entries of the ternary table.")] = 10_000,
    duration: Annotated[
        float, typer.Option(min=0.01, metavar="SECONDS", help="Duration of each measurement.")
    ] = 0.5,
    json: options.Json = False,
) -> None:
    """Forwarding on one core by tables of every kind, and table writes over P4Runtime."""
    measured = bench_switch(exact=exact, lpm=lpm, ternary=ternary, round_s=duration / ROUNDS, rounds=ROUNDS)
    if json:
        numbers: dict[str, object] = {
            "cases": [
                {"name": case.name, "entries": case.entries, "packet_time_s": case.ns_per_packet * 1e-9}
                for case in measured.cases
            ],
            "writes_per_s": measured.writes_per_s,
        }
        Result("bench switch", {"exact": exact, "lpm": lpm, "ternary": ternary}, numbers).print_json()
        return
    table(
        "forwarding in memory on one core, parser to deparser",
        ["", "entries", "packets/s", "per packet"],
        [
            (
                case.name,
                f"{case.entries:,}",
                count(1e9 / case.ns_per_packet),
                seconds(case.ns_per_packet * 1e-9),
            )
            for case in measured.cases
        ],
    )
    out.print(
        f"table writes over P4Runtime: {count(measured.writes_per_s)}/s of processor time, client included",
        highlight=False,
        soft_wrap=True,
    )
