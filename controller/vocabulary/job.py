"""One training job, as files describe it and as all packages use it."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Final, Literal, get_args

from controller.vocabulary.errors import BadSpec, plural

# ---------------------------------------------------------------------------
# Slots of a switch, how jobs use them, and the content of their packets: names and defaults.


Mode = Literal["shared", "exclusive"]
"""Use of a switch's slots: jobs share all of them, or each job has a region of its own."""
MODES: Final[tuple[Mode, ...]] = get_args(Mode)

CONGESTION: Final = ("fixed", "aimd", "a2tp", "tcp")
"""Rules for a worker's window: fixed; AIMD by ECN marks (ATP); A2TP's two windows; TCP's, by lost packets.

Other names denote users' own rules (``docs/guides/own-rules.md``).
"""
CONGESTION_GROUP: Final = "ina.congestion"
"""Group of the entry points by which packages offer rules for windows."""

OnLate = Literal["end", "best-effort"]
"""Fate of a job whose deadline cannot be met any more: it is ended, or goes on as if it had none."""
ON_LATE: Final[tuple[OnLate, ...]] = get_args(OnLate)

Encoding = Literal["exponent", "block16", "block8", "block4", "fixed"]
"""Encoding of float32 in packets: 32, 16, 8 or 4 bits with an exponent per packet, or a fixed scale."""
ENCODINGS: Final[tuple[Encoding, ...]] = get_args(Encoding)

MAX_PRIORITY: Final = 255
"""Highest priority of a packet: the header has 8 bits for it."""
MAX_WINDOW: Final = 1 << 16
"""Maximum number of packets that a worker may have in flight."""


@dataclass(frozen=True, slots=True)
class Region:
    """Slots `offset` to `offset + size - 1` of a switch."""

    offset: int
    size: int

    @property
    def end(self) -> int:
        """The first slot after the region."""
        return self.offset + self.size

    def overlaps(self, other: Region) -> bool:
        """Return whether the two regions have a slot in common."""
        return max(self.offset, other.offset) < min(self.end, other.end)


# ---------------------------------------------------------------------------
# Aggregation trees: the switches of one job.


@dataclass(frozen=True, slots=True)
class Tree:
    """The switches of a job: a root, the parent of each other switch, and the switches that sum.

    Raises BadSpec if the root has a parent, or if a switch's parents do not lead to the root.
    """

    root: str
    parents: Mapping[str, str]
    aggregators: frozenset[str]

    def __post_init__(self) -> None:
        if self.root in self.parents:
            raise BadSpec(f"tree: the root {self.root!r} has a parent, {self.parents[self.root]!r}")
        for start in self.parents:
            node, steps = start, 0
            while node != self.root:
                if node not in self.parents or steps > len(self.parents):
                    why = "in a circle" if node in self.parents else f"to {node!r}, which has no parent"
                    raise BadSpec(f"tree: the way up from {start!r} leads {why}; want it to reach the root")
                node, steps = self.parents[node], steps + 1

    @property
    def switches(self) -> tuple[str, ...]:
        """All switches, the root first."""
        return (self.root, *self.parents)


FLOAT_BYTES = 4
"""Bytes of one element of a gradient, which is a float32."""


def float32_bytes(elements: Iterable[int]) -> tuple[int, ...]:
    """Return the bytes of layers with these numbers of float32 values.

    >>> float32_bytes([1024, 10])
    (4096, 40)
    """
    return tuple(FLOAT_BYTES * count for count in elements)


@dataclass(frozen=True, slots=True)
class Straggler:
    """A rank whose computing time differs from the other ranks'."""

    rank: int
    compute_s: float


