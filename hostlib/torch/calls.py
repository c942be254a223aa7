"""Calls of a process group that its communicator carries out, each known to the watch."""

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
"""Plans that are kept: of a program whose sizes never repeat, not all."""

Kind = Literal["sum", "scatter", "gather", "broadcast"]


@dataclass(frozen=True, slots=True, kw_only=True)
class SwitchCall:
    """A call of torch that the switch carries out; all calls that are alike have it in common."""

    kind: Kind
    call: str
    """All that ranks must agree on, for the watch and for errors."""
    op: Op = "sum"
    root: int | None = None
    """The only rank that gets a sum, or the source of a broadcast; None: there is none."""
    label: str = ""
    """Name of the tensor, if it has one."""
    series: str = ""
    """What it has in common with calls whose values are alike."""
    layer: Layer | None = None
    numbers: Numbers | None = None
    """How floats travel; None: as the job's do."""
    residual: NDArray[np.float32] | None = None
    """What is rounded off, from one sum to the next (`hostlib.allreduce`)."""
    at_once: bool = False
    """The caller waits, and may carry it out. At other ranks the same call may be asynchronous."""


@dataclass(frozen=True, slots=True)
class Plan:
    """How calls that are alike are made."""

    kind: str
    """Name under which they are counted."""
    what: SwitchCall | None = None
    """What the switch is to do; None: they go around it."""
    why_not: str = ""
    """Why they do."""


class Plans(dict[tuple[str, tuple[Hashable, ...]], Plan]):
    """Plans by the name of a call and `hostlib.torch.describe.likeness` of its arguments; `MOST` at most.

    A training loop makes the same calls over and over. To describe one, and to find its path, takes longer
    than to move a small tensor.
    """

    def __setitem__(self, key: tuple[str, tuple[Hashable, ...]], plan: Plan) -> None:
        """Keep a plan; forget all others if there are too many."""
        if len(self) >= MOST:
            self.clear()
        super().__setitem__(key, plan)


@dataclass(frozen=True, slots=True)
class SwitchCalls:
    """What all calls of a group through the switch have in common."""

    communicator: Communicator
    watch: Watch
    nonfinite: NonFinite
    """What NaN and infinity do."""
    callbacks: Callbacks

    def carry_out(self, call: str, work: SwitchWork, parts: Sequence[Callable[[int], None]]) -> SwitchWork:
        """Begin a call, and return its work.

        Args:
            call: All that ranks must agree on.
            work: Its work, which its parts complete.
            parts: Each begins one part of the call, given the call's number.

        Raises InaError for what cannot be submitted.
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
        """Put the result of a call where it belongs, by `finish`; return the error that prevents it."""
        try:
            handle.result()
            finish()
        except BaseException as error:
            return self.named(error, number)
        return None

    def named(self, error: BaseException, number: int) -> BaseException:
        """Add to an error that says that ranks disagree which ones do, and in what."""
        if not isinstance(error, RanksDisagree) or (text := self.watch.explain(number)) is None:
            return error
        return RanksDisagree(text, job=error.job, psns=error.psns)

    def end(self, timeout_s: float) -> bool:
        """Return whether calls under way, their callbacks and the threads of these end within the time."""
        until_s = time.monotonic() + timeout_s
        return self.communicator.drain(timeout_s) and self.callbacks.stop(until_s - time.monotonic())


def nothing() -> None:
    """Leave the tensor as it is: it has the result, or the result is for another rank."""
