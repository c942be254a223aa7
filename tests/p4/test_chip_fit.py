"""The account of what a program takes of a chip: read rightly, published as it was read."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.p4.chip_fit import Case, account, compile_for, published, table

ROOT = Path(__file__).parents[2]
COMPILER = shutil.which("p4c-barefoot")
STAGE = {
    "rams": {"nRows": 8, "nColumns": 10, "srams": [{}, {}, {}]},
    "map_rams": {"nRows": 8, "nUnits": 6, "maprams": [{}]},
    "tcams": {"nRows": 12, "nColumns": 2, "tcams": []},
    "meter_alus": {"nAlus": 4, "meters": [{}]},
    "logical_tables": {"size": 16, "ids": [{}, {}]},
}
CONTAINERS = [
    {"container_type": "normal", "bit_width": 32},
    {"container_type": "normal", "bit_width": 8},
    {"container_type": "tagalong", "bit_width": 16},
]


def resources(stages: int) -> dict[str, object]:
    """Return what the compiler writes for so many stages, all alike."""
    return {
        "mau": {"nStages": 12, "mau_stages": [STAGE] * stages},
        "phv_containers": {"normal": [{"units": 64, "width": 32}, {"units": 64, "width": 8}]},
    }


def test_what_all_stages_use_is_added_up() -> None:
    fit = account(Case("exclusive", "tofino", 32), resources(2), CONTAINERS, 1.0)
    assert fit.stages == (2, 12)
    assert fit.units == {
        "SRAM blocks": (6, 960),
        "map RAMs": (2, 576),
        "TCAM blocks": (0, 288),
        "stateful ALUs": (2, 48),
        "logical tables": (4, 192),
    }
    assert fit.phv_bits == (40, 2560)


@pytest.mark.parametrize(("stages", "fits"), [(12, True), (13, False)])
def test_a_stage_that_no_chip_has_does_not_fit(stages: int, fits: bool) -> None:
    fit = account(Case("exclusive", "tofino", 32), resources(stages), CONTAINERS, 1.0)
    assert fit.fits is fits
    assert f"| {'yes' if fits else '**no**'} | {stages} of 12 |" in table([fit])


def test_the_page_has_the_rows_that_lie_beside_it() -> None:
    results = ROOT / "docs" / "results"
    page = (results / "chip-fit.md").read_text(encoding="utf-8")
    rows = published(results / "chip-fit.json")
    assert rows
    assert table(rows) in page
    assert all(row.fits for row in rows)


def test_without_the_compiler_it_says_what_to_build(tmp_path: Path) -> None:
    command = [sys.executable, "-P", "-m", "benchmarks.p4.chip_fit", "--compiler", "no-such-compiler"]
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    said = subprocess.run(command, capture_output=True, text=True, env=environment, cwd=tmp_path, check=False)
    assert said.returncode == 1
    assert said.stderr == (
        "benchmarks.p4.chip_fit: no-such-compiler is not on PATH: build p4c with -DENABLE_TOFINO=ON\n"
    )


@pytest.mark.skipif(COMPILER is None, reason="no p4c-barefoot on PATH")
@pytest.mark.parametrize("program", ["exclusive", "shared"])
def test_32_lanes_fit_tofino(program: str) -> None:
    includes = [Path(folder) for folder in os.environ.get("P4INCLUDE", "").split(os.pathsep) if folder]
    assert compile_for(Case(program, "tofino", 32), str(COMPILER), includes).fits
