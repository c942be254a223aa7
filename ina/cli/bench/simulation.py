"""``ina bench simulation``: how many packet hops a second virtual time makes."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

import typer

from ina.bench.simulation import measure_simulation
from ina.cli import options
from ina.cli.output import Bar, table
from ina.cli.plain import Result, count, seconds

EPILOG = """Examples:

  ina bench simulation

  ina bench simulation --radix 4 --jobs 4 -np 4 --flows 0 --json
"""


def simulation(
    radix: Annotated[
        int,
        typer.Option(
            min=2,
            max=32,
            help="Simulate the fat tree of switches with this many ports: 16 ports make 1,024 hosts.",
        ),
    ] = 16,
    jobs: Annotated[int, typer.Option(min=1, max=1000, help="Run this many jobs at the same time.")] = 100,
    workers: Annotated[
        int, typer.Option("--workers", "-np", "-n", min=1, max=1024, help="Give each job this many workers.")
    ] = 8,
    iterations: Annotated[
        int, typer.Option(min=1, help="Run this many iterations of each job: two sums of 128 KiB each.")
    ] = 3,
    flows: Annotated[int, typer.Option(min=0, metavar="N", help=options.FLOWS)] = 100,
    seed: Annotated[
        int, typer.Option(min=0, help="Seed the random numbers; the same seed gives the same packets.")
    ] = 0,
    json: options.Json = False,
) -> None:
    """Measure virtual time: packet hops a second of jobs and flows on a fat tree.

    Jobs share slots; each has a tree of its own, whose root is a core switch; a flow sends 2 Gb/s. Every sum
    of every worker is compared with the exact one. A packet hop is a packet that passes a link.
    """
    with Bar() as bar:
        measured = measure_simulation(
            radix,
            jobs,
            workers,
            iterations=iterations,
            flows=flows,
            seed=seed,
            progress=lambda time_s, done, total: bar.show(
                done / total, f"{count(done)} of {count(total)} iterations"
            ),
        )
    setup = {"radix": radix, "jobs": jobs, "workers": workers, "iterations": iterations, "flows": flows}
    if json:
        Result("bench simulation", {**setup, "seed": seed}, asdict(measured)).print_json()
        return
    table(
        f"fat tree of {count(measured.hosts)} hosts and {count(measured.switches)} switches, {jobs} jobs of"
        f" {workers}, {flows} flows",
        ["", ""],
        [
            ["packet hops", count(measured.packet_hops)],
            ["packet hops a second of processor time", count(round(measured.hops_per_s))],
            ["processor time", seconds(measured.processor_s)],
            ["before it, switches and tables", seconds(measured.prepared_s)],
            ["virtual time", seconds(measured.virtual_s)],
            ["memory", f"{measured.memory_bytes / 2**20:,.0f} MiB"],
            ["summed in switches", f"{measured.aggregated_share:.1%}"],
        ],
    )
