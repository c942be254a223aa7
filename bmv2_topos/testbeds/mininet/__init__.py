"""Testbeds in Mininet, and the switches `EmbeddedSwitch` and `Bmv2Switch` for a user's own Mininet.

Mininet comes from Debian's package (``apt-get install mininet``). A testbed's Mininet runs in a namespace of
its own, so that it does not interfere with another Mininet on this machine.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from bmv2_topos.testbeds.mininet.package import find
from bmv2_topos.testbeds.mininet.runner import commands_of, up

if TYPE_CHECKING:
    from bmv2_topos.testbeds.mininet.switch import Bmv2Switch, EmbeddedSwitch

__all__ = ["Bmv2Switch", "EmbeddedSwitch", "commands_of", "find", "up"]


def __getattr__(name: str) -> object:
    """Load Mininet when a switch class is first used."""
    if name in ("Bmv2Switch", "EmbeddedSwitch"):
        from bmv2_topos.testbeds.mininet import switch

        return getattr(switch, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
