"""Compile the native part in place, as an installation does: ``python -m hostlib._native.build``."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from hostlib._native import library_path

RINGS = Path(__file__).parents[2] / "softswitch/engine/runtime"
"""Folder of ``shared_ring.h``, which ranks and switch share."""
FLAGS = ("-O3", "-std=gnu11", "-Wall", "-Wextra", "-fPIC", "-shared")


def build() -> Path:
    """Compile with ``$CC`` (default ``cc``). Raises OSError or CalledProcessError if the compiler fails."""
    target = library_path()
    scratch = target.with_suffix(f".{os.getpid()}")
    sources = sorted(str(source) for source in target.parent.glob("*.c"))
    subprocess.run(
        [os.environ.get("CC", "cc"), *FLAGS, f"-I{RINGS}", "-o", str(scratch), *sources, "-lm"], check=True
    )
    scratch.replace(target)  # atomic: a running process keeps the old file that it has mapped
    return target


if __name__ == "__main__":
    build()
