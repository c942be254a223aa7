"""The compiled matching built with address and undefined-behaviour sanitizers: silent."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from benchmarks.replicas import muri

HERE = Path(__file__).parent
SOURCES = (Path(muri.__file__).with_name("blossom.c"), HERE / "blossom_fuzz.c")
FLAGS = ("-std=gnu11", "-g", "-O1", "-Wall", "-Wextra", "-Werror", "-fsanitize=address,undefined")


@pytest.mark.parametrize("seed", range(3))
def test_random_graphs_leave_the_sanitizers_silent(tmp_path: Path, seed: int) -> None:
    driver = tmp_path / "driver"
    compiler = [os.environ.get("CC", "cc"), *FLAGS, "-fno-sanitize-recover=all", "-o", str(driver)]
    try:
        built = subprocess.run([*compiler, *map(str, SOURCES), "-lm"], capture_output=True, text=True)
    except OSError:
        pytest.skip("no C compiler")
    if "cannot find" in built.stderr:  # the linker: there are no sanitizers
        pytest.skip("the C compiler has no sanitizers here")
    assert (built.returncode, built.stderr) == (0, "")
    done = subprocess.run([str(driver), str(seed)], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
