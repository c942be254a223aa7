"""``ina bench switch``: the embedded switch as a switch, in memory."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer

from ina.bench.switch import Measured, bench_switch
from ina.bench.veth import VethBench, bench_veth
from ina.cli import options
from ina.cli.output import out, table
from ina.cli.plain import Result, count, rate, seconds

ROUNDS = 5
VETH_ROUNDS = 3


class Baseline(StrEnum):
    """Switches to compare with."""

    bmv2 = "bmv2"


EPILOG = """Examples:

  ina bench switch

  ina bench switch --exact 1000000 --json

  ina bench switch --veth --baseline bmv2
"""


def switch(
    exact: Annotated[int, typer.Option(min=1, help="Fill the exact table with this many entries.")] = 100_000,
    lpm: Annotated[
        int, typer.Option(min=1, help="Fill the longest-prefix table with this many prefixes.")
    ] = 100_000,
    ternary: Annotated[
        int, typer.Option(min=1, help="Fill the ternary table with this many entries.")
    ] = 10_000,
    duration: Annotated[
        float, typer.Option(min=0.01, metavar="SECONDS", help="Measure each case for this long, in seconds.")
    ] = 0.5,
    veth: Annotated[
        bool,
        typer.Option("--veth", help="Measure the switch process between veth interfaces, too. Needs root."),
    ] = False,
    baseline: Annotated[
        Baseline | None,
        typer.Option(
            help="With --veth: compare with this switch on the same program and frames, alternating."
        ),
    ] = None,
    json: options.Json = False,
) -> None:
    """Measure forwarding by tables of every kind, and table writes over P4Runtime.

    Forwards packets in memory on one core; --veth also forwards between network interfaces.
    """
    through: VethBench | None = None
    if veth or baseline:  # first: it may lack something
        through = bench_veth(baseline=baseline is not None, round_s=duration, rounds=VETH_ROUNDS)
    measured = bench_switch(exact=exact, lpm=lpm, ternary=ternary, round_s=duration / ROUNDS, rounds=ROUNDS)
    if json:
        setup = {"exact": exact, "lpm": lpm, "ternary": ternary}
        Result("bench switch", setup, _numbers(measured) | _veth_numbers(through)).print_json()
        return
    _show(measured)
    if through is not None:
        _show_veth(through)


def _numbers(measured: Measured) -> dict[str, object]:
    return {
        "cases": [
            {
                "name": case.name,
                "entries": case.entries,
                "packet_time_s": case.ns_per_packet * 1e-9,
                "one_by_one_packet_time_s": case.one_by_one_ns_per_packet * 1e-9,
            }
            for case in measured.cases
        ],
        "writes_per_s": measured.writes_per_s,
    }


def _veth_numbers(found: VethBench | None) -> dict[str, object]:
    if found is None:
        return {}
    cases = [
        {
            "switch": case.switch,
            "name": case.name,
            "packets_per_s": case.frames_per_s,
            "rate_bps": case.bits_per_s,
            "lost_packets": case.lost,
            "switch_cpu_time_s": case.ns_per_frame * 1e-9,
        }
        for case in found.cases
    ]
    return {
        "veth": cases,
        "times_bmv2": found.times_baseline(lambda case: case.frames_per_s),
        "times_bmv2_by_cpu_time": found.times_baseline(lambda case: 1 / case.ns_per_frame),
    }


def _show(measured: Measured) -> None:
    table(
        "forwarding in memory on one core, parser to deparser",
        ["", "entries", "packets/s", "per packet", "without fetching ahead"],
        [
            (
                case.name,
                f"{case.entries:,}",
                count(1e9 / case.ns_per_packet),
                seconds(case.ns_per_packet * 1e-9),
                f"{case.one_by_one_ns_per_packet / case.ns_per_packet:.2f} times",
            )
            for case in measured.cases
        ],
    )
    out.print(
        f"table writes over P4Runtime: {count(measured.writes_per_s)}/s of processor time, client included",
        highlight=False,
        soft_wrap=True,
    )


def _show_veth(found: VethBench) -> None:
    table(
        f"between veth interfaces, median of {VETH_ROUNDS} rounds",
        ["", "switch", "packets/s", "rate", "processor time of the switch", "lost"],
        [
            (
                case.name,
                case.switch,
                count(case.frames_per_s),
                rate(case.bits_per_s),
                seconds(case.ns_per_frame * 1e-9),
                count(case.lost),
            )
            for case in found.cases
        ],
    )
    by_time = found.times_baseline(lambda case: 1 / case.ns_per_frame)
    for name, times in found.times_baseline(lambda case: case.frames_per_s).items():
        text = f"{name}: {times:.1f} times BMv2's packets/s, 1/{by_time[name]:.1f} of its processor time"
        out.print(text, highlight=False, soft_wrap=True)
