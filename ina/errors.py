"""Errors of runs, and of the service that runs jobs.

RunError
├── BadRun             the run is invalid; `setting` names the field that is wrong
├── AddressTaken       another process has the UDP address of a host
├── ProcessFailed      a switch or the fallback server did not start, or has ended; `status` says how
├── WorkerFailed       a job's worker failed, or its job was lost
├── GroupFailed        a job of a group failed, and ended the others
└── StagesNotMeasured  a job ended before its stages could be measured

ServiceError
├── StoreError         the state's folder cannot be used
├── Unknown            there is no such job, server or switch
├── Conflict           the request contradicts the state
├── TooMany            a tenant exceeds its submissions per minute
├── RunnerGone         the process that runs a job's workers does not answer
└── EngineError        Slurm or Ray does not fulfil a request
"""

from __future__ import annotations


class RunError(Exception):
    """A run of jobs failed, or is impossible."""

    exit_code = 1
    """Exit code of a command that this error ends."""


class BadRun(RunError):
    """The run is invalid; `setting` names the wrong field of a spec, if there is one."""

    exit_code = 2

    def __init__(self, reason: str, *, setting: str = "", value: str = "") -> None:
        self.setting = setting
        self._reason = reason
        self._value = value
        super().__init__(self.told(setting))

    def told(self, name: str) -> str:
        """Return the message with this name for the setting, such as its option."""
        subject = f"{name} {self._value}".strip()
        return f"{subject}: {self._reason}" if subject else self._reason


class AddressTaken(RunError):
    """Another process has the UDP address of a host; `chosen`: the user asked for it."""

    def __init__(self, message: str, *, chosen: bool) -> None:
        super().__init__(message)
        self.chosen = chosen


class ProcessFailed(RunError):
    """A switch or the fallback server did not start, or has ended.

    `status` is its own exit status, after which it has printed the reason, and then the command's exit
    status; None if it was killed.
    """

    def __init__(self, message: str, *, status: int | None = None) -> None:
        super().__init__(message)
        self.exit_code = status or self.exit_code


class WorkerFailed(RunError):
    """A worker of a job failed, or the job was lost."""


class GroupFailed(RunError):
    """A job of a group failed, and ended the others."""


class StagesNotMeasured(RunError):
    """A job ended before its stages could be measured."""


class ServiceError(Exception):
    """The service cannot fulfil a request."""

    exit_code = 1


class StoreError(ServiceError):
    """The state's folder cannot be used: it is damaged, of another version, full or not writable."""


class Unknown(ServiceError):
    """There is no such job, server or switch."""


class Conflict(ServiceError):
    """The request contradicts the state: a name is taken, a job is over."""


class TooMany(ServiceError):
    """A tenant exceeds its submissions per minute; it may submit again after `after_s` seconds."""

    def __init__(self, text: str, after_s: float) -> None:
        super().__init__(text)
        self.after_s = after_s


class RunnerGone(ServiceError):
    """The process that runs a job's workers does not answer."""


class EngineError(ServiceError):
    """Slurm or Ray does not fulfil a request, or does not answer."""
