"""Calls of a process group that its communicator carries out; `Watch` records each call."""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import Final, Literal

import numpy as np
from numpy.typing import NDArray

from hostlib.collectives import Layer, NonFinite, Op
from hostlib.collectives.communicator import Communicator
from hostlib.collectives.handle import Handle, Result
from hostlib.collectives.watch import Watch
from hostlib.errors import InaError, RanksDisagree
from hostlib.torch.work import Callbacks, SwitchWork
from hostlib.wire.encodings import Numbers

MOST: Final = 1024
"""Maximum number of plans to keep, for programs whose sizes never repeat."""

Kind = Literal["sum", "scatter", "gather", "broadcast"]


@dataclass(frozen=True, slots=True, kw_only=True)
class SwitchCall:
    """Description of a torch call for the switch, shared by all calls with the same arguments."""

    kind: Kind
    call: str
    """Text of the properties on which ranks must agree, for the watch and for errors."""
    op: Op = "sum"
    root: int | None = None
    """The only rank that gets a sum, or the source of a broadcast; None: no such rank."""
    label: str = ""
    """Name of the tensor, if it has one."""
    series: str = ""
    """Key of calls with similar values."""
    layer: Layer | None = None
    numbers: Numbers | None = None
    """Encoding of floats; None: the job's encoding."""
    residual: NDArray[np.float32] | None = None
    """Rounding errors to carry from one sum to the next (`hostlib.allreduce`); None: do not carry them."""
    at_once: bool = False
    """True if the caller waits, so that its thread may carry out the call. At other ranks the same call may
    be asynchronous."""


@dataclass(frozen=True, slots=True)
class Plan:
    """How to carry out all calls with the same arguments."""

    kind: str
    """Name under which the calls are counted."""
    what: SwitchCall | None = None
    """Description of the call for the switch; None: the calls go around the switch."""
    why_not: str = ""
    """Reason why the calls go around the switch."""


class Plans(dict[tuple[str, tuple[Hashable, ...]], Plan]):
    """Plans by the name of a call and `hostlib.torch.describe.likeness` of its arguments; `MOST` at most.

    A training loop repeats the same calls. To describe a call and to find its path takes longer than to move
    a small tensor.
    """

    def __setitem__(self, key: tuple[str, tuple[Hashable, ...]], plan: Plan) -> None:
        """Store a plan; if there are `MOST` plans already, first remove them all."""
        if len(self) >= MOST:
            self.clear()
        super().__setitem__(key, plan)


@dataclass(frozen=True, slots=True)
class SwitchCalls:
    """Objects and settings that all calls of a group through the switch use."""

    communicator: Communicator
    watch: Watch
    nonfinite: NonFinite
    """Effect of NaN and infinity."""
    callbacks: Callbacks

    def carry_out(self, call: str, work: SwitchWork, parts: Sequence[Callable[[int], None]]) -> SwitchWork:
        """Start a call, and return its work.

        Args:
            call: Text of the properties on which ranks must agree.
            work: The call's work, which the parts complete.
            parts: Functions that start one part each; their argument is the call's number.

        Raises InaError if a part cannot be submitted.
        """
        number = self.watch.begin(call, work.is_completed)
        try:
            for begin in parts:
                begin(number)
        except InaError as error:
            named = self.named(error, number)
            work.complete(named)
            raise named from error
        except BaseException as error:
            work.complete(error)
            raise
        return work

    def ended(self, handle: Handle[Result], finish: Callable[[], None], number: int) -> BaseException | None:
        """Store a call's result by `finish`; return the error of the call or of `finish`, or None."""
        try:
            handle.result()
            finish()
        except BaseException as error:
            return self.named(error, number)
        return None

    def named(self, error: BaseException, number: int) -> BaseException:
        """Return `error`; for RanksDisagree, a new error that names the ranks and their calls, if known."""
        if not isinstance(error, RanksDisagree) or (text := self.watch.explain(number)) is None:
            return error
        return RanksDisagree(text, job=error.job, psns=error.psns)

    def end(self, timeout_s: float) -> bool:
        """Wait for calls under way, callbacks and threads; return whether all end within `timeout_s`."""
        until_s = time.monotonic() + timeout_s
        return self.communicator.drain(timeout_s) and self.callbacks.stop(until_s - time.monotonic())
