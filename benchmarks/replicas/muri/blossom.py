"""Maximum-weight matching of a dense graph, with the tie-breaks of Muri's public simulator.

Weights between jobs of few models tie all the time, so which of the many maximum matchings is found decides
which jobs run together, and with that every later event. `controller.grouping.matching` is for everything
else: it is exact too, and much faster on large sparse graphs.

blossom.c, which lies beside this file, is compiled when it is first needed, and kept where the switch keeps
its programs (`softswitch.engine.build`).
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path

import numpy as np

from controller.scheduling.errors import SchedulingError
from softswitch.engine.build import build_c
from softswitch.engine.pipeline import BuildFailed, NoCache, NoCompiler

SOURCE = Path(__file__).with_suffix(".c")
# a fused multiplication would round differently from Python, and so break ties differently
FLAGS = ("-std=gnu11", "-O3", "-ffp-contract=off", "-shared", "-fPIC")


def dense_matching(weights: Sequence[Sequence[float]]) -> list[int]:
    """Return each node's partner in a maximum-weight matching, -1 for none.

    `weights[u][v]` is the weight of an edge, 0 if there is none; [u][v] and [v][u] may differ by rounding.
    Raises SchedulingError where there is no C compiler. O(n^3).

    >>> dense_matching([[0, 3, 1], [3, 0, 2], [1, 2, 0]])
    [1, 0, -1]
    """
    table = np.array(weights, dtype=np.float64, order="C")
    partner = np.full(len(table), -1, dtype=np.int32)
    if table.any() and library()(len(table), table.ctypes.data, partner.ctypes.data):
        raise MemoryError(f"matching {len(table)} nodes")
    found: list[int] = partner.tolist()
    return found


@cache
def library() -> Callable[[int, int, int], int]:
    """Return the compiled function. Raises SchedulingError where there is no C compiler."""
    try:
        path = build_c(SOURCE.read_text(encoding="utf-8"), flags=FLAGS)
    except (NoCompiler, NoCache, BuildFailed) as error:
        raise SchedulingError(f"the matching of Muri's public simulator: {error}") from error
    function = ctypes.CDLL(str(path)).blossom_match
    function.restype, function.argtypes = ctypes.c_int, [ctypes.c_int32, ctypes.c_void_p, ctypes.c_void_p]
    match: Callable[[int, int, int], int] = function
    return match
