"""Find the C compiler, and the objects supplied with the package for machines without one.

The supplied objects are the engine and the stock programs. ``setup.py`` builds them with `build`, for each
of the processor `LEVELS`. An object's name has the hash of its source text, so an object built from another
text is never found. This module imports little, as callers often need only the compiler's path.
"""

from __future__ import annotations

import os
import platform
import shutil
from functools import cache
from pathlib import Path
from typing import Final


def compiler_name() -> str:
    """Return the name of the C compiler: ``$CC`` or, if it is not set, ``cc``."""
    return os.environ.get("CC") or "cc"


def compiler_path() -> str | None:
    """Return the C compiler's path, None if it is not on PATH."""
    return shutil.which(compiler_name())


def has_compiler() -> bool:
    """Return True if this machine has a C compiler."""
    return compiler_path() is not None


FOLDER: Final = Path(__file__).parent / "built"
LEVELS: Final = {
    "x86_64": (
        ("x86-64-v3", frozenset(["avx", "avx2", "bmi1", "bmi2", "f16c", "fma", "abm", "movbe", "xsave"])),
        ("x86-64", frozenset[str]()),
    ),
    "aarch64": (("armv8-a", frozenset[str]()),),
}
"""For each machine type, the (``-march`` value, needed processor flags) of supplied objects, best first.

The flags have the names that ``/proc/cpuinfo`` gives them.
"""


def find(content: str) -> Path | None:
    """Return the best supplied object for this processor.

    `content` is the hash of the source text. Return None if no object was built from this text.
    """
    return next((file for level in levels() if (file := FOLDER / f"{content}-{level}.so").exists()), None)


@cache
def levels() -> tuple[str, ...]:
    """Return the levels of objects that this processor can run, the best one first."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    flags = {flag for line in lines if line.startswith("flags") for flag in line.split(":")[1].split()}
    return tuple(level for level, needs in LEVELS.get(platform.machine(), ()) if needs <= flags)
