"""What goes wrong in the service, for those who call it."""

from __future__ import annotations


class ServiceError(Exception):
    """The service cannot do what it was asked to."""

    exit_code = 1


class StoreError(ServiceError):
    """The state's folder cannot be used: it is damaged, of another version, full or not writable."""


class Unknown(ServiceError):
    """There is no such job, server or switch."""


class Conflict(ServiceError):
    """What was asked contradicts what is there: a name that is taken, a job that is over."""


class TooMany(ServiceError):
    """A tenant submits more jobs than it may in this time; it may again `after_s` seconds later."""

    def __init__(self, text: str, after_s: float) -> None:
        super().__init__(text)
        self.after_s = after_s


class RunnerGone(ServiceError):
    """The process that runs a job's workers does not answer."""


class EngineError(ServiceError):
    """Slurm or Ray does not do what it was asked to, or does not answer."""
