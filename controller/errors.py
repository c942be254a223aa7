"""Everything that the controller refuses or fails with.

ControllerError
├── BadJob              a job that no switch could serve; the message says why
├── OutOfMemory         no hole in the switch's memory is large enough
├── OutOfRows           no job id, counter row or port is left
├── NoSuchJob           the switch has no such job
├── RegionChanging      the job is on its way to another region already
├── IdentityTaken       the job id or the generation asked for is another job's
├── ProgramMismatch     the switch runs, or was offered, a program that will not do
│   ├── NoProgram       it runs none
│   └── OtherProgram    it runs another one, which was not to be replaced
├── UnknownName         the program has no table, action or counter of that name
├── BadSpec             a job, topology or option that makes no sense (`controller.vocabulary.errors`)
├── SchedulingError     what schedulers and simulator fail with (`controller.scheduling.errors`)
└── SwitchError         the switch, or the way to it, failed
    ├── Unreachable     it does not answer
    │   └── TlsFailure  for it speaks TLS and we do not, or the other way round, or one trusts not the other
    ├── Refused         it answered with an error; `code` and, for a batch, `errors` say which
    └── NotPrimary      another controller holds the switch
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
    "NoProgram",
    "NoSuchJob",
    "NotPrimary",
    "OtherProgram",
    "OutOfMemory",
    "OutOfRows",
    "ProgramMismatch",
    "Refused",
    "RegionChanging",
    "SwitchError",
    "TlsFailure",
    "UnknownName",
    "Unreachable",
    "UpdateError",
    "naming",
]


class BadJob(ControllerError):
    """A job that no switch could serve."""


class OutOfMemory(ControllerError):
    """No hole is large enough; `asked`, `free` and `largest` are in slots."""

    def __init__(self, asked: int, free: int, largest: int) -> None:
        super().__init__(
            f"{asked} slots asked for; {free} are free, the largest region of them has {largest}"
        )
        self.asked = asked
        self.free = free
        self.largest = largest


class OutOfRows(ControllerError):
    """No job id, counter row or port is left."""


class NoSuchJob(ControllerError):
    """The switch has no such job."""


class RegionChanging(ControllerError):
    """The job is on its way to another region already."""


class IdentityTaken(ControllerError):
    """The job id or the generation asked for is another job's."""


class ProgramMismatch(ControllerError):
    """The program that the switch runs will not do."""


class NoProgram(ProgramMismatch):
    """The switch runs no program."""


class OtherProgram(ProgramMismatch):
    """The switch runs another program, and nobody said that it may be replaced."""


class UnknownName(ControllerError):
    """The program has no object of that name."""


class SwitchError(ControllerError):
    """The switch, or the way to it, failed."""


class Unreachable(SwitchError):
    """The switch does not answer."""


class TlsFailure(Unreachable):
    """The switch and we do not agree on TLS; the message says how."""


class NotPrimary(SwitchError):
    """Another controller holds the switch."""


@dataclass(frozen=True, slots=True)
class UpdateError:
    """Failure of one update of a batch: its position, the gRPC code's name, the switch's words."""

    position: int
    code: str
    message: str


class Refused(SwitchError):
    """The switch answered with an error.

    `code` is the name of the gRPC code. `errors` lists the failed updates of a batch; the others of it
    took effect. It is empty if the request failed as a whole.
    """

    def __init__(self, what: str, code: str, message: str, errors: tuple[UpdateError, ...] = ()) -> None:
        super().__init__(f"{what}: {code}: {message}")
        self.code = code
        self.errors = errors


@contextlib.contextmanager
def naming(switch: str) -> Iterator[None]:
    """Have errors of the block say which switch they are about; they keep their type."""
    try:
        yield
    except ControllerError as error:
        error.args = (f"switch '{switch}': {error}", *error.args[1:])
        raise
