"""How the commands show what they measured, and the options that they share."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated

import typer

from ina.cli.output import table
from ina.cli.plain import Result, count, rate, seconds

Seed = Annotated[int, typer.Option(min=0, help="Seed the random numbers; the same seed gives the same work.")]


def show(name: str, setup: Mapping[str, object], found: Mapping[str, object], *, json: bool) -> None:
    """Print figures by name: as one JSON object, or as a table; those that are mappings are rows of one."""
    if json:
        Result(f"speed {name}", setup, found).print_json()
        return
    title = f"{name}: {', '.join(f'{key} {value}' for key, value in setup.items() if value is not None)}"
    rows = {key: value for key, value in found.items() if isinstance(value, Mapping)}
    plain = [[key, _text(key, value)] for key, value in found.items() if key not in rows]
    if plain:
        table(title, ["", ""], plain)
    if rows:
        columns = list(next(iter(rows.values())))
        cells = [[key, *(_text(each, row.get(each)) for each in columns)] for key, row in rows.items()]
        table(title, ["", *columns], cells)


def _text(key: str, value: object) -> str:
    """Return a value as its unit wants it, which is the end of its name."""
    if not isinstance(value, int | float) or isinstance(value, bool):
        return "" if value is None else str(value)
    if key.endswith("_per_s"):
        return count(value)
    if key.endswith("_bps"):
        return rate(value)
    if key.endswith("_s"):
        return seconds(value)
    return f"{value:,}" if isinstance(value, int) else f"{value:.4g}"
