"""Connections of switch ports, their impairments and their counters.

``memory``              the calling program delivers and takes the frames, and sets the time
``cpu``                 a memory port for packet-in and packet-out
``udp:LOCAL[:PEER]``    one frame is one UDP datagram on 127.0.0.1, to and from UDP port PEER; frames of
                        other senders are dropped. Without PEER the first sender becomes the peer
``socket:FD[:PEER]``    like ``udp``, on a bound UDP socket that the parent process passes
``shm[:PATH]``          frames in memory shared with the client of the Unix socket PATH, another process of
                        this user. Without PATH the socket is in a folder that is made for it
``veth:NAME``, ``if:NAME``   a network interface (needs root)

Impairments (loss, delay and the like) are random but reproducible. Each direction of each port has its own
random stream, so the fate of a frame depends only on the seed and on earlier frames in the same
direction.

The counters belong to the switch and its ports, not to the program.
"""

from __future__ import annotations

import ctypes
import hashlib
import re
from collections.abc import Callable
from dataclasses import dataclass, field, fields, replace
from typing import Any

MAX_PORT = 510
"""Largest port number: port numbers are bit<9>, and 511 means drop."""


class SwitchError(Exception):
    """The switch cannot carry out an operation.

    SwitchError
    └── PortError   a port specification is wrong, or the port cannot be opened
    """

    exit_code = 1


class PortError(SwitchError):
    """A port specification is wrong, or the port cannot be opened."""


@dataclass(frozen=True, slots=True)
class MemoryPort:
    """A port whose frames the calling program delivers and takes. If `cpu` is True, it is the CPU port."""

    cpu: bool = False


@dataclass(frozen=True, slots=True)
class UdpPort:
    """A UDP socket on 127.0.0.1; `local` 0 takes a free port."""

    local: int = 0
    peer: int | None = None
    """The UDP port of the far end; None: the first sender becomes the peer."""
    fd: int | None = None
    """File descriptor of a bound socket to use instead of `local`; closing the switch closes the socket."""


@dataclass(frozen=True, slots=True)
class SharedPort:
    """Rings of frames in memory that is shared with another process (``runtime/shared_ring.h``)."""

    path: str | None = None
    """Path of the Unix socket to which the other process connects; None: a socket in a private folder."""


@dataclass(frozen=True, slots=True)
class InterfacePort:
    """A packet socket on a network interface of this machine."""

    name: str


PortSpec = MemoryPort | UdpPort | SharedPort | InterfacePort


def parse_port(text: str) -> PortSpec:
    """Read a port specification. Raises PortError, which names the valid forms."""
    kind, _, rest = text.partition(":")
    match kind:
        case "memory" | "cpu" if not rest:
            return MemoryPort(cpu=kind == "cpu")
        case "udp":
            local, colon, peer = rest.partition(":")
            return UdpPort(_udp_number(text, local, 0), _udp_number(text, peer, 1) if colon else None)
        case "socket":
            descriptor, colon, peer = rest.partition(":")
            if not descriptor.isascii() or not descriptor.isdigit() or len(descriptor) > 9:
                raise PortError(f"port {text!r}: {descriptor!r} is not a file descriptor")
            return UdpPort(0, _udp_number(text, peer, 1) if colon else None, int(descriptor))
        case "shm" if rest or text == "shm":
            return SharedPort(rest or None)
        case "veth" | "if" if rest:
            if len(rest) > 15 or "/" in rest or any(c.isspace() for c in rest):
                raise PortError(f"port {text!r}: {rest!r} is not an interface name")
            return InterfacePort(rest)
    raise PortError(
        f"port {text!r}: want memory, cpu, udp:LOCAL[:PEER], socket:FD[:PEER], shm[:PATH], veth:NAME"
        " or if:NAME"
    )


def takes_any_peer(spec: PortSpec) -> bool:
    """Return True if the first sender at this port becomes its peer."""
    return isinstance(spec, UdpPort) and spec.peer is None


def _udp_number(text: str, number: str, lowest: int) -> int:
    if not number.isascii() or not number.isdigit() or not lowest <= int(number) <= 65535:
        raise PortError(f"port {text!r}: {number!r} is not a UDP port ({lowest}..65535)")
    return int(number)


_ALWAYS = 2**64 - 1
MAX_RATE_BPS = 1e15
_TIME_UNITS = {"": 1.0, "s": 1.0, "ms": 1e-3, "us": 1e-6, "ns": 1e-9}
_COUNT_UNITS = {"": 1.0, "k": 1e3, "M": 1e6, "G": 1e9, "%": 1e-2}


