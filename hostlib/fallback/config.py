"""Configure a fallback server: its settings, and the jobs that it serves."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, Self

from hostlib import wire
from hostlib.addresses import parse_address
from hostlib.config import built
from hostlib.errors import ConfigError, refuse
from hostlib.wire.tree import Tree

LEVELS: Final = 14
"""Number of reminders of an entry after which the interval between reminders no longer doubles."""

BATCH: Final = 64
"""Maximum number of packets to send at once: every kernel with UDP_SEGMENT supports this."""

RECEIVE_BUFFER_BYTES: Final = 32 << 20
"""Size of the receive buffer in bytes: room for several jobs' windows at once. The kernel may grant less."""

STATUS_QUEUE: Final = 1024
"""Maximum number of statuses to queue for sending; more are not needed, because workers ask again."""


class Count(enum.IntEnum):
    """Counters of a job; from `UNKNOWN_JOB` on, packets that were dropped, by reason.

    Packets that cannot be attributed to a job are counted for the server.
    """

    PACKETS = 0
    """Packets received for the job."""
    GRADIENT_BYTES = 1
    """Bytes of lanes in all accepted partial sums."""
    MERGED = 2
    """Partial sums added to an entry's sum."""
    OVERLAPS = 3
    """Partial sums dropped because a contribution in them had been added already."""
    LATE = 4
    """Partial sums that arrived for a packet that was finished already."""
    RESULTS = 5
    """Packets finished."""
    ANSWERS = 6
    """Packets counted in RESULTS that were finished by a result that a worker sent."""
    REPAIRS = 7
    """Packets counted in RESULTS that were finished with raw values after an overflow."""
    REPLAYS = 8
    """Results sent again."""
    STATUSES = 9
    REMINDERS = 10
    EXPIRED = 11
    """Entries dropped because the job no longer needs them."""
    FORGOTTEN = 12
    """Entries dropped for lack of memory, or after a long time without a request."""
    DISAGREEMENTS = 13
    UNASKED = 14
    """Workers' answers that hold a result for which no entry waits."""
    UNKNOWN_JOB = 15
    WRONG_EPOCH = 16
    BAD_LENGTH = 17
    FOREIGN = 18
    """Frames without an INA packet."""
    BAD_VERSION = 19
    BAD_KIND = 20
    BAD_LANES = 21
    WRONG_NODE = 22
    FOREIGN_BITS = 23
    WRONG_FAN_IN = 24
    STALE = 25
    """Packets dropped because every worker already has their result."""
    NO_ROOM = 26


@dataclass(frozen=True, slots=True)
class FallbackSettings:
    """Settings that are constant during the life of a server."""

    lanes: int = 256
    """Number of values per packet, for which the switch program was built."""
    endpoints: wire.Endpoints | None = None
    """Addresses for frames; None: packets are UDP payloads."""
    capacity: int = 65536
    """Size of the memory, in units of the lanes of one packet. Most entries take one unit."""
    remind_s: float = 0.002
    """Minimum wait before a reminder, and between two transmissions of a result: about a round trip."""
    remind_max_s: float = 0.25
    """Longest interval between reminders: doubling of the interval stops there."""
    forget_s: float = 60.0
    """Seconds after the last packet of an unfinished sum at which the server drops its entry."""

    def __post_init__(self) -> None:
        """Raise ConfigError for an invalid field."""
        refuse(not 1 <= self.lanes <= 2048, f"lanes is {self.lanes}, must be 1..2048")
        refuse(
            not 1 <= self.capacity <= 1 << 26, f"capacity is {self.capacity}, must be 1..{1 << 26} packets"
        )
        refuse(
            not 0 < self.remind_s <= self.remind_max_s <= self.forget_s <= 1e6,
            f"remind_s is {self.remind_s}, remind_max_s {self.remind_max_s}, forget_s {self.forget_s}: "
            "must be positive, none below the one before, at most 1e6",
        )

    @property
    def prefix_bytes(self) -> int:
        """Number of bytes of a packet before the INA header."""
        return wire.FRAME_PREFIX_BYTES if self.endpoints else 0

    @property
    def result_bytes(self) -> int:
        """Length in bytes of a packet with lanes."""
        return self.prefix_bytes + wire.INA_BYTES + 4 * self.lanes

    def prefix(self, lanes: int) -> bytes:
        """Return the bytes before the INA header of every packet with this number of lanes."""
        return wire.frame_prefix(self.endpoints, wire.INA_BYTES + 4 * lanes) if self.endpoints else b""


