"""Stage timing: seconds of an iteration on storage, CPU, GPU and network, measured as the job runs.

A training iteration is four stages, each of which keeps one resource busy (Muri, SIGCOMM'22, section 2):
reading data, preprocessing it, computing, and exchanging gradients. Training code says which is which::

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
    timer.profile().stages_s  # what the grouper takes

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
    """A group or a place in it that makes no sense."""


class GroupBroken(InaError, RuntimeError):
    """A job of the group is gone, or keeps the others waiting; the message names job, rank and reason."""


Stage = Literal["storage", "cpu", "gpu", "network"]
STAGES: Final[tuple[Stage, ...]] = get_args(Stage)
"""The stages of an iteration, by the resource that each uses, in order."""

KEPT: Final = 64
"""Latest iterations that a profile is made of: a few dozen give a stable one (the paper, section 5)."""


class StageError(InaError, RuntimeError):
    """Stages and iterations do not nest as they should, or there is nothing to make a profile of."""


@dataclass(frozen=True, slots=True)
class Iteration:
    """One iteration: seconds in each stage, in the order of `STAGES`, and from its beginning to its end."""

    stages_s: tuple[float, ...]
    total_s: float


@dataclass(frozen=True, slots=True)
class StageProfile:
    """Time of an iteration.

    Attributes:
        stages_s: Seconds in each stage, in the order of `STAGES`.
        iteration_s: Seconds from beginning to end: more than all stages together by what lies between them.
        iterations: How many were measured for this.
    """

    stages_s: tuple[float, ...]
    iteration_s: float
    iterations: int

    @classmethod
    def of(cls, measured: Sequence[Iteration]) -> Self:
        """Return the profile of these iterations: medians, for what else the machine did is not the job's.

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
    """Return the profile of a job, in which an iteration is over when all ranks have ended it.

    Of each stage the slowest rank's time counts, for the others wait for it. They wait in the exchange: so of
    that the shortest counts, the time of the rank that came last.
    """
    return StageProfile.of([_of_all(iterations) for iterations in zip(*ranks, strict=False)])


def _of_all(ranks: Sequence[Iteration]) -> Iteration:
    *stages, exchange = zip(*(each.stages_s for each in ranks), strict=True)
    return Iteration((*map(max, stages), min(exchange)), max(each.total_s for each in ranks))


class Turns:
    """Listener to a timer's stages; without other jobs: every stage may begin at once."""

    def take(self, stage: Stage) -> None:
        """Return when the stage may begin."""

    def give(self) -> None:
        """Note that it has ended."""

    def iterated(self, done: Iteration) -> None:
        """Note that an iteration has ended."""

    def leave(self, failure: str = "") -> None:
        """Note that there will be no more, and why if not because all is done."""


class StageTimer:
    """Measures the stages of iterations; one thread's. As a context manager it leaves its group at the end.

    A stage may come several times in an iteration; its times add up. Waiting for a turn is part of the
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
        """Wait for the stage's turn, if the job shares its resources; then measure what is inside.

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
        self._turns.give()  # not after an exception: a job that fails is not to look as if it went on

    def profile(self) -> StageProfile:
        """Return the profile of the latest iterations. Raises StageError before the first has ended."""
        return StageProfile.of(self._measured)

    def close(self) -> None:
        """Leave the group, if there is one; the others go on."""
        self._turns.leave()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._turns.leave("" if kind is None else f"{kind.__name__}: {error}")
