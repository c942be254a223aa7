"""What is generated and checked in is what its generator makes now."""

from __future__ import annotations

import runpy
from pathlib import Path

P4SRC = Path(__file__).parents[2] / "p4src"


def test_the_lane_files_are_up_to_date() -> None:
    generated = runpy.run_path(str(P4SRC / "generate_lanes.py"))["generated"]()
    assert generated
    for name, text in generated.items():
        assert (P4SRC / "include" / name).read_text() == text, f"{name}: run python p4src/generate_lanes.py"
