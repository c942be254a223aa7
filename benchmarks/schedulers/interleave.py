"""Fill the page of results with the measurements of `ina schedule interleave`.

`python -m benchmarks.schedulers.interleave FILE docs/results/interleave.md` writes the command's
output with ``--json``, which is in FILE, between the marks of that page.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from benchmarks.fill import fill, option, parse_options
from bmv2_topos.harness import markdown
from hostlib.interleave import STAGES


def tables(measured: Mapping[str, Any]) -> str:
    """Return the tables of the command's measurements."""
    setup = measured["setup"]
    jobs = [
        [kind, *(f"{1e3 * stage_s:.1f}" for stage_s in (*each["stages_s"], each["iteration_s"]))]
        for kind, each in setup["alone"].items()
    ]
    groups = [
        [
            name.replace("+", " + "),
            " ".join(STAGES[offset] for offset in each["offsets"]),
            f"{each['measured_efficiency']:.2f}",
            f"{each['predicted_efficiency']:.2f}",
            f"**{each['measured_speedup']:.2f}**",
            f"**{each['predicted_speedup']:.2f}**",
            f"{each['measured_speedup'] / each['predicted_speedup']:.2f}",
            f"{each['contended_round_s'] / each['predicted_round_s']:.2f}",
            f"{each['measured_round_s'] / each['contended_round_s']:.2f}",
        ]
        for name, each in measured["jobs"].items()
    ]
    columns = [
        "group",
        "starts at",
        "gamma",
        "predicted",
        "speed-up",
        "predicted",
        "ratio",
        "contention",
        "barriers",
    ]
    alone = markdown(["job", *STAGES, "iteration"], jobs)
    return (
        f"Each job alone, {setup['workers']} workers, milliseconds per iteration:\n\n{alone}\n\n"
        f"Groups, measured beside predicted:\n\n{markdown(columns, groups)}"
    )


def main() -> None:
    """Write the tables of a file of measurements into a page."""
    options = parse_options(
        __doc__,
        option("measured", type=Path, help="read this output of 'ina schedule interleave --json'"),
        option("page", type=Path, help="fill this page, which has marks for the tables"),
    )
    fill(options.page, tables(json.loads(options.measured.read_text())))


if __name__ == "__main__":
    main()
