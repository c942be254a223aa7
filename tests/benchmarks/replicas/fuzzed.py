"""Drivers of compiled parts, built with address and undefined-behaviour sanitizers and run."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest

HERE = Path(__file__).parent
FLAGS = ("-std=gnu11", "-g", "-O1", "-Wall", "-Wextra", "-Werror", "-fsanitize=address,undefined")


def silent(folder: Path, sources: Sequence[Path], seed: int) -> None:
    """Build a driver in this folder, and run it with a seed: compiler and sanitizers have to be silent.

    Skips the test where there is no C compiler, or one without sanitizers.
    """
    driver = folder / "driver"
    compiler = [os.environ.get("CC", "cc"), *FLAGS, "-fno-sanitize-recover=all", "-o", str(driver)]
    try:
        built = subprocess.run([*compiler, *map(str, sources), "-lm"], capture_output=True, text=True)
    except OSError:
        pytest.skip("no C compiler")
    if "cannot find" in built.stderr:  # the linker: there are no sanitizers
        pytest.skip("the C compiler has no sanitizers here")
    assert (built.returncode, built.stderr) == (0, "")
    done = subprocess.run([str(driver), str(seed)], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
