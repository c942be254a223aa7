"""A collective, its arguments and its arrays; and the engine of a job with one rank."""

from __future__ import annotations

import functools
import time
import zlib
from collections.abc import Callable, Sequence
from typing import Any, Final, Literal, NamedTuple, get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray

from hostlib.collectives import arrays
from hostlib.core.state import Counter, Pattern
from hostlib.errors import NO_PACKETS, JobBroken, NonFiniteError, UnsupportedArray
from hostlib.wire.encodings import BLOCKS, NUMBERS, Numbers, why_no_room

COUNTED: Final = ("collectives", "elements", "time_s")
"""Keys of `statistics()` whose values a rank counts even if it sends no packets."""
KEYS: Final = (
    *(*COUNTED, "srtt_s", "hold_s", "window_packets", "aggregator_window_packets"),
    *("priority", "packets_from_strangers", *(f"packets_{counter.name.lower()}" for counter in Counter)),
)

Kind = Literal["allreduce", "reduce", "reduce_scatter", "all_gather", "broadcast"]
Op = Literal["sum", "average"]
NonFinite = Literal["raise", "propagate"]
Layer = tuple[int, int]
"""(position, number of layers): the position of a tensor's layer, counted from the front of the network, 0
for the first layer; and the number of layers."""


_OPS: Final = get_args(Op)
_NON_FINITE: Final = get_args(NonFinite)


class CallOptions(NamedTuple):
    """Arguments of a call besides its array, operation and root; the call's collective keeps them.

    A tuple, because a frozen dataclass takes a microsecond longer to make.
    """

    out: arrays.Output | None = None
    """Array for the result; None: a new array."""
    name: str | None = None
    """Name of the array, for errors, and to detect that ranks submit different arrays."""
    nonfinite: NonFinite = "raise"
    """Effect of NaN and infinity; see `hostlib.collectives.communicator.Communicator.allreduce`."""
    layer: Layer | None = None
    priority: int | None = None
    """Priority of the call's packets, 0 to 255; None: the job's configuration, or else
    `hostlib.core.priority`, decides."""
    numbers: Numbers | None = None
    """Encoding of floats in packets; None: the job's configuration decides."""
    residual: NDArray[np.float32] | None = None
    """Array with the rounding errors of earlier sums, for a "block" encoding: it is added to the source, and
    then overwritten with the errors of this sum."""
    arrived: Callable[[], None] | None = None
    """Function that waits until a device has copied the source to the array; called in the library's thread.
    None: the source is complete."""
    inline: bool = False
    """True: the calling thread carries out the call itself, and blocks until the call is done. This applies
    only if no other call is waiting or under way; otherwise the library's thread carries out this call."""
    series: str | None = None
    """Key that calls with similar values share (`hostlib.core.foresight`); None: `name`."""


PLAIN: Final = CallOptions()


class Collective(NamedTuple):
    """A requested collective; a tuple for speed, like `CallOptions`."""

    staged: arrays.Staged
    """Source and target, as `hostlib.core.window.Exchange` defines them for the pattern."""
    average: bool
    options: CallOptions
    description: str
    """Description of the properties, besides `number`, on which ranks must agree."""
    number: int = 0
    """Number of earlier calls of this rank, refused calls included."""
    root: int | None = None
    """The only rank that gets the sum, or the rank whose array is broadcast; None: there is none."""
    pattern: Pattern = Pattern.SUM
    shards: int = 1
    """Number of shards in the array: 1, or one for each rank."""
    stride: int | None = None
    """Number of elements from the start of one shard to the start of the next, in the array of all shards.
    None: the shards lie back to back."""
    part: str = ""
    """Text that says which part of a call this collective is, or which calls are fused in it. Ranks must
    agree on the text. "": one whole call."""
    calls: int = 1
    """Number of calls that are complete once this collective has ended: 0 for a part of a call, except for
    the last part."""
    is_barrier: bool = False
    fused: Sequence[tuple[str, int]] | None = None
    """(series, number of elements) of all fused calls; empty if one of the calls has no series. None: this is
    one call, or a part of one."""

    @property
    def series(self) -> Sequence[tuple[str, int]]:
        """(series, number of elements) of each call, in the order of packets (`hostlib.core.foresight`)."""
        if self.fused is not None:
            return self.fused
        name = self.options.series or self.options.name
        return () if name is None else [(f"{name} {self.part}", self.length)]

    @property
    def length(self) -> int:
        """Number of elements of a shard; of the whole array if there is only one shard."""
        shard = self.staged.target if self.pattern is Pattern.SCATTER else self.staged.source
        return len(shard)

    @property
    def tag(self) -> int:
        """Digest of number, description and part; every packet carries it."""
        return zlib.crc32(f"{self.number} {self.description}{self.part and f' {self.part}'}".encode())


