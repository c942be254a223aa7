"""Builds the data-path engine (runtime/engine*.c) with the machine's C compiler, once per content."""

from __future__ import annotations

from pathlib import Path

from softswitch.engine.build import FLAGS, RUNTIME, build_c

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
