"""Makes the processes that tests start ready in less time: a quarter of their processor time.

What modules make as they are loaded stays until the end: the garbage collector need not look at it again and
again, which took a second of each process that trains with torch. All else is collected as everywhere, also
when the process ends.
"""

import atexit
import gc
import sys

NEW = 20
"""Modules loaded since a full collection, from which on the next one keeps what there is instead."""

_loaded = len(sys.modules)


def _keep(phase: str, info: dict[str, int]) -> None:
    global _loaded
    if phase == "start" and info["generation"] == 2 and len(sys.modules) - _loaded > NEW:
        _loaded = len(sys.modules)
        gc.freeze()


gc.callbacks.append(_keep)
atexit.register(lambda: _keep in gc.callbacks and gc.callbacks.remove(_keep))
