"""Measure the seconds of an iteration on storage, CPU, GPU and network while the job runs.

A training iteration is four stages, each of which keeps one resource busy (Muri, SIGCOMM'22, section 2):
reading data, preprocessing it, computing, and exchanging gradients. Training code marks them::

    timer = StageTimer()
    for batch in batches:
        with timer.iteration():
            with timer.stage("storage"):
                raw = read(batch)
            with timer.stage("cpu"):
                images = decode(raw)
            with timer.stage("gpu"):
                gradient = backward(images)
            with timer.stage("network"):
                gradient = ina.allreduce(gradient, op="average")
    timer.profile().stages_s  # input of the grouper

The same lines let the job take turns with others of its group: `hostlib.interleave.join` returns a timer
whose stages wait for their turn.
"""

from __future__ import annotations

import contextlib
import statistics
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Final, Literal, Self, get_args

from hostlib.errors import InaError


class GroupError(InaError, RuntimeError):
    """The description of a group, or a process's request to it, is invalid."""


class GroupBroken(InaError, RuntimeError):
    """A job of the group is gone, or delays the others; the message names job, rank and reason."""


Stage = Literal["storage", "cpu", "gpu", "network"]
STAGES: Final[tuple[Stage, ...]] = get_args(Stage)
"""The stages of an iteration, by the resource that each uses, in order."""

KEPT: Final = 64
"""Number of latest iterations in a profile: a few dozen make it stable (Muri, section 5)."""


class StageError(InaError, RuntimeError):
    """Stages and iterations are not nested correctly, or no iteration has ended yet."""


@dataclass(frozen=True, slots=True)
class Iteration:
    """One iteration: seconds in each stage, in the order of `STAGES`, and seconds from start to end."""

    stages_s: tuple[float, ...]
    total_s: float


@dataclass(frozen=True, slots=True)
class StageProfile:
    """Time of an iteration.

    Attributes:
        stages_s: Seconds in each stage, in the order of `STAGES`.
        iteration_s: Seconds from start to end, including the time between stages.
        iterations: Number of measured iterations.
    """

    stages_s: tuple[float, ...]
    iteration_s: float
    iterations: int

    @classmethod
    def of(cls, measured: Sequence[Iteration]) -> Self:
        """Return the profile of these iterations: medians, to exclude other load of the machine.

        Raises StageError if there are none.
        """
        if not measured:
            raise StageError("no iteration has ended: there is no profile yet")
        return cls(
            tuple(
                statistics.median(times) for times in zip(*(each.stages_s for each in measured), strict=True)
            ),
            statistics.median(each.total_s for each in measured),
            len(measured),
        )


Ranks = Sequence[Sequence[Iteration]]
"""The iterations of each rank of a job."""


def job_profile(ranks: Ranks) -> StageProfile:
    """Return the profile of a job from its ranks' iterations.

    An iteration of the job ends when the last rank has ended it. In each stage except the exchange of
    gradients the slowest rank's time counts, because the other ranks wait for that rank. They wait in the
    exchange of gradients. So the time of the exchange is the shortest one of all ranks: the time of the rank
    that began the exchange last.
    """
    return StageProfile.of([_of_all(iterations) for iterations in zip(*ranks, strict=False)])


def _of_all(ranks: Sequence[Iteration]) -> Iteration:
    *stages, exchange = zip(*(each.stages_s for each in ranks), strict=True)
    return Iteration((*map(max, stages), min(exchange)), max(each.total_s for each in ranks))


class Turns:
    """Turns of a timer's stages; this base class is for a job alone: every stage may begin at once."""

    def take(self, stage: Stage) -> None:
        """Wait until the stage may begin."""

    def give(self) -> None:
        """Record that the stage has ended."""

    def iterated(self, done: Iteration) -> None:
        """Record that an iteration has ended."""

    def leave(self, failure: str = "") -> None:
        """Record that no stage follows; `failure` is the reason, "" if all iterations are done."""


class StageTimer:
    """Measures the stages of iterations in one thread. As a context manager it leaves its group at the end.

    A stage may occur several times in an iteration; its times add up. A wait for a turn is part of the
    iteration, not of the stage. An iteration that ends with an exception does not count.
    """

    def __init__(self, turns: Turns | None = None, *, clock: Callable[[], float] = time.perf_counter) -> None:
        self._turns = turns or Turns()
        self._clock = clock
        self._measured: deque[Iteration] = deque(maxlen=KEPT)
        self._current: dict[Stage, float] | None = None
        self._stage: Stage | None = None

    @contextlib.contextmanager
    def iteration(self) -> Iterator[None]:
        """Measure the block as one iteration."""
        if self._current is not None:
            raise StageError("an iteration began inside an iteration")
        self._current = current = dict.fromkeys(STAGES, 0.0)
        started_s = self._clock()
        try:
            yield
        finally:
            self._current = None
        done = Iteration(tuple(current.values()), self._clock() - started_s)
        self._measured.append(done)
        self._turns.iterated(done)

    @contextlib.contextmanager
    def stage(self, name: Stage) -> Iterator[None]:
        """Wait for the stage's turn, if the job shares its resources; then measure the block.

        Raises StageError for an unknown name, outside an iteration, or inside another stage; and
        `hostlib.interleave.GroupBroken` if a job of the group is gone.
        """
        if name not in STAGES:
            raise StageError(f"stage {name!r} is unknown; there are {', '.join(STAGES)}")
        if self._current is None:
            raise StageError(f"stage {name!r} began outside an iteration")
        if self._stage is not None:
            raise StageError(f"stage {name!r} began inside stage {self._stage!r}")
        self._turns.take(name)
        self._stage = name
        started_s = self._clock()
        try:
            yield
        finally:
            self._current[name] += self._clock() - started_s
            self._stage = None
        self._turns.give()  # not after an exception: the other jobs must learn of the failure

    def profile(self) -> StageProfile:
        """Return the profile of the latest iterations. Raises StageError before the first has ended."""
        return StageProfile.of(self._measured)

    def close(self) -> None:
        """Leave the group, if there is one; its other jobs go on."""
        self._turns.leave()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._turns.leave("" if kind is None else f"{kind.__name__}: {error}")
