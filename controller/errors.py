"""All errors of the controller.

ControllerError
├── BadJob              no switch can serve the job; the message says why
├── OutOfMemory         no free range of the switch's slots is large enough
├── OutOfRows           no job id, counter row or port is left
├── NoSuchJob           the switch has no such job
│   └── SwitchRestarted because it has restarted since the job's admission
├── IdentityTaken       another job has the requested job id or generation
├── ProgramMismatch     the switch runs, or was offered, an unsuitable program
│   ├── NoProgram       it runs none
│   └── OtherProgram    it runs another one, and replacing it was not allowed
├── UnknownName         the program has no table, action or counter of that name
├── BadSpec             an invalid job, topology or option (`controller.vocabulary.errors`)
├── NativeMissing       the controller's compiled C library is missing, or of another version
├── SchedulingError     errors of schedulers and simulator (`controller.policies.scheduling.errors`)
└── SwitchError         the switch, or the connection to it, failed
    ├── Unreachable     it does not answer
    │   └── TlsFailure  only one end uses TLS, or one end does not trust the other
    ├── Refused         it answered with an error; `code` and, for a batch, `errors` say which
    ├── OtherOwner      it is marked as another controller's (`controller.switches.leases.mark`)
    └── NotPrimary      another controller stays the primary, the only one that may write
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass

from controller.vocabulary.errors import BadSpec, ControllerError

__all__ = [
    "BadJob",
    "BadSpec",
    "ControllerError",
    "IdentityTaken",
    "NativeMissing",
    "NoProgram",
    "NoSuchJob",
    "NotPrimary",
    "OtherProgram",
    "OutOfMemory",
    "OutOfRows",
    "ProgramMismatch",
    "Refused",
    "SwitchError",
    "SwitchRestarted",
    "TlsFailure",
    "UnknownName",
    "Unreachable",
    "UpdateError",
    "switch_in_errors",
]


class BadJob(ControllerError):
    """No switch can serve the job."""

    exit_code = 2


class OutOfMemory(ControllerError):
    """No free range is large enough; `asked`, `free` and `largest` (the largest free range) count slots."""

    def __init__(self, asked: int, free: int, largest: int, *, wanted: int | None = None) -> None:
        """Describe the free slots; `wanted`: the requested slots, before they were rounded to `asked`.

        `wanted` is given if a region has to be a power of two.
        """
        if wanted is None:
            needed, fits = f"{asked} slots are needed", largest
        else:
            needed = f"{wanted} slots are asked for"
            if wanted != asked:
                needed += f", and a region is a power of two: {asked} are needed"
            fits = 1 << largest.bit_length() - 1 if largest else 0
        advice = f"ask for {fits} or fewer" if fits else "wait until another job has ended"
        super().__init__(f"{needed}; {free} are free, at most {largest} of them in one piece: {advice}")
        self.asked = asked
        self.free = free
        self.largest = largest


class OutOfRows(ControllerError):
    """No job id, counter row or port is left."""


class NoSuchJob(ControllerError):
    """The switch has no such job."""


class SwitchRestarted(NoSuchJob):
    """The switch has restarted, and has none of its earlier jobs."""


class IdentityTaken(ControllerError):
    """Another job has the requested job id or generation."""


class ProgramMismatch(ControllerError):
    """The switch runs, or was offered, an unsuitable program."""

    exit_code = 2


class NativeMissing(ControllerError):
    """The compiled C library is missing, or of another version; the message says how to build it."""


class NoProgram(ProgramMismatch):
    """The switch runs no program."""


class OtherProgram(ProgramMismatch):
    """The switch runs another program, and replacing it was not allowed."""


class UnknownName(ControllerError):
    """The program has no table, action or counter of that name."""


class SwitchError(ControllerError):
    """The switch, or the connection to it, failed."""


class Unreachable(SwitchError):
    """The switch does not answer."""


class TlsFailure(Unreachable):
    """TLS with the switch failed; the message says how."""


class OtherOwner(SwitchError):
    """The switch is marked as another controller's (`controller.switches.leases.mark`)."""


class NotPrimary(SwitchError):
    """Another controller stays the switch's primary, which alone may write to it."""


@dataclass(frozen=True, slots=True)
class UpdateError:
    """The failure of one update of a batch: its position, the name of its gRPC code, the switch's message."""

    position: int
    code: str
    message: str


class Refused(SwitchError):
    """The switch answered with an error.

    `code` is the name of the gRPC code. `errors` lists the failed updates of a batch; its other updates
    took effect. It is empty if the request failed as a whole.
    """

    def __init__(self, what: str, code: str, message: str, errors: tuple[UpdateError, ...] = ()) -> None:
        super().__init__(f"{what}: {code}: {message}")
        self.code = code
        self.errors = errors


@contextlib.contextmanager
def switch_in_errors(switch: str) -> Iterator[None]:
    """Prefix errors raised in the block with the switch's name; they keep their type."""
    try:
        yield
    except ControllerError as error:
        error.args = (f"switch '{switch}': {error}", *error.args[1:])
        raise
