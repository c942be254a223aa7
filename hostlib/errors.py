"""Errors of the host library.

::

    InaError
    ├── ConfigError          the configuration is missing or contradicts itself
    ├── NativeMissing        the compiled part is missing, or of another version
    ├── RendezvousError      the job could not be joined
    ├── UnsupportedArray     dtype, layout or argument that a collective does not support
    ├── NonFiniteError       NaN or infinity in the input, policy "raise"; the job goes on
    ├── SumOverflow          a sum left the int32 range of packets; the job goes on
    ├── NotInitialized       a collective before init() or after shutdown(), or in a forked process;
    │                        init() of a job that was left
    └── JobBroken            this job can carry out no further collective
        ├── RanksDisagree    ranks submitted different collectives, or the same ones in different orders
        ├── PeerTimeout      no progress in time
        ├── PeerLost         a rank is known to be gone
        ├── JobFault         something else that the job needs is gone: the switch, the network
        └── Interrupted      a collective was abandoned half way

`PrecisionWarning` is the only warning.

Every `JobBroken` names the job, the PSN range that was outstanding and, where it is known, the ranks
that are missing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class PsnRange:
    """Packet numbers of a collective from the first without a result to the last; may be empty."""

    first: int
    last: int

    def __str__(self) -> str:
        return f"PSN {self.first}..{self.last}" if self.first <= self.last else "no packets"


NO_PACKETS = PsnRange(0, -1)


class InaError(Exception):
    """Base of all errors of the host library. They can be pickled, for example by Ray."""

    def __reduce__(self) -> tuple[object, ...]:
        """Return the error's text and attributes for `pickle`, because `__init__` takes other arguments."""
        return _unpickled, (type(self), self.args), self.__dict__


def _unpickled(kind: type[InaError], args: tuple[object, ...]) -> InaError:
    # the base with this class's memory layout, which is not the first in the order of its bases
    new = OSError.__new__ if issubclass(kind, OSError) else kind.__new__
    error = new(kind)
    error.args = args
    return error


class ConfigError(InaError, ValueError):
    """A job configuration cannot be used."""

    exit_code = 2


def refuse(is_wrong: object, message: str, kind: type[Exception] = ConfigError) -> None:
    """Raise an error of class `kind` with this message if `is_wrong` is true."""
    if is_wrong:
        raise kind(message)


class NativeMissing(InaError):
    """The compiled library is missing or of another version; the message gives the remedy."""

    exit_code = 1


class RendezvousError(InaError, RuntimeError):
    """A worker could not join its job; the message gives the reason."""


class UnsupportedArray(InaError, TypeError):
    """A collective does not support this array or argument."""


class NonFiniteError(InaError, ArithmeticError):
    """A rank's input held NaN, infinity or a number beyond float32. The output is unspecified."""

    def __init__(self, job: int, element: int, what: str = "NaN or infinity") -> None:
        """Make the error; `element` is the index of the first element of the packet with the error."""
        self.job = job
        self.element = element
        self.what = what
        super().__init__(
            f"job {job}: {what} in the packet that starts at element {element}; "
            'pass nonfinite="propagate" to receive NaN instead'
        )


class SumOverflow(InaError, OverflowError):
    """A sum left the int32 range of packets. The contents of the output are unspecified."""

    def __init__(self, job: int, psns: PsnRange, element: int, reason: str = "left the int32 range") -> None:
        """Make the error; `element` is the index of the first element of the packet with the error."""
        self.job = job
        self.psns = psns
        self.element = element
        self.reason = reason
        super().__init__(f"job {job}, {psns}: a sum in the packet that starts at element {element} {reason}")


class NotInitialized(InaError, RuntimeError):
    """This process is in no job: `init()` has not been called, or `shutdown()` has been called.

    A job that was left cannot be joined again. The error is also raised in a process that was forked from the
    process that called `init()`.
    """


class PrecisionWarning(UserWarning):
    """A sum has fewer bits than its dtype promises: float64 is summed as float32."""


class JobBroken(InaError, RuntimeError):
    """The job cannot go on: its ranks no longer agree on the finished sums."""

    def __init__(self, message: str, *, job: int, psns: PsnRange, missing: Sequence[int] = ()) -> None:
        """Make the error; `missing` lists the ranks that have not contributed, () if they are unknown."""
        self.job = job
        self.psns = psns
        self.missing = tuple(missing)
        super().__init__(f"job {job}, {psns}: {message}")


class RanksDisagree(JobBroken):
    """Ranks submitted collectives that differ in shape, dtype, operation, layer, name or order."""


class PeerTimeout(JobBroken, TimeoutError):
    """No result arrived within the time allowed."""


class PeerLost(JobBroken):
    """A rank is known to be gone."""

    def __init__(self, reasons: Mapping[int, str], *, job: int, psns: PsnRange) -> None:
        """Make the error; `reasons` has the reason for each rank that is gone, in the order of their ends.

        The message keeps the order: the first rank's end is the likely cause of the others'.
        """
        self.reasons = dict(reasons)
        lost = "; ".join(f"rank {rank}: {why}" for rank, why in reasons.items())
        super().__init__(f"lost {lost}", job=job, psns=psns, missing=sorted(reasons))


class JobFault(JobBroken):
    """A part that the whole job needs is gone; the message names it."""


class Interrupted(JobBroken):
    """A collective was abandoned half way, after an exception or an interrupt in the calling thread."""
