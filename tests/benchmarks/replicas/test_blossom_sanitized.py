"""The compiled matching built with address and undefined-behaviour sanitizers: silent."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.replicas import muri
from tests.benchmarks.replicas.fuzzed import HERE, silent

SOURCES = (Path(muri.__file__).with_name("blossom.c"), HERE / "blossom_fuzz.c")


@pytest.mark.parametrize("seed", range(3))
def test_random_graphs_leave_the_sanitizers_silent(tmp_path: Path, seed: int) -> None:
    silent(tmp_path, SOURCES, seed)
