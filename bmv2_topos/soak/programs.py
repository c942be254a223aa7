"""The programs that schedules run: p4src's by their mode, or one of your own."""

from __future__ import annotations

from bmv2_topos.testbeds.virtual.settings import compiled, objects_of, offered
from controller import Mode
from controller.errors import ProgramMismatch
from controller.switches import names
from controller.switches.model import SwitchInfo
from softswitch.compiler import ir

LANES = 32
SHARED_SLOTS = 8
EXCLUSIVE_SLOTS = 32
SLOT_PREFIX = names.SLOT_REGISTER.removesuffix("psn")
"""Prefix of the names of registers with slots' state."""
GENERATION = f"{SLOT_PREFIX}generation"


def slots_of(mode: Mode) -> int:
    """Return how many slots the switches of a bed have."""
    return SHARED_SLOTS if mode == "shared" else EXCLUSIVE_SLOTS


def program_of(mode: Mode, own: str | None = None) -> ir.Program:
    """Return the program of a bed: `own`, a program of one's own, or the one of p4src."""
    return compiled(own or mode, LANES, slots_of(mode))


def offers(own: str) -> SwitchInfo:
    """Return the capacity that a user's program offers to schedules.

    Raises ProgramMismatch for one that they cannot run; and as `testbeds.virtual.settings.offered`.
    """
    slots = slots_of(offered(own, LANES, SHARED_SLOTS).mode)
    found = offered(own, LANES, slots, wanted=slots)
    if found.salted:
        raise ProgramMismatch(f"{found.title} has salted slots, as ATP's; schedules do not cover these")
    if not found.aligned and GENERATION not in objects_of(own, LANES, slots).registers:
        raise ProgramMismatch(
            f"{found.title} lacks register '{GENERATION}', by which schedules find the slots to clear"
        )
    return found
