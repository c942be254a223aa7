"""Pages whose rows are timed run whole, in short: real processes on testbeds of network namespaces."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.pages import load
from bmv2_topos.harness.page import rows_of
from ina.bench.baselines import LIBRARIES
from tests.extras import needs
from tests.softswitch.namespaces import why_not
from tests.softswitch.script_program import have_compiler

REASON = why_not() if have_compiler else "no C compiler: interface ports need the engine in C"
ROOT = Path(__file__).parents[3]

TCP = pytest.param(
    "coexistence", marks=pytest.mark.skipif(shutil.which("iperf3") is None, reason="needs iperf3")
)

pytestmark = [pytest.mark.netns, pytest.mark.skipif(bool(REASON), reason=REASON)]


def run(folder: Path, *arguments: str) -> str:
    done = subprocess.run(
        [sys.executable, "-m", *arguments],
        cwd=ROOT,
        env={**os.environ, "INA_TESTBEDS": str(folder.parent / "up")},  # a socket's path has 107 bytes
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("name", [pytest.param("scaling", marks=needs("torch")), "few-bits", "model", TCP])
def test_a_page_of_real_runs_is_made_whole(name: str, tmp_path: Path) -> None:
    results = tmp_path / "results"
    run(tmp_path, "benchmarks.pages", name, "--quick", "--output", str(results))
    rows = rows_of(json.loads((results / f"{name}.json").read_text()))
    wanted = [each for each in load(name).scenarios(True) if not each.missing]
    found = [{key: row[key] for key in each.labels} for each, row in zip(wanted, rows, strict=True)]
    assert found == [dict(each.labels) for each in wanted]
    assert any(each.real for each in wanted)
    assert (results / f"{name}.md").read_text().startswith(f"# {load(name).title}\n")


@needs("torch")
def test_the_speed_of_training_and_of_collectives_is_measured(tmp_path: Path) -> None:
    few = ("benchmarks.training.speed", "--quick", "--hosts", "2", "--rates", "1e9")
    assert "int32 ÷ gloo" in run(tmp_path, *few)
    (trained,) = json.loads(run(tmp_path, *few, "--sharded", "--json"))["rows"]
    assert trained["paths"] == ["switch"]
    assert all(len(speeds) == 1 and speeds[0] > 0 for speeds in trained["samples_per_s"].values())
    libraries = ["gloo", *(["openmpi"] if LIBRARIES["openmpi"].missing("openmpi") is None else [])]
    moved = json.loads(run(tmp_path, *few, "--collectives", "--json", "--libraries", *libraries))["rows"]
    assert {row["operation"] for row in moved} == {"allreduce", "reduce-scatter", "all-gather", "broadcast"}
    assert all(row[f"{library} ÷ ina"] > 0 for row in moved for library in libraries)
