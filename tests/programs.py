"""Programs, compiled once for all test processes that want the same one."""

from __future__ import annotations

from pathlib import Path

from softswitch.compiler import ir
from softswitch.engine.cache import compile_once, preprocess_once

P4SRC = Path(__file__).parents[1] / "p4src"


def p4src_program(name: str, **defines: object) -> ir.Program:
    """Return a program of p4src, such as shared, compiled with definitions such as ``LANES=32``."""
    return program_of(P4SRC / f"{name}.p4", **defines)


def program_of(path: Path, **defines: object) -> ir.Program:
    """Return the program of a file, compiled with these definitions."""
    text = preprocess_once(path, defines={key: str(value) for key, value in defines.items()})
    return compile_once(text, name=str(path))
