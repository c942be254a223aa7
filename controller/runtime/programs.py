"""Turns the name of a switch program into what a switch loads."""

from __future__ import annotations

from pathlib import Path

import softswitch
from controller import ProgramBundle, locate


def source_of(program: str, lanes: int) -> tuple[Path, dict[str, str]]:
    """Return the source of a program of p4src, or of any file that ends in ``.p4``, and its definitions."""
    if program.endswith(".p4"):
        return Path(program), {"LANES": str(lanes)}
    return locate(program, lanes=lanes)


def bundle(program: str, lanes: int) -> ProgramBundle:
    """Compile a program for the embedded switch.

    Raises:
        ProgramMismatch: no such program, or not for so many lanes.
        softswitch.CompileError: it does not compile.
    """
    source, defines = source_of(program, lanes)
    text = softswitch.preprocess_once(source, defines=defines)
    compiled = softswitch.compile_once(text, name=source.stem)
    return ProgramBundle(source.stem, softswitch.p4info(compiled), text.encode())
