"""Maximum-weight matching of a dense graph, with the tie-breaks of Muri's public simulator.

Weights between jobs of few models tie all the time, so which of the many maximum matchings is found decides
which jobs run together, and with that every later event. `controller.grouping.matching` is for everything
else: it is exact too, and much faster on large sparse graphs.

An installation compiles blossom.c, which lies beside this file, into a library that ctypes loads.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from functools import cache
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path

import numpy as np

from controller.scheduling.errors import NotCompiled

LIBRARY = Path(__file__).parent / f"_blossom{EXTENSION_SUFFIXES[0]}"


def dense_matching(weights: Sequence[Sequence[float]]) -> list[int]:
    """Return each node's partner in a maximum-weight matching, -1 for none.

    `weights[u][v]` is the weight of an edge, 0 if there is none; [u][v] and [v][u] may differ by rounding.
    Raises NotCompiled where there is no library. O(n^3).

    >>> dense_matching([[0, 3, 1], [3, 0, 2], [1, 2, 0]])
    [1, 0, -1]
    """
    table = np.array(weights, dtype=np.float64, order="C")
    partner = np.full(len(table), -1, dtype=np.int32)
    if table.any() and load(LIBRARY)(len(table), table.ctypes.data, partner.ctypes.data):
        raise MemoryError(f"matching {len(table)} nodes")
    found: list[int] = partner.tolist()
    return found


@cache
def load(path: Path) -> Callable[[int, int, int], int]:
    """Return the library's function. Raises NotCompiled."""
    try:
        function = ctypes.CDLL(str(path)).blossom_match
    except OSError:
        raise NotCompiled("the matching of Muri's public simulator", path.name) from None
    function.restype, function.argtypes = ctypes.c_int, [ctypes.c_int32, ctypes.c_void_p, ctypes.c_void_p]
    match: Callable[[int, int, int], int] = function
    return match
