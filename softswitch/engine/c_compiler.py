"""The C compiler's location; a module of its own, as the query is cheap and its users are costly to import.

Objects that are built with the package, for machines without a C compiler: the engine and stock programs.

`build` builds them, for ``setup.py``, for each of the `LEVELS` of processors. An object's name has the
hash of its source text: an object of other sources is never found.
"""

from __future__ import annotations

import os
import platform
import shutil
from functools import cache
from pathlib import Path
from typing import Final


def compiler_name() -> str:
    """Return ``$CC``, or ``cc``."""
    return os.environ.get("CC") or "cc"


def compiler_path() -> str | None:
    """Return the C compiler's path, None if it is not on PATH."""
    return shutil.which(compiler_name())


def has_compiler() -> bool:
    """Return whether programs can be compiled here."""
    return compiler_path() is not None


FOLDER: Final = Path(__file__).parent / "built"
LEVELS: Final = {
    "x86_64": (
        ("x86-64-v3", frozenset(["avx", "avx2", "bmi1", "bmi2", "f16c", "fma", "abm", "movbe", "xsave"])),
        ("x86-64", frozenset[str]()),
    ),
    "aarch64": (("armv8-a", frozenset[str]()),),
}
"""By machine, what ``-march`` objects are built for, the best one first, and the flags that it asks of a
processor (``/proc/cpuinfo``)."""


def find(content: str) -> Path | None:
    """Return the best object for this processor of the text with this hash; None: there is none."""
    return next((file for level in levels() if (file := FOLDER / f"{content}-{level}.so").exists()), None)


@cache
def levels() -> tuple[str, ...]:
    """Return the levels whose objects this processor can run, the best one first."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    flags = {flag for line in lines if line.startswith("flags") for flag in line.split(":")[1].split()}
    return tuple(level for level, needs in LEVELS.get(platform.machine(), ()) if needs <= flags)
