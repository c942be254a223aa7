"""Fill the page of results with what `ina schedule interleave` measured.

`python -m benchmarks.schedulers.interleave docs/results/interleave.json` writes what the command has printed
with ``--json`` into the tables of the page beside that file.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.fill import fill
from hostlib.interleave import STAGES


def tables(measured: Mapping[str, Any]) -> str:
    """Return the tables of what the command measured."""
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
    return "\n".join(
        [
            f"Each job alone, {setup['workers']} workers, milliseconds per iteration:",
            "",
            *_table(["job", *STAGES, "iteration"], jobs),
            "",
            "Groups, measured beside predicted:",
            "",
            *_table(columns, groups),
        ]
    )


def _table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    return [f"| {' | '.join(row)} |" for row in (columns, ["---"] * len(columns), *rows)]


def main() -> None:
    """Write the tables of the page beside the file of measurements."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("measured", type=Path, help="output of 'ina schedule interleave --json'")
    path: Path = parser.parse_args().measured
    fill(path.with_suffix(".md"), tables(json.loads(path.read_text())))


if __name__ == "__main__":
    main()
