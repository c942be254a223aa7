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
    """The request cannot be run; `setting` names the field of a spec that is wrong, if there is one."""

    def __init__(self, reason: str, *, setting: str = "", value: str = "") -> None:
        self.setting = setting
        self._reason = reason
        self._value = value
        super().__init__(self.told(setting))

    def told(self, name: str) -> str:
        """Return the message with this name of the setting, such as the option for it."""
        subject = f"{name} {self._value}".strip()
        return f"{subject}: {self._reason}" if subject else self._reason


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
