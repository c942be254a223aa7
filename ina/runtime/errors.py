"""Everything that a run refuses or fails with.

RunError
├── BadRun          what was asked for cannot be run; `setting` names the field that is to blame
├── AddressTaken    somebody else has the UDP address of a host
├── ProcessFailed   a switch or the fallback server did not start, or has ended; `status` says how
├── WorkerFailed    a job's worker failed, or its job was lost
├── GroupBroken     a job of a group failed, and took the others with it
└── NotMeasured     a job ended before its stages could be measured
"""

from __future__ import annotations


class RunError(Exception):
    """Base of everything that this package raises."""


class BadRun(RunError):
    """The request cannot be run.

    The message goes on after the name of a field of a spec, `setting`, if that is to blame.
    """

    def __init__(self, message: str, *, setting: str = "") -> None:
        super().__init__(f"{setting} {message}" if setting else message)
        self.message = message
        self.setting = setting


class AddressTaken(RunError):
    """Somebody else has the UDP address of a host; `chosen`: it is one that was asked for."""

    def __init__(self, message: str, *, chosen: bool) -> None:
        super().__init__(message)
        self.chosen = chosen


class ProcessFailed(RunError):
    """A switch or the fallback server did not start, or has ended.

    `status` is the exit status that it ended with by itself, having said why; None if it was killed.
    """

    def __init__(self, message: str, *, status: int | None = None) -> None:
        super().__init__(message)
        self.status = status


class WorkerFailed(RunError):
    """A worker of a job failed, or the job was lost."""


class GroupBroken(RunError):
    """A job of a group failed, and took the others with it."""


class NotMeasured(RunError):
    """A job ended before its stages could be measured."""
