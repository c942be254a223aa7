"""Compiles switch programs by name."""

from __future__ import annotations

import softswitch
from controller import ProgramBundle
from controller.switches.programs import source_of


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