def make_collective(
    array: ArrayLike | arrays.Tensor,
    op: Op = "sum",
    options: CallOptions = PLAIN,
    *,
    number: int = 0,
    root: int | None = None,
    terms: int = 1,
) -> Collective:
    """Return an allreduce or a reduce, after a check of its arguments.

    Args:
        array: The array to sum.
        op: "sum" or "average".
        options: The call's other arguments.
        number: Number of earlier calls of this rank.
        root: The only rank that gets the result; None: all ranks get it.
        terms: Number of terms of the sum in the switch: ranks, or machines.

    Raises UnsupportedArray.
    """
    numbers, residual = options.numbers, options.residual
    if not isinstance(op, str) or op not in _OPS:
        raise UnsupportedArray(f"op is {op!r}, must be one of {_OPS}")
    if not isinstance(options.nonfinite, str) or options.nonfinite not in _NON_FINITE:
        raise UnsupportedArray(f"nonfinite is {options.nonfinite!r}, must be one of {_NON_FINITE}")
    _check(options)
    if numbers is not None and (not isinstance(numbers, str) or numbers not in NUMBERS):
        raise UnsupportedArray(f"numbers is {numbers!r}, must be one of {NUMBERS}, or None")
    if residual is not None and numbers not in BLOCKS:
        raise UnsupportedArray(
            f"residual is given, so numbers must be one of {BLOCKS}: others have no error feedback"
        )
    staged = arrays.stage(array, options.out)
    if numbers and staged.source.dtype == np.float32 and (why := why_no_room(numbers, terms)):
        raise UnsupportedArray(f"numbers: {why}")
    if op == "average" and staged.dtype == np.int32:
        raise UnsupportedArray(
            'an average of int32 values may be no whole number: use op="sum", or convert to float32'
        )
    more = "" if root is None else f" for rank {root}"
    if numbers is not None:
        more += f" as {numbers}"
    description = _described(op, staged, options, more)
    if residual is not None:
        staged = arrays.with_residual(staged, residual)
    return Collective(staged, op == "average", options, description, number, root)


def make_move(
    kind: Kind,
    array: ArrayLike | arrays.Tensor,
    options: CallOptions,
    rank: int,
    size: int,
    *,
    op: Op = "sum",
    root: int | None = None,
) -> Collective:
    """Return a collective that moves shards, with the number 0, after a check of its arguments.

    Args:
        kind: "reduce_scatter": the first dimension of `array` has a shard for each rank, and `options.out` is
            for this rank's shard. "all_gather": `array` is this rank's shard, of any type, and `options.out`
            is for all shards, back to back. "broadcast": `array` is the root's array, of any type; at other
            ranks it has the same shape and type.
        array: The array to sum or to move.
        options: The call's other arguments.
        rank: This rank.
        size: Number of ranks.
        op: "sum" or "average" of a reduce-scatter.
        root: The rank that sends a broadcast.

    Raises UnsupportedArray.
    """
    if kind == "reduce_scatter":
        whole = make_collective(array, op, options._replace(out=None), terms=size)
        return whole._replace(
            staged=arrays.stage_shard(array, whole.staged, options.out, rank, size),
            options=options,
            description=f"reduce-scatter, {whole.description}",
            pattern=Pattern.SCATTER,
            shards=size,
        )
    _check(options)
    if kind == "all_gather":
        staged = arrays.stage_shards(array, options.out, rank, size)
        description, shards = _described("all-gather", staged, options), size
    else:
        staged = arrays.stage_moved(array, options.out, sends=rank == root)
        description, shards = f"{_described('broadcast', staged, options)} from rank {root}", 1
    return Collective(staged, False, options, description, 0, root, Pattern.GATHER, shards)


