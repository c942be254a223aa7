"""Collectives that move shards: reduce-scatter, all-gather and broadcast, as methods of a communicator."""

from __future__ import annotations

import functools
import inspect
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from typing import Any, Concatenate, ParamSpec, TypeVar

from numpy.typing import ArrayLike, NDArray

from hostlib.collectives import (
    CallOptions,
    Collective,
    Layer,
    NonFinite,
    Op,
    check_root,
    make_all_gather,
    make_broadcast,
    make_reduce_scatter,
)
from hostlib.collectives.arrays import Output, Tensor
from hostlib.collectives.handle import Handle, Result
from hostlib.errors import UnsupportedArray
from hostlib.wire.encodings import Numbers

Request = tuple[Collective, Callable[[], Result]]
"""A requested collective, and the function that returns its result when it is done."""
Given = ParamSpec("Given")
Ours = TypeVar("Ours", bound="MovingCalls")


def waiting(
    make: Callable[Concatenate[Ours, Given], Request[Result]],
) -> Callable[Concatenate[Ours, Given], Result]:
    """Return a method that makes a request by `make`, carries it out, and returns its result."""

    @functools.wraps(make)
    def call(self: Ours, /, *args: Given.args, **kwargs: Given.kwargs) -> Result:
        return self._run(make(self, *args, **kwargs))

    _show(call, make, "{}")
    return call


def starting(
    waits: Callable[Concatenate[Ours, Given], Result],
) -> Callable[Concatenate[Ours, Given], Handle[Result]]:
    """Return the asynchronous version of `waits`, a method made by `waiting`; it returns a handle."""
    make: Callable[Concatenate[Ours, Given], Request[Result]] = waits.__wrapped__  # type: ignore[attr-defined]

    @functools.wraps(make)
    def call(self: Ours, /, *args: Given.args, **kwargs: Given.kwargs) -> Handle[Result]:
        return self.start(make(self, *args, **kwargs))

    _show(call, make, "Handle[{}]")
    call.__name__ = f"{make.__name__}_async"
    call.__qualname__ = f"{make.__qualname__}_async"
    call.__doc__ = f"Start `{make.__name__}` and return at once; do not use its arrays until it is done."
    return call


def _show(call: Any, make: Callable[..., object], form: str) -> None:
    """Set the signature that `help` shows for `call`: the arguments of `make`, and its result type.

    `form` is a format string into which the name of the result type is inserted, such as ``Handle[{}]``.
    """
    signature = inspect.signature(make)
    result = str(signature.return_annotation).removeprefix("Request[").removesuffix("]")
    call.__signature__ = signature.replace(return_annotation=form.format(result))


class MovingCalls(ABC):
    """The collectives that move shards, as methods; `Communicator` carries them out."""

    rank: int
    size: int
    why_no_shards: str | None
    """Reason why this job cannot carry out these calls; None: the job can."""
    _calls: Iterator[int]

    @waiting
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
    ) -> Request[NDArray[Any]]:
        """Return this rank's shard of the sum (or average) of `array` over all ranks.

        The shard of rank r is the r-th of `size` equal parts of the first dimension. An `allreduce` of this
        shard alone would return the same bits. `out` may be this rank's part of `array`. For the other
        arguments and the errors see `Communicator.allreduce`.
        """
        return self.scatter(array, op, CallOptions(out, name, nonfinite, layer, priority, numbers))

    reduce_scatter_async = starting(reduce_scatter)
    """Start a reduce-scatter and return at once; for the arguments see `reduce_scatter`."""

    @waiting
    def all_gather(
        self,
        array: ArrayLike | Tensor,
        *,
        out: Output | None = None,
        name: str | None = None,
        layer: Layer | None = None,
        priority: int | None = None,
    ) -> Request[NDArray[Any]]:
        """Return the arrays of all ranks, one behind the other in the first dimension.

        Args:
            array: this rank's shard: of any type of a fixed size, of the same shape and type on all ranks.
                Its bytes are sent unchanged.
            out: where to put all shards; `array` may be this rank's part of it.
            name: see `Communicator.allreduce`.
            layer: see `Communicator.allreduce`.
            priority: see `Communicator.allreduce`.

        Raises:
            UnsupportedArray: this array or argument is not supported; nothing was sent.
            JobBroken: the job is over.
        """
        return self.gather(array, CallOptions(out, name, "propagate", layer, priority))

    all_gather_async = starting(all_gather)
    """Start an all-gather and return at once; for the arguments see `all_gather`."""

    @waiting
    def broadcast(
        self,
        array: ArrayLike | Tensor,
        root: int = 0,
        *,
        out: Output | None = None,
        name: str | None = None,
        layer: Layer | None = None,
        priority: int | None = None,
    ) -> Request[NDArray[Any]]:
        """Return the array of rank `root`, on all ranks.

        Args:
            array: at the root the array to send, of any type of a fixed size; its bytes are sent unchanged.
                At other ranks only its shape and type are used, which must be the same on all ranks.
            root: the rank that sends; the same on all ranks.
            out: array for the result; `array` itself to overwrite it. None: a new array.
            name: see `Communicator.allreduce`.
            layer: see `Communicator.allreduce`.
            priority: see `Communicator.allreduce`.

        Raises:
            UnsupportedArray: this array or argument is not supported; nothing was sent.
            JobBroken: the job is over.
        """
        return self.spread(array, root, CallOptions(out, name, "propagate", layer, priority))

    broadcast_async = starting(broadcast)
    """Start a broadcast and return at once; for the arguments see `broadcast`."""

    def scatter(self, array: ArrayLike | Tensor, op: Op, options: CallOptions) -> Request[NDArray[Any]]:
        """Return the request of a reduce-scatter, which `start` carries out. Raises UnsupportedArray."""
        number = self._next("reduce_scatter")
        collective = make_reduce_scatter(array, op, options, number=number, rank=self.rank, size=self.size)
        return collective, collective.staged.finish

    def gather(self, array: ArrayLike | Tensor, options: CallOptions) -> Request[NDArray[Any]]:
        """Return the request of an all-gather, which `start` carries out. Raises UnsupportedArray."""
        number = self._next("all_gather")
        collective = make_all_gather(array, options, number=number, rank=self.rank, size=self.size)
        return collective, collective.staged.finish

    def spread(self, array: ArrayLike | Tensor, root: int, options: CallOptions) -> Request[NDArray[Any]]:
        """Return the request of a broadcast, which `start` carries out.

        Raises UnsupportedArray, and ValueError if `root` is no rank.
        """
        number = self._next("broadcast")
        check_root(root, self.size)
        collective = make_broadcast(array, int(root), options, number=number, rank=self.rank)
        return collective, collective.staged.finish

    def _next(self, call: str) -> int:
        """Return the number of the next call. Raises UnsupportedArray if this job cannot carry out `call`."""
        number = next(self._calls)
        if self.why_no_shards is not None:
            raise UnsupportedArray(f"{call} is not available in this job: {self.why_no_shards}")
        return number

    @abstractmethod
    def _run(self, request: Request[Result]) -> Result: ...

    @abstractmethod
    def start(self, request: Request[Result]) -> Handle[Result]:
        """Submit a request as an asynchronous collective; return its handle."""
