"""Compile the C functions in place, as an installation does: ``python -m controller._native.build``."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from controller._native import library_path

# a fused multiplication would round differently from Python, and so break ties differently
FLAGS = ("-O3", "-std=gnu11", "-ffp-contract=off", "-Wall", "-Wextra", "-fPIC", "-shared")


def build() -> Path:
    """Compile with ``$CC`` (default ``cc``); return the library's path.

    Raises OSError or CalledProcessError if that fails.
    """
    target = library_path()
    scratch = target.with_suffix(f".{os.getpid()}")
    sources = sorted(str(source) for source in target.parent.glob("*.c"))
    subprocess.run([os.environ.get("CC", "cc"), *FLAGS, "-o", str(scratch), *sources, "-lm"], check=True)
    scratch.replace(target)  # at once: a running process keeps the file that it has mapped
    return target


if __name__ == "__main__":
    build()
