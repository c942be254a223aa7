"""The programs that schedules run: p4src's, by their mode, or a user's program."""

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
"""Prefix of the names of registers that hold the state of slots."""
GENERATION = f"{SLOT_PREFIX}generation"


def slots_of(mode: Mode) -> int:
    """Return the number of slots that each switch of a testbed has, for a program of this mode."""
    return SHARED_SLOTS if mode == "shared" else EXCLUSIVE_SLOTS


def program_of(mode: Mode, own: str | None = None) -> ir.Program:
    """Return the compiled program of a testbed: the user's, at the path `own`, or p4src's of this mode."""
    return compiled(own or mode, LANES, slots_of(mode))


def offers(own: str) -> SwitchInfo:
    """Return the description of a user's program, with the capacity that it offers to schedules.

    Raises ProgramMismatch if schedules cannot run it, and the errors of `testbeds.virtual.settings.offered`.
    """
    slots = slots_of(offered(own, LANES, SHARED_SLOTS).mode)
    found = offered(own, LANES, slots, wanted=slots)
    if found.salted:
        raise ProgramMismatch(
            f"{found.title} salts slot numbers, as ATP does; the soak does not support this"
        )
    if not found.aligned and GENERATION not in objects_of(own, LANES, slots).registers:
        raise ProgramMismatch(
            f"{found.title} lacks the register '{GENERATION}', which the soak needs to find slots to clear"
        )
    return found