@functools.lru_cache(1024)
def _form(shape: tuple[int, ...], dtype: np.dtype[Any]) -> str:
    """Describe a shape and a dtype; cached, because NumPy takes long to name a dtype."""
    return f"{'x'.join(map(str, shape)) or 1} {dtype}"


def _described(what: str, staged: arrays.Staged, options: CallOptions, more: str = "") -> str:
    text = f"{what} of {_form(staged.shape, staged.dtype)}{more}"
    if options.layer is not None:
        text += f" of layer {options.layer[0]}/{options.layer[1]}"
    return text if options.name is None else f"{text} {options.name!r}"


def _check(options: CallOptions) -> None:
    """Raise UnsupportedArray if layer, name or priority is invalid."""
    if options.layer is not None and not _is_layer(options.layer):
        raise UnsupportedArray(
            f"layer is {options.layer!r}, must be (position, layers) with 0 <= position < layers, or None"
        )
    if options.name is not None and not isinstance(options.name, str):
        raise UnsupportedArray(f"name is {options.name!r}, must be a text or None")
    priority = options.priority
    if priority is not None and not (is_whole(priority) and 0 <= priority <= 0xFF):
        raise UnsupportedArray(f"priority is {priority!r}, must be 0..255 or None")


def make_barrier(number: int) -> Collective:
    """Return a collective without elements, which ends when all ranks have called it."""
    nothing = arrays.stage(np.empty(0, np.int32))
    return Collective(nothing, False, PLAIN, "barrier", number, is_barrier=True)


def is_whole(value: object) -> bool:
    """Return whether a value is an int of Python or NumPy, and no bool."""
    return isinstance(value, int | np.integer) and not isinstance(value, bool)


def check_root(root: Any, size: int) -> int:
    """Return `root` as an int of Python. Raises ValueError unless it is a rank below `size`."""
    if not (is_whole(root) and 0 <= root < size):
        raise ValueError(f"root is {root!r}, must be a rank: 0..{size - 1}, a whole number")
    return int(root)


def _is_layer(layer: object) -> bool:
    if not isinstance(layer, tuple | list) or len(layer) != 2 or not all(map(is_whole, layer)):
        return False
    position, layers = layer
    return bool(0 <= position < layers)


class Engine:
    """Carries out collectives one after the other; this base class serves jobs of one rank."""

    def __init__(self) -> None:
        self._broken: JobBroken | None = None
        self._counted = dict.fromkeys(COUNTED, 0.0)

    def run(self, collective: Collective) -> None:
        """Carry out a collective: write its result to its target.

        Raises InaError. After a JobBroken, all later calls raise the same error.
        """
        if self._broken:
            raise self._broken
        started = time.monotonic_ns()
        staged = collective.staged
        if collective.options.nonfinite == "raise" and not np.isfinite(staged.source).all():
            first = int(np.argmin(np.isfinite(staged.source)))
            raise NonFiniteError(0, first, staged.unfit(first, 1))
        if staged.target is not staged.source and collective.pattern is not Pattern.GATHER:
            np.copyto(staged.target, staged.source)
        if collective.options.residual is not None:
            staged.source[:] = 0
        self._count(collective, time.monotonic_ns() - started)

    def _count(self, collective: Collective, busy_ns: int) -> None:
        counted = self._counted
        counted["collectives"] += collective.calls
        counted["elements"] += len(collective.staged.source)
        counted["time_s"] += busy_ns / 1e9

    def statistics(self) -> dict[str, float]:
        """Return the counters since the start, in SI units, by key (`KEYS`); counters of packets are 0."""
        return {**dict.fromkeys(KEYS, 0.0), **self._counted}

    def progress(self, done: int, total: int) -> None:
        """Record that `done` of `total` iterations are over. Raises ValueError for impossible numbers."""

    def abort(self, reason: str, kind: type[JobBroken]) -> None:
        """Make collectives under way, and all later ones, raise an error of class `kind`; thread-safe."""
        self._broken = self._broken or kind(reason, job=0, psns=NO_PACKETS)

    def close(self) -> None:
        """Release the engine's sockets, memory and connections. The base class has none of these."""
