"""Writes ``outcomes.py`` from ``p4src/include/outcomes.p4``: ``python -m controller.generate_outcomes``."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SOURCE = ROOT / "p4src" / "include" / "outcomes.p4"
TARGET = ROOT / "controller" / "outcomes.py"

_OUTCOME = re.compile(r"const outcome_t OUTCOME_(\w+)\s*=\s*(\d+);")
_WIDTH = re.compile(r"typedef bit<(\d+)> outcome_t;")


def generate(p4_source: str) -> str:
    """Return the module's text: names in the order of their numbers."""
    width = _WIDTH.search(p4_source)
    outcomes = sorted((int(number), name.lower()) for name, number in _OUTCOME.findall(p4_source))
    if width is None or not outcomes:
        raise ValueError("the P4 source declares no outcome_t or no OUTCOME_ constants")
    lines = [
        '"""Generated from p4src/include/outcomes.p4 by controller/generate_outcomes.py; do not edit."""',
        "",
        f"COLUMNS = {1 << int(width.group(1))}",
        '"""Cells of one job\'s row in the counter of outcomes."""',
        "",
        "OUTCOMES = {",
        *(f'    "{name}": {number},' for number, name in outcomes),
        "}",
        '"""What became of an INA packet: the column of its counter in the row."""',
        "",
    ]
    return "\n".join(lines)


if __name__ == "__main__":
    TARGET.write_text(generate(SOURCE.read_text(encoding="utf-8")), encoding="utf-8")