@dataclass(frozen=True, slots=True)
class Impairments:
    """Impairments of one direction of a port.

    A frame first waits for the rate limit, then may be lost or corrupted, then is delayed. Corruption
    is modelled as on Ethernet: the frame check fails, so the frame is dropped and counted as corrupted.
    """

    loss: float = 0.0
    duplicate: float = 0.0
    reorder: float = 0.0
    corrupt: float = 0.0
    delay_s: float = 0.0
    jitter_s: float = 0.0
    """Additional delay, uniform in 0..jitter_s; frames keep their order."""
    reorder_s: float = 0.001
    """Additional delay, uniform in 0..reorder_s, of frames that `reorder` selects.

    Other frames may overtake these frames.
    """
    rate_bps: float = 0.0
    """Rate limit in bits per second; 0: unlimited."""
    burst_bytes: int = 0
    """Number of bytes that may be sent at once, above the rate limit: the depth of the token bucket."""
    queue_packets: int = 64
    """Maximum number of packets waiting for the rate limit; further packets are dropped."""
    seed: int | None = None
    """Seed of the random numbers; None: derived from the switch's seed."""

    def __post_init__(self) -> None:
        for name in ("loss", "duplicate", "reorder", "corrupt"):
            if not 0.0 <= getattr(self, name) <= 1.0:
                raise ValueError(f"{name} must be a probability, not {getattr(self, name)}")
        for name in ("delay_s", "jitter_s", "reorder_s", "burst_bytes", "queue_packets"):
            if not 0 <= getattr(self, name) < 2**40:
                raise ValueError(f"{name} must not be negative or above 2**40, but is {getattr(self, name)}")
        if not 0 <= self.rate_bps <= MAX_RATE_BPS:
            raise ValueError(f"rate_bps must be 0 to {MAX_RATE_BPS:g}, but is {self.rate_bps}")


@dataclass(frozen=True, slots=True)
class PortImpairments:
    """Both directions of a port: `rx` into the switch, `tx` out of it."""

    rx: Impairments = field(default_factory=Impairments)
    tx: Impairments = field(default_factory=Impairments)

    @classmethod
    def parse(cls, text: str) -> PortImpairments:
        """Read ``key=value,…``; a key applies to both directions unless it starts with ``rx.`` or ``tx.``.

        Keys are the fields of `Impairments` without their unit (``loss=5%``, ``delay=200us``,
        ``rate=1G``, ``tx.queue=32``). Raises ValueError naming the wrong part.
        """
        directions = {"rx": Impairments(), "tx": Impairments()}
        for part in filter(None, text.split(",")):
            key, equals, value = part.strip().partition("=")
            prefix, dot, name = key.rpartition(".")
            if not equals or name not in _KEYS or (dot and prefix not in directions):
                known = ", ".join(_KEYS)
                raise ValueError(f"impairment {part.strip()!r}: want key=value with one of {known}")
            name, read = _KEYS[name]
            for direction in [prefix] if prefix else list(directions):
                change: dict[str, Any] = {name: read(part.strip(), value)}
                directions[direction] = replace(directions[direction], **change)
        return cls(**directions)


def _number(units: dict[str, float]) -> Callable[[str, str], float]:
    def read(part: str, value: str) -> float:
        match = re.fullmatch(r"([0-9]*\.?[0-9]+(?:e-?[0-9]+)?)([a-zA-Z%]*)", value)
        if match is None or match[2] not in units:
            known = ", ".join(filter(None, units))
            raise ValueError(f"impairment {part!r}: want a number, optionally with one of {known}")
        return float(match[1]) * units[match[2]]

    return read


def _whole(part: str, value: str) -> int:
    try:
        return int(value, 0)
    except ValueError:
        raise ValueError(f"impairment {part!r}: want a whole number") from None


_KEYS: dict[str, tuple[str, Callable[[str, str], float]]] = {
    "loss": ("loss", _number(_COUNT_UNITS)),
    "duplicate": ("duplicate", _number(_COUNT_UNITS)),
    "reorder": ("reorder", _number(_COUNT_UNITS)),
    "corrupt": ("corrupt", _number(_COUNT_UNITS)),
    "delay": ("delay_s", _number(_TIME_UNITS)),
    "jitter": ("jitter_s", _number(_TIME_UNITS)),
    "reorder_delay": ("reorder_s", _number(_TIME_UNITS)),
    "rate": ("rate_bps", _number(_COUNT_UNITS)),
    "burst": ("burst_bytes", _whole),
    "queue": ("queue_packets", _whole),
    "seed": ("seed", _whole),
}