@dataclass(frozen=True, kw_only=True)
class Job:
    """A data-parallel training job: every iteration each worker computes, then all gradients are summed.

    Times are in seconds. `arrival_s` counts from the start of the run, trace or simulation; `deadline_s`
    counts from the job's own arrival, and `due_s` is the same moment on the clock of `arrival_s`.

    A value that is not given is None or empty; code that needs it requires it, or has its own default. All
    other defaults are here. Raises BadSpec for values that contradict each other.

    Attributes:
        name: Unique among jobs.
        workers: Number of ranks.
        gpus_per_worker: GPUs of each rank; `gpus` counts the whole job's.
        command: Program and arguments of every worker.
        arrival_s: Time at which it is submitted, from the start of the run.
        deadline_s: Deadline, counted from its arrival; None: best effort.
        on_late: Whether the job is ended or goes on once it could not meet its deadline even if it ran alone.
        iterations: Iterations to do; for a job that has already run, the iterations left.
        duration_s: How long it runs alone on its GPUs; None: as long as `iterations` take.
        layers_bytes: Bytes of the gradient of each layer, front layer first.
        model: Name of the model, by which profiles and speed models look it up; "": unknown.
        batch: Samples of an iteration on each GPU; 0: unknown.
        compute_s: Time of the forward and the backward pass of one iteration.
        overlap: Fraction of the computing during which gradients may be in flight: 0 to 1.
        jitter: Largest fraction by which each pass of each rank is longer or shorter, at random.
        straggler: A rank with a computing time of its own; None: all ranks have the same.
        skew_s: Time for which the slowest rank computes longer than the other ranks.
        stages_s: Seconds of one iteration on storage, CPU, GPU and network; () if unknown.
        iteration_s: Seconds of one iteration alone on its GPUs; None: the sum of `stages_s`, or `compute_s`.
        estimate_s: Its estimated run time alone (by a user or a predictor); None: unknown.
        restart_s: Seconds lost whenever it is started, moved or regrouped.
        user: Its owner.
        vc: The virtual cluster that it is submitted to.
        opportunistic: Whether it only uses GPUs that other jobs leave free, and is guaranteed none (AntMan).
        mode: Use of switch memory: a private region, or slots that jobs share.
        slots: Private aggregator slots; None: a share that the command assigns.
        window: Packets that a worker may have in flight; None: the command's default.
        priority: Priority of its packets, 0 to 255, higher is more urgent; None: measured for each tensor.
        preempt: Whether its packets may take slots from jobs of lower priority (program shared).
        congestion: Rule for its workers' windows: one of `CONGESTION`, or a user's own.
        numbers: Encoding of float32 values in its packets.
        hold_s: Measured time that a slot is held, ranks' skew included; None: not measured.
        servers: The server of each rank; () before it is placed.
        fallback: The server that sums packets without a slot; None: none yet.
        aggregate: Whether it uses switch memory.
        tree: Its switches; None: shortest paths, with sums at every switch on the paths that can sum.
        extra: Further data, by name, for policies that use them.
    """

    name: str
    workers: int
    gpus_per_worker: int = 1
    command: tuple[str, ...] | None = None
    arrival_s: float = 0.0
    deadline_s: float | None = None
    on_late: OnLate = "end"
    iterations: int = 100
    duration_s: float | None = None
    layers_bytes: tuple[int, ...] = (1 << 18,)
    model: str = ""
    batch: int = 0
    compute_s: float = 1e-3
    overlap: float = 0.0
    jitter: float = 0.0
    straggler: Straggler | None = None
    skew_s: float = 0.0
    stages_s: tuple[float, ...] = ()
    iteration_s: float | None = None
    estimate_s: float | None = None
    restart_s: float = 0.0
    user: str = ""
    vc: str = ""
    opportunistic: bool = False
    mode: Mode = "shared"
    slots: int | None = None
    window: int | None = None
    priority: int | None = None
    preempt: bool = False
    congestion: str = "fixed"
    numbers: Encoding = "exponent"
    hold_s: float | None = None
    servers: tuple[str, ...] = ()
    fallback: str | None = None
    aggregate: bool = True
    tree: Tree | None = None
    extra: Mapping[str, Any] = field(default_factory=dict, hash=False)

    def __post_init__(self) -> None:
        what = f"job {self.name!r}"
        if self.workers < 1 or self.gpus_per_worker < 1 or self.iterations < 1:
            raise BadSpec(f"{what}: workers, gpus_per_worker and iterations must be 1 or more")
        if not self.layers_bytes or min(self.layers_bytes) < 1:
            raise BadSpec(f"{what}: a model has at least one layer of a byte or more")
        times = (self.compute_s, self.arrival_s, self.hold_s or 0.0, self.skew_s, *self.stages_s)
        if not all(math.isfinite(time) and time >= 0 for time in times) or not 0 <= self.overlap <= 1:
            raise BadSpec(f"{what}: times must be 0 or more, and overlap 0 to 1")
        if self.deadline_s is not None and not (self.deadline_s > 0 and math.isfinite(self.deadline_s)):
            raise BadSpec(
                f"{what}: deadline_s is {self.deadline_s:g}, must be above 0: seconds after its arrival"
            )
        if self.servers and len(self.servers) != self.workers:
            raise BadSpec(
                f"{what}: {plural(len(self.servers), 'server')} for {plural(self.workers, 'worker')};"
                " want one for each"
            )

    @property
    def gpus(self) -> int:
        """GPUs of all workers."""
        return self.workers * self.gpus_per_worker

    @property
    def due_s(self) -> float | None:
        """Time of the job's deadline, in seconds on the clock of `arrival_s`; None: best effort."""
        return None if self.deadline_s is None else self.arrival_s + self.deadline_s

    @cached_property
    def model_bytes(self) -> int:
        """Bytes of the whole gradient."""
        return sum(self.layers_bytes)

    @cached_property
    def tensors(self) -> tuple[int, ...]:
        """Number of float32 elements of each layer, front layer first.

        Raises BadSpec if the bytes of a layer are not a multiple of 4.
        """
        if odd := [size for size in self.layers_bytes if size % FLOAT_BYTES]:
            raise BadSpec(
                f"job {self.name!r}: layers_bytes: {odd[0]} is not a multiple of 4, a float32's bytes"
            )
        return tuple(size // FLOAT_BYTES for size in self.layers_bytes)

    @cached_property
    def hosts(self) -> tuple[str, ...]:
        """The servers that the job uses, each once; a server's position is its rank in the job's tree."""
        return tuple(dict.fromkeys(self.servers))

    def later(self, iterations: int, arrival_s: float, deadline_s: float | None) -> Job:
        """Return a copy of the job with other iterations, arrival and deadline.

        The values are not checked, which saves time: each event needs copies of many jobs.

        Args:
            iterations: Iterations left, 1 or more.
            arrival_s: Its arrival, in seconds.
            deadline_s: Its deadline, in seconds after `arrival_s`; None: best effort.
        """
        return self._unchecked(iterations=iterations, arrival_s=arrival_s, deadline_s=deadline_s)

    def on(self, servers: Sequence[str], fallback: str | None, tree: Tree | None) -> Job:
        """Return a copy of the job with other servers, fallback server and tree.

        The values are not checked, which saves time: a policy tries many places.

        Args:
            servers: The server of each rank.
            fallback: The server that sums packets without a slot; None: none.
            tree: Its switches; None: shortest paths.
        """
        return self._unchecked(servers=tuple(servers), fallback=fallback, tree=tree)

    def _unchecked(self, **changes: object) -> Job:
        found, known = object.__new__(Job), Job.__dataclass_fields__  # defaults may be the class's alone
        vars(found).update({name: value for name, value in vars(self).items() if name in known}, **changes)
        return found

    def iteration_at_s(self, rate_bps: float) -> float:
        """Return the seconds of one iteration if gradients are summed at this rate (bits per second).

        The fraction `overlap` of the computing runs during communication; the other computing, and the
        slowest rank's skew, run before it.
        """
        communication_s = self.model_bytes * 8 / rate_bps if rate_bps > 0 else math.inf
        hidden_s = self.overlap * self.compute_s
        return self.skew_s + self.compute_s - hidden_s + max(hidden_s, communication_s)
