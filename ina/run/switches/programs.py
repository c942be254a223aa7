"""The program that the switches of a run must have, and what it offers to jobs: lanes, slots, features."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import softswitch
from controller import ProgramBundle, ProgramMismatch, SwitchInfo, SwitchSession, connect, source_of
from ina.errors import BadRun
from ina.run.launch.spec import DEFAULT_LANES, DEFAULT_PROGRAM, FabricSpec
from p4src.programs import is_file


@cache
def bundle(program: str, lanes: int) -> ProgramBundle:
    """Compile a program of p4src, or of a file that ends in ``.p4``, for the embedded switch.

    Raises:
        ProgramMismatch: there is no such program, or it is not available with this number of lanes.
        softswitch.CompileError: the program does not compile.
    """
    source, defines = source_of(program, lanes)
    text = softswitch.preprocess_once(source, defines=defines)
    return ProgramBundle(program, softswitch.p4info_once(text, name=source.stem), text.encode())


def settled(spec: FabricSpec) -> tuple[FabricSpec, SwitchInfo]:
    """Return the spec with its program and lanes filled in, and what this program offers to jobs.

    The program stays None if jobs use the switch's running program.

    Raises:
        ProgramMismatch: there is no such program, or it cannot aggregate.
        softswitch.CompileError: the program does not compile.
        BadRun: the program's number of values per packet differs from the requested number.
        ControllerError: the switch to attach to does not answer.
    """
    if spec.attached:
        with connect(spec.attached.address, tls=spec.attached.tls) as controller:
            wanted, offers = choice(spec, controller)
        return replace(spec, program=wanted.name if wanted else None, lanes=offers.lanes), offers
    program = spec.program or DEFAULT_PROGRAM
    offers = bundle(program, spec.lanes or DEFAULT_LANES).offers()
    _check_lanes(spec, offers)
    return replace(spec, program=program, lanes=offers.lanes), offers


def choice(spec: FabricSpec, controller: SwitchSession) -> tuple[ProgramBundle | None, SwitchInfo]:
    """Return the program that a running switch must have, and what jobs are offered on it.

    The program is None if none was requested: the switch keeps its running program. If a program of p4src was
    requested, the switch may run another program on which the same jobs can run; the second value then
    describes that program. A program from a file must itself run on the switch.

    Raises the errors of `settled`.
    """
    running = None if spec.replace_program else _running(controller)
    if running is not None and spec.program is None:
        _check_lanes(spec, running)
        return None, running
    lanes = spec.lanes or (running.lanes if running else DEFAULT_LANES)
    wanted = bundle(spec.program or DEFAULT_PROGRAM, lanes)
    offers = wanted.offers()
    _check_lanes(spec, offers)
    if running is not None and not is_file(wanted.name) and running.covers(offers):
        return wanted, running
    return wanted, offers


def load(spec: FabricSpec, controller: SwitchSession) -> None:
    """Load the program of `choice` on a running switch. Raises the errors of `settled`, and OtherProgram."""
    wanted, _ = choice(spec, controller)
    if wanted is not None:
        controller.load(wanted, replace=spec.replace_program, similar=not is_file(wanted.name))


def _running(controller: SwitchSession) -> SwitchInfo | None:
    try:
        return controller.info()
    except ProgramMismatch:  # no program runs, or one without aggregation
        return None


def _check_lanes(spec: FabricSpec, offers: SwitchInfo) -> None:
    if spec.lanes not in (None, offers.lanes):
        raise BadRun(
            f"{offers.title} puts {offers.lanes} values into each packet",
            setting="lanes",
            value=str(spec.lanes),
        )
