"""The C core under sanitizers, fed with anything: silent."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from hostlib.fallback import Count

ROOT = Path(__file__).parents[3]
CC = os.environ.get("CC", "cc")
FLAGS = ["-O1", "-g", "-std=gnu11", "-fPIC", "-shared", "-fno-omit-frame-pointer"]
SANITIZE = ["-fsanitize=address,undefined", "-fno-sanitize-recover=all"]


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    target = tmp_path_factory.mktemp("sanitized") / "ina.so"
    sources = sorted(map(str, (ROOT / "hostlib" / "_native").glob("*.c")))
    done = subprocess.run([CC, *FLAGS, *SANITIZE, "-o", str(target), *sources, "-lm"], capture_output=True)
    if done.returncode:
        pytest.skip(f"{CC} cannot build with sanitizers")
    return target


@pytest.fixture(scope="module")
def environment() -> dict[str, str]:
    """What a Python process needs to load a sanitized library."""
    found = [
        subprocess.run([CC, f"-print-file-name={name}"], capture_output=True, text=True).stdout.strip()
        for name in ("libasan.so", "libubsan.so")
    ]
    environment = {
        **os.environ,
        "LD_PRELOAD": " ".join(found),
        "PYTHONMALLOC": "malloc",  # so that every buffer has its red zones
        "ASAN_OPTIONS": "detect_leaks=0",  # Python itself leaks
    }
    probe = [sys.executable, "-c", "import ctypes; ctypes.CDLL(None).__asan_init"]
    if subprocess.run(probe, env=environment, capture_output=True).returncode:
        pytest.skip(f"{CC} has no address sanitizer that can be preloaded")
    return environment


@pytest.mark.parametrize("seed", range(2))
def test_any_packets_leave_the_server_silent(environment: dict[str, str], library: Path, seed: int) -> None:
    command = [sys.executable, "-m", "tests.hostlib.fallback.sanitized", str(library), str(seed), "25"]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    counts = json.loads(done.stdout)
    assert [count.name for count in Count if not counts[count.name.lower()]] == []
    assert counts["received"] > 0
