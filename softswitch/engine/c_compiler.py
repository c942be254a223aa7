"""Where the C compiler is; by itself, because to ask costs little and to import what uses it much."""

from __future__ import annotations

import os
import shutil


def compiler_name() -> str:
    """Return ``$CC``, or ``cc``."""
    return os.environ.get("CC") or "cc"


def compiler_path() -> str | None:
    """Return where that is, None if it is not on PATH."""
    return shutil.which(compiler_name())


def has_compiler() -> bool:
    """Return whether programs can be compiled here."""
    return compiler_path() is not None
