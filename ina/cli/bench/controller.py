"""``ina bench controller``: how fast the service is, and what it takes, against what it should."""

from __future__ import annotations

import os
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from ina.cli import options
from ina.cli.errors import Failure
from ina.cli.output import table
from ina.cli.plain import Result, count, say, seconds

if TYPE_CHECKING:
    from ina.bench.service.measure import Figures

EPILOG = """Examples:

  ina bench controller

  ina bench controller --jobs 50 --submissions 1000 --json
"""


def controller(
    *,
    jobs: Annotated[
        int, typer.Option(min=1, max=448, help="Have this many jobs run meanwhile, of two workers each.")
    ] = 200,
    submissions: Annotated[
        int, typer.Option(min=1, help="Submit this many jobs at once, each in a request of its own.")
    ] = 10_000,
    browsers: Annotated[int, typer.Option(min=1, max=256, help="Have this many pages open.")] = 20,
    time: Annotated[
        float,
        typer.Option("--seconds", min=1, metavar="SECONDS", help="Measure each processor share this long."),
    ] = 15.0,
    json: options.Json = False,
) -> None:
    """Measure a controller of ten switches (processes, over P4Runtime), asked over HTTP.

    Jobs have no workers: what is measured is the controller. Prints each figure beside its target, and the
    ratio of both: below 1 the target is met. Other load on the machine counts, also that of the switches
    and clients, so the machine's load is printed, too.
    """
    try:
        from ina.bench.service.measure import measure
    except ImportError as error:
        raise Failure(f"ina bench controller needs {error.name}: pip install 'ina[service]'") from error
    found = measure(
        resident=jobs,
        submissions=submissions,
        browsers=browsers,
        seconds=time,
        say=(lambda text: None) if json else lambda text: say(f"ina: {text}"),
    )
    load = os.getloadavg()[0]
    if json:
        Result("bench controller", {"load": load}, asdict(found)).print_json()
        return
    title = (
        f"controller: {found.switches} switches, {found.resident} jobs; load {load:.1f} of {os.cpu_count()}"
    )
    table(title, ["", "measured", "target", "ratio"], _rows(found))


def _rows(found: Figures) -> list[tuple[str, str, str, str]]:
    storm = found.storm
    mebibytes = (found.memory_after - found.memory_before) / (1 << 20)
    timed = [
        ("admission of a job, median", found.admission_s, 0.1),
        ("  the longest", found.admission_worst_s, 0.1),
        ("restart: all switches compared", found.restart_s, 2.0),
        ("  with the start of the process", found.restart_whole_s, 2.0),
        ("  all switches empty: written again", found.empty_s, 2.0),
        (f"{count(storm.submitted)} submissions at once", storm.took_s, 30.0 * storm.submitted / 10_000),
        ("  processor time of the controller", found.storm_processor_s, 30.0 * storm.submitted / 10_000),
    ]
    shares = [
        ("idle, no jobs", found.idle, 0.01),
        (f"idle, {found.resident} jobs", found.idle_resident, 0.01),
        (f"{found.browsers} pages, above that", found.pages, 0.05),
    ]
    return [
        *((what, seconds(value), seconds(target), f"{value / target:.2f}") for what, value, target in timed),
        (
            "  accepted / refused with a reason / lost",
            f"{storm.accepted} / {storm.refused} / {storm.lost}",
            "0 lost",
            "",
        ),
        ("  memory for them", f"{mebibytes:.0f} MiB", "", ""),
        *((what, f"{value:.2%}", f"{target:.0%}", f"{value / target:.2f}") for what, value, target in shares),
    ]