@dataclass(frozen=True, slots=True)
class FallbackJob:
    """A job as admitted to the switches by the controller."""

    job: int
    epoch: int
    """Generation of the admission; only its low eight bits are used."""
    tree: Tree
    window: int | None = None
    """Number of packets that a worker may have outstanding. From it the server concludes which packets no
    worker can request any more. None: an entry without an answer ends only after `FallbackSettings.forget_s`,
    or if memory is full."""
    slots: int | None = None
    """Number of slots in the job's region: PSNs count modulo the largest multiple of this number. None: twice
    the window."""
    beside: str | None = None
    """``host:port`` of the worker beside the server (`hostlib.fallback.beside`): the worker is one child of
    the tree's root, the switch the other. None: all workers are at switches."""

    def __post_init__(self) -> None:
        """Raise ConfigError for an invalid field."""
        if self.beside is not None:
            try:
                parse_address(self.beside)
            except ValueError as error:
                raise ConfigError(f"job {self.job}: beside: {error}") from error
        root, window, slots = self.tree.nodes[wire.ROOT_NODE], self.window, self.slots
        refuse(not 0 <= self.job <= 0xFFFF, f"job is {self.job}, must be 0..65535")
        refuse(self.epoch < 0, f"job {self.job}: epoch is {self.epoch}, must not be negative")
        refuse(
            window is not None and not 1 <= window <= 1 << 28,
            f"job {self.job}: window is {window}, must be 1..{1 << 28}",
        )
        refuse(
            slots is not None and not 0 <= slots <= 1 << 30,
            f"job {self.job}: slots is {slots}, must be 0..{1 << 30}",
        )
        refuse(
            self.beside is not None and (len(root) != 2 or sum(child >= 0 for child in root) != 1),
            f"job {self.job}: with a worker beside the server the tree's root has the children "
            f"{list(root)}, must be one worker and one node",
        )

    @classmethod
    def from_json(cls, fields: Any) -> Self:
        """Read an object with the fields of this class. Raises ConfigError with the reason."""
        if not isinstance(fields, Mapping):
            raise ConfigError(f"a job is {fields!r}, must be an object")
        for name in ("job", "epoch", "window", "slots"):
            value, may_be_none = fields.get(name), name in ("window", "slots")
            is_wrong = type(value) is not int and not (value is None and may_be_none)
            refuse(name in fields and is_wrong, f"{name} is {value!r}, must be a whole number")
        beside = fields.get("beside")
        refuse(not isinstance(beside, str | None), f"beside is {beside!r}, must be HOST:PORT")
        if "tree" in fields:
            fields = {**fields, "tree": Tree.from_json(fields["tree"])}
        return built(cls, fields)

    @property
    def psn_limit(self) -> int:
        """Modulus of PSNs: the largest multiple of `slots` up to 2**32."""
        slots = self.slots if self.slots is not None else 2 * (self.window or 0)
        return 2**32 - 2**32 % slots if slots else 2**32


class Node(NamedTuple):
    """A node of a tree, by index: parents come before their children, the root is 0."""

    id: int
    parent: int
    """Index of the parent; for the root 0."""
    bit: int
    """Bitmap, of one bit, that stands for this node in the parent's sums."""
    full: int
    children: tuple[int, ...]
    """Children by bit: a rank, or minus the index of a node."""


def flatten(tree: Tree) -> tuple[Node, ...]:
    """Return a tree's nodes, parents before their children."""
    order = [wire.ROOT_NODE]
    places = {wire.ROOT_NODE: (0, 0)}
    nodes = []
    for index, node in enumerate(order):  # `order` grows meanwhile
        children = []
        for position, child in enumerate(tree.nodes[node]):
            if child < 0:
                places[-child] = (index, 1 << position)
                children.append(-len(order))
                order.append(-child)
            else:
                children.append(child)
        nodes.append(Node(node, *places[node], tree.full_bitmap(node), tuple(children)))
    return tuple(nodes)


def require_room(settings: FallbackSettings, job: FallbackJob, others: Mapping[int, FallbackJob]) -> None:
    """Check that a job can be served beside the other jobs: any entry must fit into a job's share of memory.

    This is sufficient: the first missing packet of a job gets the memory, and its result frees it.

    Raises:
        ConfigError: the job's id is taken, or the memory is too small.
    """
    # a sum for each node, or raw values of each rank in a repair
    most = max(max(len(each.tree.nodes), each.tree.size) for each in (job, *others.values()))
    jobs = len(others) + 1
    refuse(job.job in others, f"job {job.job} is served already")
    refuse(
        settings.capacity // jobs < most,
        f"job {job.job}: capacity is {settings.capacity} packets for {jobs} job{'s' * (jobs > 1)}, "
        f"must be at least {most} for each, because one of the jobs has this number of ranks or of "
        f"switches that sum; in all {most * jobs}",
    )
