"""Configuration of a worker, which its launcher passes in the environment variable ``INA_JOB``."""

from __future__ import annotations

import dataclasses
import itertools
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal, Self, TypeVar

from hostlib import wire
from hostlib.addresses import parse_address
from hostlib.core import STRAGGLER_TIMEOUT_S, TIMEOUT_S, Patience
from hostlib.errors import ConfigError, refuse
from hostlib.version import PROTOCOL, other_protocol
from hostlib.windows import check_name
from hostlib.wire.encodings import ENCODINGS, Encoding, why_no_room
from hostlib.wire.tree import Tree

ENVIRONMENT_VARIABLE: Final = "INA_JOB"

DEFAULT_SLOTS: Final = 1024
"""Default number of slots of a job's region, enough for a window of 512 packets. With such a window, batches
are large enough for the scheduler to spread workers and switch over the cores, and all packets in flight fit
into the caches (docs/explanations/performance.md)."""

MAX_WINDOW: Final = 1 << 19
MAX_SCALE_BITS: Final = 30

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class TransportConfig:
    """Transport of packets to the switch."""

    kind: Literal["shm", "loopback", "udp", "none"]
    """``shm``: whole Ethernet frames in memory shared with a switch on this machine; ``loopback``: whole
    frames inside UDP datagrams; ``udp``: an ordinary UDP socket; ``none``: no switch, because all ranks are
    on one machine, and sum there in shared memory."""
    local: str
    """``host:port`` of the worker's socket; port 0 takes a free one (loopback only); empty with ``shm`` and
    ``none``."""
    switch: str
    """``host:port`` of the switch; with ``shm`` its Unix socket's path; empty with ``none``."""
    src_mac: str = "02:00:00:00:00:01"
    """Source MAC address in the frames. This and the next four fields are not used with ``udp``."""
    dst_mac: str = "02:00:00:00:ff:01"
    src_ip: str = "10.0.0.1"
    dst_ip: str = "10.0.255.1"
    udp_port: int = wire.INA_UDP_PORT
    """UDP source port in the frames."""
    held: bool = False
    """True if the launcher keeps `local` bound, so that no other user can take it (`hostlib.io.held`)."""

    def __post_init__(self) -> None:
        refuse(
            self.kind not in ("shm", "loopback", "udp", "none"),
            f'transport kind is {self.kind!r}, must be "shm", "loopback", "udp" or "none"',
        )
        refuse(not isinstance(self.held, bool), f"transport: held is {self.held!r}, must be true or false")
        refuse(
            self.kind == "none" and (self.local or self.switch),
            f'transport: kind "none" needs empty local and switch, they are {self.local!r}, {self.switch!r}',
        )
        refuse(
            self.kind == "shm" and (self.local or not self.switch),
            'transport: kind "shm" needs a path as switch, and an empty local: '
            f"switch is {self.switch!r}, local {self.local!r}",
        )
        try:
            for address in (self.local, self.switch) if self.kind in ("loopback", "udp") else ():
                parse_address(address)
            wire.frame_prefix(self.endpoints, 0)
        except (ValueError, OverflowError) as error:
            raise ConfigError(f"transport: {error}") from error

    @property
    def endpoints(self) -> wire.Endpoints:
        """Addresses in the frames."""
        return wire.Endpoints(self.src_mac, self.dst_mac, self.src_ip, self.dst_ip, self.udp_port)


