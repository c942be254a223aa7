"""Collectives that move shards: reduce-scatter, all-gather and broadcast, as methods of a communicator."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from typing import Any

from numpy.typing import ArrayLike, NDArray

from hostlib.arrays import Output, Tensor
from hostlib.collectives import (
    Collective,
    Layer,
    NonFinite,
    Op,
    arriving,
    check_root,
    make_all_gather,
    make_broadcast,
    make_reduce_scatter,
)
from hostlib.errors import UnsupportedArray
from hostlib.handle import Handle
from hostlib.quantize import Numbers


class MovingCalls(ABC):
    """The calls; a communicator runs them."""

    rank: int
    size: int
    why_no_shards: str | None
    """Why this job cannot do these calls; None: it can."""
    _calls: Iterator[int]

    def reduce_scatter(
        self,
        array: ArrayLike | Tensor,
        op: Op = "sum",
        *,
        out: Output | None = None,
        name: str | None = None,
        nonfinite: NonFinite = "raise",
        layer: Layer | None = None,
        priority: int | None = None,
        numbers: Numbers | None = None,
    ) -> NDArray[Any]:
        """Return this rank's shard of the sum (or average) of `array` over all ranks.

        The shard of rank r is the r-th of `size` equal parts of the first dimension. It has the bits that an
        `allreduce` of this part alone would give it. `out` may be this rank's part of `array`. For the other
        arguments, and what is raised, see `Communicator.allreduce`.
        """
        return self._run_moving(
            self._reduce_scatter(array, op, out, name, nonfinite, layer, priority, numbers)
        )

    def reduce_scatter_async(
        self,
        array: ArrayLike | Tensor,
        op: Op = "sum",
        *,
        out: Output | None = None,
        name: str | None = None,
        nonfinite: NonFinite = "raise",
        layer: Layer | None = None,
        priority: int | None = None,
        numbers: Numbers | None = None,
        arrived: Callable[[], None] | None = None,
        here: bool = False,
    ) -> Handle[NDArray[Any]]:
        """Start a reduce-scatter and return at once; for the arguments see `reduce_scatter`.

        `arrived` and `here` are as for `Communicator.allreduce_async`.
        """
        collective = self._reduce_scatter(array, op, out, name, nonfinite, layer, priority, numbers)
        return self._submit_moving(arriving(collective, arrived), here=here)

    def all_gather(
        self,
        array: ArrayLike | Tensor,
        *,
        out: Output | None = None,
        name: str | None = None,
        layer: Layer | None = None,
        priority: int | None = None,
    ) -> NDArray[Any]:
        """Return the arrays of all ranks, one behind the other in the first dimension.

        Args:
            array: this rank's shard: of any type of a fixed size, of the same shape and type on all ranks.
                Its bytes move as they are.
            out: where to put all shards; `array` may be this rank's part of it.
            name: see `Communicator.allreduce`.
            layer: see `Communicator.allreduce`.
            priority: see `Communicator.allreduce`.

        Raises:
            UnsupportedArray: this array or argument is not taken; nothing was sent.
            JobBroken: the job is over.
        """
        return self._run_moving(self._all_gather(array, out, name, layer, priority))

    def all_gather_async(
        self,
        array: ArrayLike | Tensor,
        *,
        out: Output | None = None,
        name: str | None = None,
        layer: Layer | None = None,
        priority: int | None = None,
        arrived: Callable[[], None] | None = None,
        here: bool = False,
    ) -> Handle[NDArray[Any]]:
        """Start an all-gather and return at once; for the arguments see `all_gather`.

        `arrived` and `here` are as for `Communicator.allreduce_async`.
        """
        collective = self._all_gather(array, out, name, layer, priority)
        return self._submit_moving(arriving(collective, arrived), here=here)

    def broadcast(
        self,
        array: ArrayLike | Tensor,
        root: int = 0,
        *,
        out: Output | None = None,
        name: str | None = None,
        layer: Layer | None = None,
        priority: int | None = None,
    ) -> NDArray[Any]:
        """Return the array of rank `root`, on all ranks.

        Args:
            array: what the root sends, of any type of a fixed size; its bytes move as they are. At the other
                ranks only its shape and type count, which are the same on all ranks.
            root: the rank that sends; the same on all ranks.
            out: where to put what the root has sent; `array` itself for in place.
            name: see `Communicator.allreduce`.
            layer: see `Communicator.allreduce`.
            priority: see `Communicator.allreduce`.

        Raises:
            UnsupportedArray: this array or argument is not taken; nothing was sent.
            JobBroken: the job is over.
        """
        return self._run_moving(self._broadcast(array, root, out, name, layer, priority))

    def broadcast_async(
        self,
        array: ArrayLike | Tensor,
        root: int = 0,
        *,
        out: Output | None = None,
        name: str | None = None,
        layer: Layer | None = None,
        priority: int | None = None,
        arrived: Callable[[], None] | None = None,
        here: bool = False,
    ) -> Handle[NDArray[Any]]:
        """Start a broadcast and return at once; for the arguments see `broadcast`.

        `arrived` and `here` are as for `Communicator.allreduce_async`.
        """
        collective = self._broadcast(array, root, out, name, layer, priority)
        return self._submit_moving(arriving(collective, arrived), here=here)

    def _reduce_scatter(
        self,
        array: ArrayLike | Tensor,
        op: Op,
        out: Output | None,
        name: str | None,
        nonfinite: NonFinite,
        layer: Layer | None,
        priority: int | None,
        numbers: Numbers | None,
    ) -> Collective:
        number = self._next("reduce_scatter")
        return make_reduce_scatter(
            *(array, op, out, name, nonfinite),
            number=number,
            rank=self.rank,
            size=self.size,
            layer=layer,
            priority=priority,
            numbers=numbers,
        )

    def _all_gather(
        self,
        array: ArrayLike | Tensor,
        out: Output | None,
        name: str | None,
        layer: Layer | None,
        priority: int | None,
    ) -> Collective:
        number = self._next("all_gather")
        return make_all_gather(
            *(array, out, name),
            number=number,
            rank=self.rank,
            size=self.size,
            layer=layer,
            priority=priority,
        )

    def _broadcast(
        self,
        array: ArrayLike | Tensor,
        root: int,
        out: Output | None,
        name: str | None,
        layer: Layer | None,
        priority: int | None,
    ) -> Collective:
        number = self._next("broadcast")
        check_root(root, self.size)
        return make_broadcast(
            array, int(root), out, name, number=number, rank=self.rank, layer=layer, priority=priority
        )

    def _next(self, call: str) -> int:
        """Return the number of the next call. Raises UnsupportedArray if the job cannot do it."""
        number = next(self._calls)
        if self.why_no_shards is not None:
            raise UnsupportedArray(f"{call} is not for this job: {self.why_no_shards}")
        return number

    @abstractmethod
    def _run_moving(self, collective: Collective) -> NDArray[Any]: ...

    @abstractmethod
    def _submit_moving(self, collective: Collective, *, here: bool) -> Handle[NDArray[Any]]: ...
