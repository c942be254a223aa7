"""The environment of a process that loads programs built with sanitizers (`build` with `sanitize`)."""

from __future__ import annotations

import subprocess
import sys

from softswitch.engine.build import find_compiler
from softswitch.engine.pipeline import BuildFailed


def sanitizer_environment() -> dict[str, str]:
    """Return the variables with which a Python process can load sanitized objects.

    Raises NoCompiler, and BuildFailed if the compiler has no sanitizers that can be preloaded.
    """
    environment = {
        "LD_PRELOAD": " ".join(_library(name) for name in ("libasan.so", "libubsan.so")),
        "PYTHONMALLOC": "malloc",  # so that every frame has its red zones
        "ASAN_OPTIONS": "detect_leaks=0:detect_stack_use_after_return=1",  # Python itself leaks
        "UBSAN_OPTIONS": "print_stacktrace=1",
    }
    probe = [sys.executable, "-c", "import ctypes; ctypes.CDLL(None).__asan_init"]
    if subprocess.run(probe, env=environment, capture_output=True, check=False).returncode:
        raise BuildFailed(f"{find_compiler()} has no address sanitizer that can be preloaded")
    return environment


def _library(name: str) -> str:
    """Return the path of a sanitizer's library, or the name if the compiler has none."""
    command = [find_compiler(), f"-print-file-name={name}"]
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()