@dataclass(frozen=True, slots=True)
class JobConfig:
    """Configuration of one worker in one job."""

    job: int
    """Id of the job, from the controller."""
    rank: int
    size: int
    lanes: int
    """Number of values per packet, for which the switch program was built."""
    transport: TransportConfig
    slots: int = DEFAULT_SLOTS
    """Number of slots in the job's region of the switch. With a fallback server any number is valid, even 0.
    Without a fallback server the window is at most half of this number."""
    timeout_s: float = TIMEOUT_S
    straggler_timeout_s: float = STRAGGLER_TIMEOUT_S
    rendezvous: str | None = None
    """``host:port`` where the workers meet; None: no launcher watches them."""
    token: str | None = field(default=None, repr=False)
    """Secret that proves at the rendezvous that a worker belongs to the job; required with `rendezvous`."""
    tree: Tree | None = None
    """Aggregation tree of switches; None: one switch with all ranks. In JSON an object: node id to the list
    of its children, each a rank or minus a node id."""
    epoch: int = 0
    """Low 8 bits of the generation of this admission of the job, from the controller."""
    window: int | None = None
    """Length of the range of PSNs that may be under way; None: half of `slots`, or of `DEFAULT_SLOTS` if
    `slots` is 0. Without a fallback server, or with `atp`, all of these packets may be in flight at once.
    With a fallback server at most an eighth of them may be in flight (`hostlib.window_for`)."""
    fallback: bool = False
    """True if the job has a fallback server, for packets without a slot."""
    atp: bool = False
    """True if the switch program is ``atp.p4``, for comparisons: the whole window may be in flight, and
    collided packets try another slot. Needs a fallback server."""
    bare: bool = False
    """True if the switch program accepts contributions without lanes, which reduce-scatter, all-gather and
    broadcast need."""
    congestion: str = "fixed"
    """Congestion control, which decides how much of the window is used: a name of `hostlib.core.congestion`,
    or your own (`hostlib.windows`)."""
    numbers: Encoding = "exponent"
    """Encoding of float32 values: an exponent per packet, with values of 32, 16, 8 or 4 bits; or a fixed
    scale, ``round(x * 2**scale_bits)``. Values of 16, 8 and 4 bits take a half, a quarter and an eighth of
    the bytes (`hostlib.wire.encodings`)."""
    scale_bits: int = 20
    """Bits of the fixed scale. The error of an element of a sum is at most ``size / 2 * 2**-scale_bits``, and
    every element must stay below ``2**(31 - scale_bits) / size``. The fallback server sums packets with
    larger elements exactly; without one they raise SumOverflow."""
    priority: int | None = None
    """Priority of all packets, 0 to 255; None: each tensor's own (`hostlib.core.priority`), 0 without a
    fallback server."""

    hosts: tuple[tuple[int, ...], ...] | None = None
    """Ranks of each machine, if they are summed there first (`hostlib.collectives.local_ranks`): the first
    rank of machine i is then the switch's worker i. None: each rank is a worker of the switch."""

    paced: bool = False
    """True if the switch may be slow: time-outs follow the pace of results (`hostlib.core.pace`)."""

    log: str | None = None
    """File for a line about each collective (`hostlib.io.joblog`); None: no log."""

    def __post_init__(self) -> None:
        flags = ((name, getattr(self, name)) for name in ("fallback", "bare", "atp", "paced"))
        _check_range("job", self.job, 0, 0xFFFF)
        for name, flag in flags:
            refuse(not isinstance(flag, bool), f"{name} is {flag!r}, must be true or false")
        self._check_ranks()
        if self.rendezvous is not None:
            try:
                parse_address(self.rendezvous)
            except ValueError as error:
                raise ConfigError(f"rendezvous: {error}") from error
        check_name(self.congestion)
        no_room = self.numbers in ENCODINGS and why_no_room(self.numbers, self.workers)
        refuse(
            self.lanes not in wire.LANE_COUNTS, f"lanes is {self.lanes}, must be one of {wire.LANE_COUNTS}"
        )
        refuse(
            self.atp and not self.fallback,
            "atp is true, fallback is false: ATP needs a fallback server, for every result",
        )
        _check_range("window", self.window, 1, MAX_WINDOW)
        refuse(self.fallback and self.slots < 0, f"slots is {self.slots}, must not be negative")
        refuse(
            not self.fallback and (self.slots < 2 or self.slots % 2),
            f"slots is {self.slots}, must be even and at least 2 without a fallback server: "
            "the window is at most half of it",
        )
        refuse(
            not self.fallback and 2 * (self.window or 0) > self.slots,
            f"window is {self.window}, must be at most half of slots ({self.slots}) "
            "without a fallback server",
        )
        refuse(self.rendezvous and self.token is None, "token is missing: a rendezvous needs the job's token")
        refuse(
            not isinstance(self.token, str | None),
            f"token is of type {type(self.token).__name__}, must be a text",
        )
        refuse(
            not 0 < self.timeout_s <= self.straggler_timeout_s,
            f"timeout_s is {self.timeout_s}, straggler_timeout_s {self.straggler_timeout_s}: "
            "both must be positive, and straggler_timeout_s at least timeout_s",
        )
        refuse(
            not isinstance(self.log, str | None), f"log is {self.log!r}, must be the name of a file, or null"
        )
        _check_range("epoch", self.epoch, 0, 0xFF)
        refuse(
            self.congestion == "a2tp" and not self.fallback,
            "congestion is 'a2tp', which sends packets past the slots: that needs a fallback server",
        )
        refuse(self.numbers not in ENCODINGS, f"numbers is {self.numbers!r}, must be one of {ENCODINGS}")
        refuse(no_room, f"numbers: {no_room}")
        _check_range("scale_bits", self.scale_bits, 0, MAX_SCALE_BITS)
        _check_range("priority", self.priority, 0, 0xFF)

    def _check_ranks(self) -> None:
        """Raise ConfigError for wrong machines, ranks, or an unfit tree; make `hosts` a tuple of tuples."""
        if self.hosts is not None:
            try:
                object.__setattr__(self, "hosts", tuple(tuple(map(int, host)) for host in self.hosts))
            except (TypeError, ValueError):
                raise ConfigError(
                    f"hosts is {self.hosts!r}, must be a list of the ranks of each machine"
                ) from None
        hosts, of_tree = self.hosts, self.tree.size if isinstance(self.tree, Tree) else self.workers
        refuse(
            hosts is not None and (sorted(itertools.chain(*hosts)) != [*range(self.size)] or not all(hosts)),
            f"hosts is {hosts!r}, must have each rank of 0..{self.size - 1} once",
        )
        refuse(
            self.transport.kind == "none" and (hosts is None or len(hosts) > 1),
            f'transport kind is "none", and hosts is {hosts!r}: without a switch all ranks are on'
            " one machine",
        )
        refuse(
            self.tree is None and not 1 <= self.workers <= wire.MAX_FAN_IN,
            f"size is {self.workers}, must be 1..{wire.MAX_FAN_IN} without tree: "
            "the bitmap in a packet has one bit for each worker of a switch",
        )
        refuse(not isinstance(self.tree, Tree | None), f"tree is {self.tree!r}, must be a Tree")
        refuse(of_tree != self.workers, f"size is {self.workers}, but the tree has {of_tree} ranks")
        _check_range("rank", self.rank, 0, self.size - 1)

    @property
    def workers(self) -> int:
        """Number of workers of the switch: of machines if `hosts` is set, else of ranks."""
        return self.size if self.hosts is None else len(self.hosts)

    @property
    def worker(self) -> int:
        """This rank's worker number in the switch: the machine's index in `hosts` if set, else the rank."""
        return self.host_of(self.rank)

    def host_of(self, rank: int) -> int:
        """Return a rank's worker number in the switch: its machine's index in `hosts` if set, else `rank`."""
        if self.hosts is None:
            return rank
        return next(worker for worker, ranks in enumerate(self.hosts) if rank in ranks)

    @property
    def window_packets(self) -> int:
        """Number of packets of the window: `window`, or its default."""
        if self.window is not None:
            return self.window
        return (self.slots if self.slots >= 2 else DEFAULT_SLOTS) // 2

    @property
    def patience(self) -> Patience:
        """Longest waits for a new result, from `timeout_s` and `straggler_timeout_s`."""
        return Patience(self.timeout_s, self.straggler_timeout_s)

    def to_json(self) -> str:
        """Return the text that `from_json` reads; it holds the token."""
        return json.dumps(
            {each.name: getattr(self, each.name) for each in dataclasses.fields(self)}
            | {"transport": dataclasses.asdict(self.transport), "tree": self.tree and self.tree.to_json()}
            | {"protocol": PROTOCOL}
        )

    @classmethod
    def from_json(cls, text: str) -> Self:
        """Read a configuration. Raises ConfigError with the reason."""
        try:
            fields = json.loads(text)
        except ValueError as error:
            # not "from error", which contains the whole text and so the token
            raise ConfigError(f"{ENVIRONMENT_VARIABLE} is not JSON: {error}") from None
        if not isinstance(fields, dict) or not isinstance(fields.get("transport"), dict):
            raise ConfigError(f'{ENVIRONMENT_VARIABLE} must be a JSON object with an object "transport"')
        if other := other_protocol({"protocol": fields.pop("protocol", 1)}):
            raise ConfigError(f"{ENVIRONMENT_VARIABLE}: {other}")
        fields["transport"] = built(TransportConfig, fields["transport"])
        if fields.get("tree") is not None:
            fields["tree"] = Tree.from_json(fields["tree"])
        return built(cls, fields)

    @classmethod
    def from_environment(cls, environment: Mapping[str, str] = os.environ) -> Self | None:
        """Return the configuration in ``INA_JOB``; None if the variable is not set. Raises ConfigError."""
        text = environment.get(ENVIRONMENT_VARIABLE)
        return None if text is None else cls.from_json(text)


def _check_range(name: str, value: int | None, low: int, high: int) -> None:
    """Raise ConfigError if a value is not in a range; None, of an optional field, is no value."""
    refuse(value is not None and not low <= value <= high, f"{name} is {value}, must be {low}..{high}")


def built(cls: type[T], fields: Mapping[str, Any]) -> T:
    """Return an object of a dataclass with these fields. Raises ConfigError for unknown or missing fields."""
    known = {each.name: each.default for each in dataclasses.fields(cls)}  # type: ignore[arg-type]
    if unknown := sorted(fields.keys() - known):
        raise ConfigError(f"unknown fields {', '.join(unknown)}; known are {', '.join(known)}")
    if missing := [
        name for name, default in known.items() if default is dataclasses.MISSING and name not in fields
    ]:
        raise ConfigError(f"{', '.join(missing)} is missing")
    try:
        return cls(**fields)
    except TypeError as error:
        raise ConfigError(f"a field has the wrong type: {error}") from error
