"""The programs of a virtual testbed's switches: compiled once per process, and what they offer to jobs."""

from __future__ import annotations

import functools

from bmv2_topos.testbeds.virtual.errors import TestbedError
from controller.switches.capabilities import capabilities
from controller.switches.model import SwitchInfo
from controller.switches.programs import objects, source_of
from controller.switches.target import ProgramInfo
from softswitch import compile_once, p4info, preprocess_once
from softswitch.compiler import ir

Defines = tuple[tuple[str, str], ...]


@functools.cache
def compiled(program: str, lanes: int, slots: int, more_defines: Defines = ()) -> ir.Program:
    """Compile a program, once per process.

    Args:
        program: Name of a program of ``p4src``, or path of a file that ends in ``.p4``.
        lanes: Values per packet.
        slots: Slots of the switch.
        more_defines: Further preprocessor definitions.

    Raises ProgramMismatch if there is no such program; softswitch.CompileError.
    """
    source, defines = source_of(program, lanes)
    text = preprocess_once(source, defines={**defines, "SLOTS": str(slots), **dict(more_defines)})
    return compile_once(text, name=source.stem)


@functools.cache
def objects_of(program: str, lanes: int, slots: int, more_defines: Defines = ()) -> ProgramInfo:
    """Return the objects of that program's P4Info; for arguments and errors see `compiled`."""
    return objects(p4info(compiled(program, lanes, slots, more_defines)))


@functools.cache
def offered(
    program: str, lanes: int, slots: int, more_defines: Defines = (), *, wanted: int = 0
) -> SwitchInfo:
    """Return the capacity that a program offers to jobs; for the other arguments and errors see `compiled`.

    `wanted` is the number of slots that jobs want. Also raises ProgramMismatch if the program cannot
    aggregate, and TestbedError for a user's program that has fewer slots, or other lanes, than it was to be
    built with.
    """
    found = capabilities(objects_of(program, lanes, slots, more_defines), f"the program {program}")
    if found.lanes != lanes:
        raise TestbedError(f"{found.title} puts {found.lanes} values into each packet, not {lanes}")
    if found.slots < wanted:
        raise TestbedError(
            f"{found.title} has {found.slots} slots, and {wanted} are wanted: give its registers SLOTS cells"
        )
    return found
