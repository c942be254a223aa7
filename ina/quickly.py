"""How processes of the product import their modules: in two thirds of the time."""

from __future__ import annotations

import contextlib
import gc
import os
from collections.abc import Iterator
from typing import Final

_BLAS_THREADS: Final = "OPENBLAS_NUM_THREADS"


@contextlib.contextmanager
def quickly() -> Iterator[None]:
    """Import modules without what takes a third of the time of a command that does little.

    What they make stays until the end, so the garbage collector never looks at it. NumPy's BLAS starts no
    threads, which wait busily for a moment: no command multiplies large matrices. Processes that the command
    starts are told nothing of that.
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
