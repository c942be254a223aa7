"""The time of torch's collectives beside gloo's is measured, of both ways to meet, in short."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from tests.extras import needs

ROOT = Path(__file__).parents[2]


@needs("torch")
def test_collectives_of_torch_are_timed_beside_gloo() -> None:
    few = ("--quick", "--ranks", "2", "--megabytes", "0.25", "--json")
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.training.torch_collectives", *few],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    rows = json.loads(done.stdout)["rows"]
    assert {(row["operation"], row["met_by"]) for row in rows} == {
        (operation, met_by)
        for operation in ("reduce-scatter", "all-gather", "broadcast", "allreduce")
        for met_by in ("switch", "gloo")
    }
    for row in rows:
        assert row["size_bytes"] == 1 << 18
        assert all(0 < row["all_there_ms"][way] <= row["slowest_ms"][way] for way in ("ina", "gloo"))
