"""Faster imports of a process's own modules: in two thirds of the time."""

from __future__ import annotations

import contextlib
import gc
import os
from collections.abc import Iterator
from typing import Final

_BLAS_THREADS: Final = "OPENBLAS_NUM_THREADS"


@contextlib.contextmanager
def quickly() -> Iterator[None]:
    """Import modules without a third of the usual time of a small command.

    The imported objects stay until the end, so the garbage collector never scans them. NumPy's BLAS starts no
    threads, which wait busily for a moment: no command multiplies large matrices. The command's child
    processes do not inherit that setting.
    """
    collecting, threads = gc.isenabled(), os.environ.get(_BLAS_THREADS)
    gc.disable()
    os.environ.setdefault(_BLAS_THREADS, "1")
    try:
        yield
    finally:
        if threads is None:
            del os.environ[_BLAS_THREADS]
        gc.freeze()
        if collecting:
            gc.enable()