class LinkModel(ctypes.Structure):
    """`Impairments` in whole numbers, as the engine uses them: the C struct ``engine_impairments``.

    Probabilities are thresholds for a 64-bit random number.
    """

    _fields_ = tuple(
        (name, ctypes.c_uint64)
        for name in (
            *("loss", "duplicate", "reorder", "corrupt", "delay_ns", "jitter_ns", "reorder_ns"),
            *("rate_bps", "burst_bytes", "seed", "queue_packets"),
        )
    )

    @classmethod
    def of(cls, impairments: Impairments, *, seed: int, port: int, direction: str) -> LinkModel:
        """Return the impairments of one direction of a port in whole numbers.

        Args:
            impairments: The impairments of the port.
            seed: The switch's seed.
            port: Number of the port.
            direction: "rx" or "tx".
        """
        base = seed if impairments.seed is None else impairments.seed
        digest = hashlib.blake2b(f"{base}/{port}/{direction}".encode(), digest_size=8).digest()
        return cls(
            loss=threshold(impairments.loss),
            duplicate=threshold(impairments.duplicate),
            reorder=threshold(impairments.reorder),
            corrupt=threshold(impairments.corrupt),
            delay_ns=round(impairments.delay_s * 1e9),
            jitter_ns=round(impairments.jitter_s * 1e9),
            reorder_ns=round(impairments.reorder_s * 1e9),
            rate_bps=round(impairments.rate_bps),
            burst_bytes=impairments.burst_bytes,
            seed=int.from_bytes(digest, "little"),
            queue_packets=impairments.queue_packets,
        )


def threshold(probability: float) -> int:
    """Return the number below which a random 64-bit number is with this probability."""
    return min(int(probability * 2**64), _ALWAYS)


def _counter(meaning: str) -> int:
    """Return a dataclass field that starts at 0; `meaning` is the sentence that `meanings` returns for it."""
    count: int = field(default=0, metadata={"meaning": meaning})
    return count


@dataclass(slots=True)
class PortStatistics:
    """Counters of the frames at one port. Only ``rx_bytes`` and ``tx_bytes`` count bytes."""

    rx_packets: int = _counter("Frames that arrived, before impairments.")
    rx_bytes: int = _counter("Bytes of the frames that arrived.")
    rx_lost: int = _counter("Arriving frames that an impairment dropped.")
    rx_corrupted: int = _counter("Arriving frames that an impairment corrupted.")
    rx_duplicated: int = _counter("Arriving frames that an impairment duplicated.")
    rx_reordered: int = _counter("Arriving frames that an impairment held back.")
    rx_queue_full: int = _counter(
        "Arriving frames dropped because the queue of the port's rate limit was full."
    )
    rx_malformed: int = _counter(
        "Frames that were empty, longer than 9216 bytes, or offloaded superframes that cannot be split."
    )
    rx_socket_full: int = _counter(
        "Frames dropped by the kernel because the switch was too slow; a superframe counts once."
    )
    rx_no_program: int = _counter("Frames that arrived before a program was loaded.")
    rx_stranger: int = _counter(
        "Datagrams dropped because they did not come from the UDP port's peer; not in rx_packets."
    )
    ingress_dropped: int = _counter("Packets that arrived at this port and were dropped by the program.")
    egress_dropped: int = _counter("Packets for this port that the program dropped in egress.")
    tx_packets: int = _counter("Frames that left the port.")
    tx_bytes: int = _counter("Bytes of the frames that left the port.")
    tx_lost: int = _counter("Leaving frames that an impairment dropped.")
    tx_corrupted: int = _counter("Leaving frames that an impairment corrupted.")
    tx_duplicated: int = _counter("Leaving frames that an impairment duplicated.")
    tx_reordered: int = _counter("Leaving frames that an impairment held back.")
    tx_queue_full: int = _counter("Frames dropped because the port's egress queue was full.")
    tx_blocked: int = _counter(
        "Frames dropped because the socket did not accept them, or because this memory port was full."
    )
    tx_no_peer: int = _counter("Frames dropped because no peer has sent to this UDP port yet.")
    tx_too_long: int = _counter("Frames dropped because they were longer than the interface's MTU.")


@dataclass(slots=True)
class SwitchStatistics:
    """Counters of dropped packets that no port's counters include."""

    no_port: int = _counter("Packets sent to a port that does not exist.")
    no_group: int = _counter("Packets multicast to a group, or cloned to a session, that does not exist.")
    loops: int = _counter("Packets dropped because they were resubmitted, recirculated or cloned too often.")
    overruns: int = _counter("Delayed frames dropped because the memory for delayed frames was full.")
    unloaded: int = _counter("Packets dropped from egress queues when another program was loaded.")


PORT_COUNTERS = [f.name for f in fields(PortStatistics)]
SWITCH_COUNTERS = [f.name for f in fields(SwitchStatistics)]


def meanings(statistics: type[PortStatistics] | type[SwitchStatistics]) -> dict[str, str]:
    """Return a sentence that describes each counter, by the counter's name, in the order of the fields."""
    return {each.name: each.metadata["meaning"] for each in fields(statistics)}
