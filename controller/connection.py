"""Connections to switches behind P4Runtime servers."""

from __future__ import annotations

from controller.p4runtime_shim.target import P4RuntimeTarget
from controller.p4runtime_shim.tls import Tls
from controller.switches.session import SwitchSession


def connect(
    address: str, *, device_id: int = 0, tls: Tls | None = None, at_once: bool = True
) -> SwitchSession:
    """Connect to a P4Runtime server.

    Args:
        address: ``host:port`` or ``unix:path``.
        device_id: The switch's device id there.
        tls: For TLS; None: without.
        at_once: Wait until it answers; else the first call finds out whether it does.

    Raises Unreachable, if `at_once`.
    """
    return SwitchSession(P4RuntimeTarget(address, device_id=device_id, tls=tls, at_once=at_once))
