"""Output of the commands' measurements, and their common options."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated

import typer

from benchmarks.fill import print_rows, text
from ina.cli.command import Result, print_json
from ina.cli.output import table

Seed = Annotated[int, typer.Option(min=0, help="Seed the random numbers; the same seed gives the same work.")]


def show(name: str, setup: Mapping[str, object], found: Mapping[str, object], *, json: bool) -> None:
    """Print figures by name: as one JSON object, or as a table; mappings are rows of one table."""
    if json:
        print_json(Result(f"speed {name}", setup, found))
        return
    title = f"{name}: {', '.join(f'{key} {value}' for key, value in setup.items() if value is not None)}"
    rows = {key: value for key, value in found.items() if isinstance(value, Mapping)}
    if plain := [[key, text(key, value)] for key, value in found.items() if key not in rows]:
        table(title, ["", ""], plain)
    if rows:
        print_rows(title, [{"": key, **row} for key, row in rows.items()])
