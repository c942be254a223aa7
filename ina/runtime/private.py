"""Where switches are reached that nobody but their run is to reach: a module that loads nothing."""

from __future__ import annotations

PRIVATE = "unix"
"""P4Runtime at a Unix socket in a folder that only this user can enter (softswitch/p4runtime/server.py)."""
