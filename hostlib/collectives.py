"""One collective: what is summed, for whom, and how a job of one rank does it alone."""

from __future__ import annotations

import zlib
from dataclasses import dataclass
from typing import Any, Literal, Protocol, get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray

from hostlib import arrays
from hostlib.errors import NonFiniteError, UnsupportedArray

Op = Literal["sum", "average"]
NonFinite = Literal["raise", "propagate"]
Layer = tuple[int, int]
"""Position of a tensor's layer from the front, 0 is the first, and number of layers."""


@dataclass(frozen=True, slots=True)
class Collective:
    """An allreduce, reduce or barrier that has been asked for."""

    staged: arrays.Staged
    average: bool
    nonfinite: NonFinite
    description: str
    """What all ranks must agree on, readable."""
    root: int | None = None
    """The only rank that gets the result; None: all do."""
    layer: Layer | None = None
    priority: int | None = None
    """Of its packets, 0 to 255; None: by policy."""

    @property
    def tag(self) -> int:
        """Digest of the description, which every packet carries."""
        return zlib.crc32(self.description.encode())


def make_collective(
    array: ArrayLike,
    op: Op,
    out: NDArray[Any] | None,
    name: str | None,
    nonfinite: NonFinite,
    *,
    root: int | None = None,
    layer: Layer | None = None,
    priority: int | None = None,
) -> Collective:
    """Check the arguments of an allreduce or, with a `root`, of a reduce. Raises UnsupportedArray."""
    if op not in get_args(Op):
        raise UnsupportedArray(f"op is {op!r}, must be one of {get_args(Op)}")
    if nonfinite not in get_args(NonFinite):
        raise UnsupportedArray(f"nonfinite is {nonfinite!r}, must be one of {get_args(NonFinite)}")
    if layer is not None and not _is_layer(layer):
        raise UnsupportedArray(
            f"layer is {layer!r}, must be (position, layers) with 0 <= position < layers, or None"
        )
    if priority is not None and not (_is_int(priority) and 0 <= priority <= 0xFF):
        raise UnsupportedArray(f"priority is {priority!r}, must be 0..255 or None")
    staged = arrays.stage(array, out)
    if op == "average" and staged.dtype == np.int32:
        raise UnsupportedArray("the average of int32 is not an int32: sum, or convert to float32 first")
    description = f"{op} of {len(staged.source)} {staged.dtype}"
    if root is not None:
        description += f" for rank {root}"
    if name is not None:
        description += f" {name!r}"
    return Collective(staged, op == "average", nonfinite, description, root, layer, priority)


def make_barrier() -> Collective:
    """Return a collective that sums nothing, but has to be met by all ranks."""
    return Collective(arrays.stage(np.empty(0, np.int32)), False, "raise", "barrier")


def _is_int(value: object) -> bool:
    return isinstance(value, int | np.integer) and not isinstance(value, bool)


def _is_layer(layer: object) -> bool:
    if not isinstance(layer, tuple | list) or len(layer) != 2 or not all(map(_is_int, layer)):
        return False
    position, layers = layer
    return bool(0 <= position < layers)


class Engine(Protocol):
    """Carries out collectives, one after the other."""

    def run(self, collective: Collective) -> None:
        """Fill the collective's target. Raises InaError; after a JobBroken nothing more can be run."""
        ...

    def statistics(self) -> dict[str, float]:
        """Return counters since the start, flat, SI units in the names."""
        ...

    def progress(self, done: int, total: int) -> None:
        """Learn that `done` of `total` iterations are over. Raises ValueError for what cannot be."""
        ...

    def close(self) -> None:
        """Free what the engine holds."""
        ...


class LocalEngine:
    """A job of one rank: every sum is the input."""

    def run(self, collective: Collective) -> None:
        """Copy. Raises NonFiniteError as a job in the switch would."""
        staged = collective.staged
        if collective.nonfinite == "raise" and not np.isfinite(staged.source).all():
            raise NonFiniteError(0, int(np.argmin(np.isfinite(staged.source))))
        if staged.target is not staged.source:
            np.copyto(staged.target, staged.source)

    def statistics(self) -> dict[str, float]:
        """Return nothing: no packets."""
        return {}

    def progress(self, done: int, total: int) -> None:
        """Do nothing: there is nobody to be compared with."""

    def close(self) -> None:
        """Do nothing."""
