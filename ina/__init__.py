"""Allreduce and other collectives through the switch, with the calls that training code makes.

::

    import ina

    ina.init()
    mean = ina.allreduce(gradient, op="average")
    ina.shutdown()

This module has the public names of the host library (`hostlib`). The packages below it combine switch,
controller, host library and testbeds: `ina.cli` is the command, `ina.run` the one runtime of jobs, `ina.api`
the controller's HTTP API, and `ina.bench` measures.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from hostlib import *  # noqa: F403


def __getattr__(name: str) -> object:
    """Return an object of the host library by its name.

    The library is imported at the first use, because a switch process does not need it.
    """
    if not name.startswith("__") or name == "__all__":
        import hostlib

        if name == "__all__" or name in hostlib.__all__:
            found: object = getattr(hostlib, name)
            globals()[name] = found
            return found
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
