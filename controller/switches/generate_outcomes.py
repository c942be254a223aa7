"""Writes ``outcomes.py`` from ``p4src/include/outcomes.p4``.

Run ``python -m controller.switches.generate_outcomes``.
"""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SOURCE = ROOT / "p4src" / "include" / "outcomes.p4"
TARGET = ROOT / "controller" / "switches" / "outcomes.py"

_OUTCOMES = re.compile(r"enum bit<(?P<width>\d+)> outcome_t {(?P<members>[^}]*)}")
_OUTCOME = re.compile(r"^ *(\w+) *= (\d+)\b", re.MULTILINE)


def generate(p4_source: str) -> str:
    """Return the module's text: names in the order of their numbers."""
    declared = _OUTCOMES.search(p4_source)
    if declared is None:
        raise ValueError("the P4 source declares no enum outcome_t")
    outcomes = sorted((int(number), name.lower()) for name, number in _OUTCOME.findall(declared["members"]))
    lines = [
        '"""Generated from p4src/include/outcomes.p4 by `generate_outcomes`; do not edit."""',
        "",
        f"COLUMNS = {1 << int(declared['width'])}",
        '"""Cells of one job\'s row in the counter of outcomes."""',
        "",
        "OUTCOMES = {",
        *(f'    "{name}": {number},' for number, name in outcomes),
        "}",
        '"""Outcome of an INA packet: the column of its counter in the row."""',
        "",
    ]
    return "\n".join(lines)


if __name__ == "__main__":
    TARGET.write_text(generate(SOURCE.read_text(encoding="utf-8")), encoding="utf-8")
