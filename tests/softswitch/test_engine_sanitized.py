"""The engine built with address and undefined-behaviour sanitizers, driven by random bytes: silent."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from softswitch.engine.build import engine_sources
from tests.softswitch.script_program import RUNTIME, have_compiler

HERE = Path(__file__).parent
CC = os.environ.get("CC", "cc")
SANITIZE = ["-g1", "-fno-omit-frame-pointer", "-fsanitize=address,undefined", "-fno-sanitize-recover=all"]


def _can_sanitize(directory: Path) -> bool:
    source = directory / "probe.c"
    source.write_text("int main(void) { return 0; }")
    probe = directory / "probe"
    built = subprocess.run([CC, *SANITIZE, "-o", str(probe), str(source)], capture_output=True)
    return built.returncode == 0 and subprocess.run([str(probe)], capture_output=True).returncode == 0


@pytest.fixture(scope="module")
def driver(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("sanitized")
    if not have_compiler:
        pytest.skip("no C compiler")
    if not _can_sanitize(directory):
        pytest.skip(f"{CC} has no working address sanitizer here")
    target = directory / "engine_fuzz"
    sources = [*engine_sources(), HERE / "script_program.c", HERE / "engine_fuzz.c"]
    warnings = ["-Wall", "-Wextra", "-Werror"]
    command = [
        CC,
        "-std=gnu11",
        "-O1",
        *warnings,
        *SANITIZE,
        "-pthread",
        "-D_GNU_SOURCE",
        f"-I{RUNTIME}",
        "-o",
        str(target),
    ]
    subprocess.run([*command, *map(str, sources)], check=True)
    return target


@pytest.mark.parametrize("seed", range(4))
def test_random_bytes_leave_the_sanitizers_silent(driver: Path, seed: int) -> None:
    done = subprocess.run([str(driver), str(seed), "20"], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
