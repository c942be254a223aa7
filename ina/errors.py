"""Errors of runs, and of the service that runs jobs.

RunError
├── BadRun             the settings of a run are invalid; `setting` names the invalid one
├── AddressTaken       another process has the UDP address of a host
├── ProcessFailed      a switch or the fallback server did not start, or has ended; `exit_code` says how
├── WorkerFailed       a worker of a job failed, or its job was not admitted or lost its admission
├── GroupFailed        one job of a group failed, which ended the group's other jobs
└── StagesNotMeasured  a job ended before its stages could be measured

ServiceError
├── StoreError         the folder with the controller's state cannot be used
├── Unknown            there is no such job, server or switch
├── Conflict           the request contradicts the state
├── TooMany            a tenant has submitted more jobs per minute than its quota allows
├── RunnerGone         the process that runs a job's workers does not answer
└── EngineError        Slurm or Ray does not fulfil a request
"""

from __future__ import annotations


class RunError(Exception):
    """A run of jobs failed, or cannot start."""

    exit_code = 1
    """Exit code of a command that this error ends."""


class BadRun(RunError):
    """The settings of a run are invalid.

    `setting` names the invalid field of a `LaunchSpec` or `FabricSpec`; "": no single field is the reason.
    """

    exit_code = 2

    def __init__(self, reason: str, *, setting: str = "", value: str = "") -> None:
        self.setting = setting
        self._reason = reason
        self._value = value
        super().__init__(self.told(setting))

    def told(self, name: str) -> str:
        """Return the message, with `name`, such as ``--ports``, as the name of the setting."""
        subject = f"{name} {self._value}".strip()
        return f"{subject}: {self._reason}" if subject else self._reason


class AddressTaken(RunError):
    """Another process has the UDP address of a host; `chosen`: whether the user gave this address."""

    def __init__(self, message: str, *, chosen: bool) -> None:
        super().__init__(message)
        self.chosen = chosen


class ProcessFailed(RunError):
    """A switch or the fallback server did not start, or has ended.

    `status` is the exit status of the process, which has printed the reason. The command then exits with the
    same status. None: the process was killed, or has no exit status.
    """

    def __init__(self, message: str, *, status: int | None = None) -> None:
        super().__init__(message)
        self.exit_code = status or self.exit_code


class WorkerFailed(RunError):
    """A worker of a job failed, or the job was not admitted, or lost its admission."""


class GroupFailed(RunError):
    """One job of a group failed, which ended the group's other jobs."""


class StagesNotMeasured(RunError):
    """A job ended before its stages could be measured."""


class ServiceError(Exception):
    """The controller's service cannot fulfil a request."""

    exit_code = 1


class StoreError(ServiceError):
    """The folder with the controller's state is damaged, of another version, full or not writable."""


class Unknown(ServiceError):
    """There is no such job, server or switch."""


class Conflict(ServiceError):
    """The request contradicts the state: for example, a name is taken, or a job has ended already."""


class TooMany(ServiceError):
    """A tenant has submitted more jobs per minute than its quota allows.

    The tenant may submit again after `after_s` seconds.
    """

    def __init__(self, text: str, after_s: float) -> None:
        super().__init__(text)
        self.after_s = after_s


class RunnerGone(ServiceError):
    """The process that runs a job's workers does not answer."""


class EngineError(ServiceError):
    """Slurm or Ray does not fulfil a request, or does not answer."""
