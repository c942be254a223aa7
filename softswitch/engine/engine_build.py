"""Builds the data-path engine (runtime/engine*.c) with the machine's C compiler, once per content.

``python -m softswitch.engine.engine_build FOLDER PROGRAM.p4:LANES…`` builds it and programs for machines that
have no compiler (`prebuilt`).
"""

from __future__ import annotations

import platform
import sys
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path

from softswitch.engine.build import FLAGS, RUNTIME, build_c, compile_c, content_hash, find_compiler
from softswitch.engine.prebuilt import LEVELS

ENGINE_FLAGS = (*FLAGS, "-D_GNU_SOURCE", "-pthread", "-Wall", "-Wextra")


def engine_sources() -> list[Path]:
    """Return the engine's C files, in the order in which they make one translation unit."""
    return sorted(RUNTIME.glob("engine*.c"))


def engine_text() -> str:
    """Return the engine as one C text, so that a packet's way through its files can be inlined."""
    return "\n".join(f'#line 1 "{path.name}"\n{path.read_text()}' for path in engine_sources())


def build_engine() -> Path:
    """Return the engine as a shared object. Raises NoCompiler or BuildFailed."""
    return build_c(engine_text(), flags=ENGINE_FLAGS)


def build_for_others(folder: Path, programs: Sequence[str]) -> None:
    """Build the engine and programs, each "PROGRAM.p4:LANES", into a folder, for all `LEVELS`."""
    folder.mkdir(parents=True, exist_ok=True)
    with ProcessPoolExecutor() as processes:
        list(processes.map(partial(_build_for_others, folder), ["", *programs]))  # raises what they do


def _build_for_others(folder: Path, program: str) -> None:
    text, flags = engine_text(), tuple[str, ...](ENGINE_FLAGS)
    if program:
        from softswitch.compiler import compile_file
        from softswitch.engine.emit_c.program import emit_c

        source, _, lanes = program.rpartition(":")
        text, flags = emit_c(compile_file(source, defines={"LANES": lanes})), FLAGS
    for level, _ in LEVELS.get(platform.machine(), ()):
        target = folder / f"{content_hash(text, flags)}-{level}.so"
        of_level = [flag.replace("-march=native", f"-march={level}") for flag in flags]
        compile_c([find_compiler(), *of_level, "-s"], text, target)
        target.chmod(0o644)


if __name__ == "__main__":
    build_for_others(Path(sys.argv[1]), sys.argv[2:])
