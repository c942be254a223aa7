"""C functions for the schedulers' decisions: compiled from ``*.c`` beside this file, loaded by ctypes.

They do not use Python's C interface. `tests.twins` has the same functions in Python, for comparison.
"""

from __future__ import annotations

import ctypes
import functools
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path
from typing import Any

from controller.errors import NativeMissing

REMEDY = "run `python -m controller._native.build`"


class WaterfillFlows(ctypes.Structure):
    """``struct waterfill_flows`` of waterfill.h."""

    _fields_ = (
        *((name, ctypes.c_int64) for name in ("jobs", "nodes", "links", "pools")),
        *((name, ctypes.c_void_p) for name in ("link_bps", "pool_bps", "limit_bps")),
        *((name, ctypes.c_void_p) for name in ("job", "link", "back", "parent", "pool")),
        *((name, ctypes.c_void_p) for name in ("source", "kept", "held")),
    )


@functools.cache
def library_path() -> Path:
    """Return the path at which `build` and an installation put the compiled library."""
    return Path(__file__).parent / f"_decide{EXTENSION_SUFFIXES[0]}"


def load() -> ctypes.CDLL:
    """Return the compiled library, loaded once for the process. Raises NativeMissing."""
    return _load(library_path())


@functools.cache
def _load(path: Path) -> ctypes.CDLL:
    """Load the library at `path`, and declare its functions' types. Raises NativeMissing."""
    try:
        library = ctypes.CDLL(str(path))
    except OSError as error:
        raise NativeMissing(
            f"the controller's compiled library cannot be loaded ({error}); {REMEDY}"
        ) from error
    pointer, i32 = ctypes.c_void_p, ctypes.c_int32
    signatures: dict[str, tuple[Any, list[Any]]] = {
        "matching_of": (ctypes.c_int, [i32, pointer, i32, pointer, pointer]),
        "waterfill": (ctypes.c_int, [pointer] * 5),
    }
    try:
        for name, (result, arguments) in signatures.items():
            function = getattr(library, name)
            function.restype, function.argtypes = result, arguments
    except AttributeError as error:
        raise NativeMissing(
            f"{path} does not match this version of the controller ({error}); {REMEDY}"
        ) from error
    return library
