"""A warning, once per process, where sums have fewer bits than their dtype promises."""

from __future__ import annotations

import sys
import warnings

from hostlib.errors import PrecisionWarning

_warned = False


def warn_of_float64() -> None:
    """Warn, the first time, that float64 is summed as float32; at the line that called this package."""
    global _warned
    if _warned:
        return
    warnings.warn(
        "float64 (Python's float, too) is summed as float32, which keeps 24 of 53 bits. Pass "
        "array.astype(numpy.float32) where that is meant, or silence this, which is said once, with "
        'warnings.filterwarnings("ignore", category=hostlib.PrecisionWarning)',
        PrecisionWarning,
        stacklevel=_callers_level(),
    )
    _warned = True


def _callers_level() -> int:
    """Return the `stacklevel` for `warn_of_float64` that leads out of this package."""
    level, frame = 1, sys._getframe(1)
    while frame.f_back and frame.f_globals.get("__name__", "").partition(".")[0] == "hostlib":
        level, frame = level + 1, frame.f_back
    return level
