"""The real program, the engine and the host library's C under sanitizers, fed with anything: silent."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from hostlib._native.build import RINGS
from hostlib.fallback import Count
from softswitch.engine.build import SANITIZE_FLAGS, build, build_c, engine_sources, sanitizer_environment
from softswitch.engine.pipeline import BuildFailed, NoCompiler
from tests import effort
from tests.programs import p4src_program
from tests.system.command import ROOT
from tests.system.sanitized import LANES, SLOTS

CC = os.environ.get("CC", "cc")
DRIVER = "tests.system.sanitized"


@pytest.fixture(scope="module")
def environment() -> dict[str, str]:
    """What a Python process needs to load sanitized objects."""
    try:
        return {**os.environ, **sanitizer_environment()}
    except (NoCompiler, BuildFailed) as error:
        pytest.skip(str(error))


@pytest.fixture(scope="module")
def engine() -> Path:
    text = "\n".join(f'#line 1 "{path}"\n{path.read_text()}' for path in engine_sources())
    return build_c(text, flags=(*SANITIZE_FLAGS, "-D_GNU_SOURCE", "-pthread"))


@pytest.fixture(scope="module")
def programs() -> dict[str, Path]:
    return {
        name: build(p4src_program(name, LANES=LANES, SLOTS=SLOTS), sanitize=True)
        for name in ("exclusive", "shared")
    }


@pytest.fixture(scope="module")
def host_library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    target = tmp_path_factory.mktemp("sanitized") / "ina.so"
    sources = sorted((ROOT / "hostlib" / "_native").glob("*.c"))
    flags = [flag for flag in SANITIZE_FLAGS if flag != "-fvisibility=hidden"]
    subprocess.run([CC, *flags, f"-I{RINGS}", "-o", str(target), *map(str, sources), "-lm"], check=True)
    return target


def fuzz(environment: dict[str, str], driver: str, *arguments: object) -> dict[str, int]:
    command = [sys.executable, "-m", driver, *map(str, arguments)]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    counts: dict[str, int] = json.loads(done.stdout)
    return counts


@pytest.mark.parametrize("name", ["exclusive", "shared"])
def test_any_frames_leave_the_switch_silent(
    environment: dict[str, str], engine: Path, programs: dict[str, Path], name: str
) -> None:
    frames = effort.cases(20_000, at_least=7_000)
    counts = fuzz(environment, DRIVER, "switch", engine, name, programs[name], 1, frames)
    assert counts["received"] > 1000
    assert counts["outcomes"] >= 20  # the frames met most of the program


def test_any_frames_leave_switches_with_cables_silent(environment: dict[str, str], engine: Path) -> None:
    counts = fuzz(environment, DRIVER, "cables", engine, 1000, effort.cases(60, at_least=20))
    assert counts["arrived"] > 500


def test_any_answers_leave_the_worker_silent(environment: dict[str, str], host_library: Path) -> None:
    counts = fuzz(environment, DRIVER, "worker", host_library, 0, effort.cases(300, at_least=150))
    assert [kind for kind, count in counts.items() if not count] == []


@pytest.mark.parametrize("seed", effort.some(range(2), every=2))
def test_any_packets_leave_the_server_silent(
    environment: dict[str, str], host_library: Path, seed: int
) -> None:
    counts = fuzz(environment, "tests.hostlib.fallback.sanitized", host_library, seed, 25)
    assert [count.name for count in Count if not counts[count.name.lower()]] == []
    assert counts["received"] > 0
