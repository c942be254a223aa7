"""State of the window core: one C structure and the arrays it points to, shared by both kernels.

Theory of operation
-------------------
A collective is `total` packets, numbered from 0 (their *index*); packet i carries PSN ``base + i``. The PSNs
that are equal modulo the window W form a *chain*: packet i+W is sent only after the result of packet i has
arrived, so a chain has at most one packet in flight and W chains make the window. For each chain the core
keeps the packet that is next or in flight (`index`), the time at which it was last sent, and `status`, a set
of `Chain` flags. `STEPS` lists all transitions of these flags.

PSNs count modulo `psn_limit`, the largest multiple of the region's size up to 2**32, so that ``psn % size``
and ``psn % W`` continue without a jump where PSNs wrap.

A float32 collective announces the exponent of data packet i in packet i and carries data packet j in packet
``j + lookahead``, scaled by the exponent in result j. Where exponents are `foreseen`
(`hostlib.core.foresight`), there is no lookahead: packet j carries data packet j, scaled by the foreseen
exponent, and announces the exponent of its values. A result with a larger exponent than foreseen has no
values (`misfits`); all ranks see the same, and then sum these packets alone (`picked`). The core writes data
packet j to the output only when no rank can ask for it again, so input and output may be the same memory.

Packets leave in the order in which they become ready, with at most `limit` in flight. The oldest packet
without a result may leave in any case: ranks get results in different orders, and if all ranks were at their
limit they might wait for each other forever.

Jobs with a fallback server (`fallback`) differ in six things.

- No chain runs ahead: packet i leaves only when every packet up to i-W has its result, not packet i-W alone.
  So a contribution to i shows switches and fallback server that packets up to i-W are no longer needed.
- For the last packet that a chain finished the worker keeps an *answer* to reminders: the result, or, if the
  values went to another rank only, its own contribution. One per chain is enough: result i+W needs a
  contribution of every rank, which each sends only after it has got result i; so while a rank lacks result i,
  no rank has finished more on that chain. A reminder of an older packet gets the same answer, which shows
  that no rank needs the older packet any more. Answers outlive collectives.
- A reminder may ask for a packet that is not sent yet: another rank's packet found no slot, while this rank
  is behind, perhaps by a collective. The chain stores the PSN (`wanted`), and later sends that packet as
  after a reminder: past the slots, whose partial sums it takes along, so that it meets the other
  contributions in the server. If it were sent to a slot, it would wait there alone for the next reminder. It
  cannot be sent yet because this rank lacks a result that the other rank has, so the core asks for that
  result at once.
- A result marked OVERFLOW does not finish its packet: the chain becomes `RAW` and sends its values unscaled,
  for a sum in the fallback server.
- A resend, except after a reminder, first asks for a status (QUERY): without it the switch would flush to the
  fallback server a sum that only waits for another rank. Every second resend has no QUERY, because perhaps no
  other rank will add to the sum in the slot: a late copy of a packet can claim a slot after the other ranks
  have their result. Once time-outs are at their longest, a status that only shows an incomplete sum is
  answered at once with a resend without QUERY.
- `COUNTED` is a hint: a sum that holds this rank's contribution may be evicted and then lost. So counted
  packets are resent, too, but slowly, and a status that does not show the contribution clears the flag.

No later packet shows the loss of a collective's last packet. So this packet would wait for a time-out, and so
would the next collective of every rank. Therefore, when no result has arrived for a little while, and the
oldest packet in flight has had a round trip, a *probe* asks for a few packets early. There are at most
`PROBES` probes, each after a longer wait, until a result arrives. A packet that takes the fallback server
because of a collision is late for that reason, so the answer to its probe does not show that other packets
are lost. Before the first result of a collective a rank that has not begun is more likely than a loss, and
the probe asks for the oldest packet only.

A congestion control gets rounds, which must be the same on all ranks. So results count in the order of their
PSNs, collective after collective. The marks of each result are kept for its chain (`marks`) until all earlier
results have arrived. Then `settled` advances over them, until `round_target` results are counted. At the end
of a round a `rule` in C decides at once, or the driver calls `Window.on_round`. Without a fallback server a
chain may run ahead of a lost packet by more than a window: then the marks of its results count together,
sooner than at other ranks, and windows may differ for a while.

A rank reports events that only this rank sees: it marks its contributions, and so the results of every rank.
For each result whose frame shows a long queue (IPv4 ECN: CE) it sets the ECN flag on one packet that it sends
for the first time (`echo`); where the kernel makes the frames, these marks cannot be seen. A packet whose
query had no answer until the next time-out (`LOST`) is resent with ECN. The time for which this rank waits
for the others is in `waits`, and is sent in packets that announce no exponent; results carry the largest time
of all ranks. For a congestion control with `hears_losses` (`tells_losses`) every resent packet has ECN and
COLLISION, which count if it replaces a lost contribution; if a packet was overtaken, and its result lacks one
of these flags, the result was lost on the way to this rank alone, and `echo` reports that, with both flags,
instead of queues.
"""

from __future__ import annotations

import ctypes
import enum
import math
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import DTypeLike, NDArray

from hostlib import wire
from hostlib.core.congestion import SPREAD
from hostlib.wire.encodings import SPARE, Encoding
from hostlib.wire.tree import Tree

NEVER: Final = 2**63 - 1
"""Infinite time: stands for a time-out or deadline that is never reached."""

ALL_WAIT: Final = 254
"""Largest value of a packet's waiting field: this rank waits for every result. In the same
field 255 stands for NaN or infinity (`hostlib.wire.encodings.NONFINITE`)."""

PROBES: Final = 2
"""Maximum number of probes without a result in between; after these, packets are resent only at time-outs."""

_LEAST_TURN: Final = 8
_MOST_TURN: Final = 64
_HEADER_ROOM: Final = 72


class Chain(enum.IntFlag):
    """Flags that make up the status of a chain; 0: the chain's next packet must wait."""

    READY = 0x01
    """In the ready ring."""
    FLIGHT = 0x02
    """The packet was sent, and has no result yet."""
    RESENT = 0x04
    """The packet was sent more than once: its round trip time is ambiguous (Karn)."""
    COUNTED = 0x08
    """A status showed that the sum in the slot includes this rank's contribution."""
    QUEUED = 0x10
    """In the resend ring."""
    QUERY = 0x20
    """The next resend asks for a status."""
    RAW = 0x40
    """The sum overflowed: unscaled values are sent, to the fallback server."""
    ASKED = 0x80
    """The last resend asked for a status."""
    LOST = 0x100
    """No status arrived: the next resend reports that to all ranks, with ECN."""
    PROBE = 0x200
    """The next resend is a probe: too early to count as a request (`ASKED`)."""
    PROBED = 0x400
    """A probe was sent. It was early, so the result may answer an earlier copy of the packet."""


class ChainStep(NamedTuple):
    """How a call of `hostlib.core.window.Kernel` may change the status of a chain."""

    call: str
    """Method of the kernel that changes the status."""
    what: str
    """The event, for the packet that the chain sends next or waits for."""
    needs: int
    """Flags that must be set before the step."""
    lacks: int = 0
    """Flags that must not be set before the step."""
    sets: int = 0
    clears: int = 0


_ANY: Final = 0xFFFF
_ASK: Final = Chain.QUEUED | Chain.QUERY
_DOUBT: Final = Chain.QUERY | Chain.COUNTED
_OVER: Final = Chain.QUEUED | Chain.LOST

STEPS: Final = (
    ChainStep("begin", "in the first window", 0, lacks=_ANY, sets=Chain.READY),
    ChainStep("emit", "sent", Chain.READY, sets=Chain.FLIGHT, clears=Chain.READY),
    ChainStep("emit", "sent again", Chain.QUEUED, Chain.QUERY, Chain.RESENT, _OVER | Chain.ASKED),
    ChainStep("emit", "asked for", _ASK, Chain.PROBE, Chain.RESENT | Chain.ASKED, _OVER | Chain.QUERY),
    ChainStep("emit", "probed for", Chain.PROBE, 0, Chain.RESENT | Chain.PROBED, _ASK | _OVER | Chain.PROBE),
    ChainStep(
        "absorb", "the result arrives; the next packet of the chain must wait", Chain.FLIGHT, clears=_ANY
    ),
    ChainStep("absorb", "the next packet of the chain may be sent", 0, lacks=_ANY, sets=Chain.READY),
    ChainStep("absorb", "a status shows this rank's contribution", Chain.FLIGHT, sets=Chain.COUNTED),
    ChainStep("absorb", "a status lacks this rank's contribution", Chain.FLIGHT, clears=Chain.COUNTED),
    ChainStep(
        "absorb",
        "a status shows this rank's contribution, at the longest time-out",
        Chain.ASKED | Chain.COUNTED,
        sets=Chain.QUEUED,
    ),
    ChainStep("absorb", "its sum overflowed", Chain.FLIGHT, Chain.RAW, Chain.RAW | Chain.QUEUED, _DOUBT),
    ChainStep("absorb", "a reminder", Chain.FLIGHT, sets=Chain.QUEUED, clears=_DOUBT),
    ChainStep("absorb", "overtaken", Chain.FLIGHT, sets=Chain.QUEUED),
    ChainStep(
        "absorb",
        "overtaken by later results; the job has a fallback server",
        Chain.FLIGHT,
        Chain.QUEUED | Chain.ASKED,
        _ASK,
    ),
    ChainStep("time_out", "a probe is due", Chain.FLIGHT, Chain.QUEUED, _ASK | Chain.PROBE),
    ChainStep("time_out", "overdue", Chain.FLIGHT, Chain.QUEUED, _ASK),
    ChainStep(
        "time_out",
        "a status was requested; the job has a fallback server",
        Chain.ASKED,
        Chain.QUEUED,
        Chain.QUEUED,
    ),
    ChainStep(
        "time_out",
        "a status was requested, and none arrived",
        Chain.ASKED,
        Chain.QUEUED | Chain.COUNTED,
        _ASK | Chain.LOST,
    ),
    ChainStep(
        "time_out",
        "no status arrived; the job has a fallback server",
        Chain.ASKED,
        Chain.QUEUED | Chain.COUNTED,
        _OVER,
    ),
)
"""All transitions of a chain's status. A call that processes several packets makes several transitions."""


class Kept(enum.IntFlag):
    """State of the answer that is kept for a chain; 0: there is no answer yet."""

    THERE = 0x01
    QUEUED = 0x02
    """In the answer ring."""
    ASKED = 0x04
    """A reminder requested this packet, not an older one."""


class Mark(enum.IntFlag):
    """Marks of a result, kept until its round counts them.

    The next higher byte is the waiting time that a result with `WAITS` reports.
    """

    ECN = 0x01
    COLLISION = 0x02
    LATE = 0x04
    """The result had no collision, but took more than eight times the shortest round trip."""
    WAITS = 0x08
    """The result carries no exponent. Its exponent field holds the longest time for which any rank waits for
    the others, on a scale to `ALL_WAIT`."""


class Pattern(enum.IntEnum):
    """How a collective combines or moves the values of the ranks; a *shard* is one rank's part."""

    SUM = 0
    """Reduce or allreduce: the sum goes to one rank, or to all."""
    SCATTER = 1
    """Reduce-scatter: the sum of shard r goes to rank r, its owner."""
    GATHER = 2
    """All-gather: each shard goes from its owner to all other ranks. Broadcast: the same, but with only one
    shard, whose owner is any rank."""


class Counter(enum.IntEnum):
    """Counters of the core; STALE to WRONG_EPOCH count packets that the core ignored."""

    SENT = 0
    RESENT = 1
    RESULTS = 2
    STATUSES = 3
    STALE = 4
    BAD_LENGTH = 5
    FOREIGN = 6
    BAD_VERSION = 7
    BAD_KIND = 8
    BAD_LANES = 9
    WRONG_JOB = 10
    WRONG_TAG = 11
    BAD_BITMAP = 12
    """Packets whose bitmap is out of range, or belongs to another node of the tree."""
    WRONG_EPOCH = 13
    REMINDERS = 14
    """Reminders that arrived for packets that this worker has finished or not sent yet."""
    ANSWERS = 15
    """Stored answers that were sent; SENT and RESENT do not include them."""
    REPAIRS = 16
    """Packets whose sum overflowed, so that this rank sent the packets' values unscaled."""
    BYPASSED = 17
    """Packets counted in SENT that carry BYPASS."""
    MARKED = 18
    """Packets counted in RESULTS that carry ECN."""
    COLLIDED = 19
    """Packets counted in RESULTS that carry COLLISION."""


class CoreStruct(ctypes.Structure):
    """``struct ina_core`` of ``_native/ina_core.h``; names, offsets and widths are checked at load."""

    _fields_ = (
        ("header", ctypes.c_uint8 * _HEADER_ROOM),
        ("bare_header", ctypes.c_uint8 * _HEADER_ROOM),
        ("prefix", ctypes.c_uint32),
        ("packet_bytes", ctypes.c_uint32),
        ("lanes", ctypes.c_uint32),
        ("window", ctypes.c_uint32),
        ("most", ctypes.c_uint32),
        ("turn", ctypes.c_uint32),
        ("job", ctypes.c_uint32),
        ("epoch", ctypes.c_uint32),
        ("rank", ctypes.c_uint32),
        ("ranks", ctypes.c_uint32),
        ("fan_in", ctypes.c_uint32),
        ("own_bitmap", ctypes.c_uint32),
        ("result_bitmap", ctypes.c_uint32),
        ("path_length", ctypes.c_uint32),
        ("nodes", ctypes.c_uint32),
        ("fallback", ctypes.c_uint32),
        ("fixed", ctypes.c_uint32),
        ("scale_bits", ctypes.c_int32),
        ("bare", ctypes.c_uint32),
        ("salted", ctypes.c_uint32),
        ("tells_losses", ctypes.c_uint32),
        ("psn_limit", ctypes.c_uint64),
        ("path_nodes", ctypes.c_void_p),
        ("path_bits", ctypes.c_void_p),
        ("node_id", ctypes.c_void_p),
        ("node_bitmap", ctypes.c_void_p),
        ("node_heard_at", ctypes.c_void_p),
        ("index", ctypes.c_void_p),
        ("sent_at", ctypes.c_void_p),
        ("status", ctypes.c_void_p),
        ("exponent", ctypes.c_void_p),
        ("ready_ring", ctypes.c_void_p),
        ("resend_ring", ctypes.c_void_p),
        ("marks", ctypes.c_void_p),
        ("answers", ctypes.c_void_p),
        ("kept", ctypes.c_void_p),
        ("answer_ring", ctypes.c_void_p),
        ("wanted", ctypes.c_void_p),
        ("salts", ctypes.c_void_p),
        ("input", ctypes.c_void_p),
        ("output", ctypes.c_void_p),
        ("length", ctypes.c_int64),
        ("shards", ctypes.c_int64),
        ("stride", ctypes.c_int64),
        ("data_packets", ctypes.c_int64),
        ("lookahead", ctypes.c_int64),
        ("total", ctypes.c_int64),
        ("base", ctypes.c_uint64),
        ("tag", ctypes.c_uint32),
        ("is_float", ctypes.c_uint32),
        ("average", ctypes.c_uint32),
        ("pattern", ctypes.c_uint32),
        ("target", ctypes.c_uint32),
        ("per_lane", ctypes.c_uint32),
        ("feedback", ctypes.c_uint32),
        ("foreseen", ctypes.c_void_p),
        ("found", ctypes.c_void_p),
        ("picked", ctypes.c_void_p),
        ("spare", ctypes.c_uint32),
        ("misfits", ctypes.c_int64),
        ("emitted_bytes", ctypes.c_uint32),
        ("ready_head", ctypes.c_uint32),
        ("ready_count", ctypes.c_uint32),
        ("resend_head", ctypes.c_uint32),
        ("resend_count", ctypes.c_uint32),
        ("answer_head", ctypes.c_uint32),
        ("answer_count", ctypes.c_uint32),
        ("completed", ctypes.c_int64),
        ("in_flight", ctypes.c_int64),
        ("oldest", ctypes.c_int64),
        ("frontier", ctypes.c_int64),
        ("limit", ctypes.c_int64),
        ("room", ctypes.c_int64),
        ("allowed", ctypes.c_int64),
        ("claims", ctypes.c_int64),
        ("claims_next", ctypes.c_int64),
        ("change_at", ctypes.c_int64),
        ("waits", ctypes.c_uint32),
        ("waits_next", ctypes.c_uint32),
        ("late", ctypes.c_int64),
        ("uncollided", ctypes.c_int64),
        ("rule", ctypes.c_void_p),
        ("rule_state", ctypes.c_void_p),
        ("refused", ctypes.c_int32),
        ("refused_status", ctypes.c_int32),
        ("refused_in_flight", ctypes.c_int64),
        ("refused_claims", ctypes.c_int64),
        ("echo", ctypes.c_int64),
        ("progress_at", ctypes.c_int64),
        ("first_at", ctypes.c_int64),
        ("overflow_index", ctypes.c_int64),
        ("nonfinite_index", ctypes.c_int64),
        ("disagree_index", ctypes.c_int64),
        ("srtt", ctypes.c_int64),
        ("rto", ctypes.c_int64),
        ("rto_margin", ctypes.c_int64),
        ("rto_max", ctypes.c_int64),
        ("probe_margin", ctypes.c_int64),
        ("probed_at", ctypes.c_int64),
        ("timeout_at", ctypes.c_int64),
        ("stall_measured", ctypes.c_int64),
        ("newest_sent", ctypes.c_int64),
        ("sent_since", ctypes.c_int64),
        ("tolerance", ctypes.c_int64),
        ("min_rtt", ctypes.c_int64),
        ("settled", ctypes.c_int64),
        ("round_target", ctypes.c_int64),
        ("round_results", ctypes.c_int64),
        ("round_marked", ctypes.c_int64),
        ("round_collided", ctypes.c_int64),
        ("round_lost", ctypes.c_int64),
        ("round_late", ctypes.c_int64),
        ("round_waits", ctypes.c_int64),
        ("backoff", ctypes.c_uint32),
        ("probes", ctypes.c_uint32),
        ("counters", ctypes.c_uint64 * len(Counter)),
    )


def turn_of(in_flight: int, ranks: int) -> int:
    """Return the number of packets of a shard to send in a row, before the next rank's shard.

    Two turns of all ranks fit into the packets in flight, so that the links of all ranks are in use at the
    same time. Within a turn memory is read and written in order: a reduce-scatter of 64 MB between four ranks
    takes half the processor time with the longest turn that it takes with the shortest. All ranks compute the
    same turns.

    Args:
        in_flight: Maximum number of packets of a rank without a result.
        ranks: Number of ranks.
    """
    return min(max(in_flight // (2 * ranks), _LEAST_TURN), _MOST_TURN)


@dataclass(frozen=True, slots=True)
class RtoLimits:
    """Bounds of the retransmission time-out, seconds."""

    initial_s: float = 0.05
    """Time-out until the first round trip has been measured."""
    margin_s: float = 0.005
    """Minimum time by which the time-out exceeds the smoothed round trip time, for delays by the
    scheduler."""
    max_s: float = 0.25
    """Longest time-out: it is not doubled beyond this. Also the interval at which a stalled worker requests a
    status."""
    probe_s: float | None = 0.002
    """Delay of a probe: it is sent when the oldest packet in flight has had no result for the smoothed round
    trip time plus this delay, and no result has arrived for at least this delay. The delay exceeds the
    scheduler's usual delay, because a needless probe costs a few packets. None: no probes."""


@dataclass(frozen=True, slots=True)
class CoreSettings:
    """Settings that are constant during a job."""

    job: int
    rank: int
    size: int
    slots: int
    """Number of slots in the job's region; 0 is possible with a `window`."""
    lanes: int
    endpoints: wire.Endpoints | None
    """Addresses for frames; None: packets are UDP payloads."""
    rto: RtoLimits = RtoLimits()
    first_psn: int = 0
    tree: Tree | None = None
    """Aggregation tree; None: one switch for all ranks."""
    epoch: int = 0
    """Low byte of the job's generation."""
    window: int | None = None
    """Number of chains; None: half of the slots, which is the maximum without a fallback server."""
    fallback: bool = False
    """True if the job has a fallback server."""
    spread: int = SPREAD
    """With a fallback server: length of the range of PSNs that may be under way, as a multiple of the
    packets that may be in flight; 1 for ATP. See `SPREAD`."""
    bare: bool = False
    """True if the switch program accepts packets without lanes, which only announce exponents."""
    salted: bool = False
    """True if the switch program is ``atp.p4``: collided packets try another slot, and packets have no
    priority."""
    numbers: Encoding = "exponent"
    scale_bits: int = 20
    """For the encoding "fixed": values are multiplied by 2**scale_bits."""

    @property
    def window_packets(self) -> int:
        """Number of chains in the window."""
        return self.slots // 2 if self.window is None else self.window

    @property
    def packets_in_flight(self) -> int:
        """Maximum number of packets without a result."""
        return max(1, self.window_packets // self.spread) if self.fallback else self.window_packets

    @property
    def resolved_tree(self) -> Tree:
        """The tree, never None."""
        return self.tree or Tree.star(self.size)

    @property
    def psn_limit(self) -> int:
        """Modulus of PSNs: a multiple of the window, and of the slots if these are assigned by PSN.

        So the order of chains and slots is unbroken where PSNs wrap to 0.
        """
        window = self.window_packets
        return 2**32 - 2**32 % (2 * window if self.fallback else math.lcm(window, self.slots))


class CoreState:
    """The C structure, the arrays behind its pointers, and views of them by name."""

    def __init__(self, settings: CoreSettings) -> None:
        window = settings.window_packets
        tree = settings.resolved_tree
        path = tree.path(settings.rank)
        packet = wire.packet_dtype(settings.lanes, framed=settings.endpoints is not None)
        self.packet_dtype = packet
        node, own_bitmap = path[0]
        most = settings.packets_in_flight
        self.struct = struct = CoreStruct(
            packet_bytes=packet.itemsize,
            lanes=settings.lanes,
            window=window,
            most=most,
            turn=turn_of(most, settings.size),
            job=settings.job,
            epoch=settings.epoch & 0xFF,
            rank=settings.rank,
            ranks=settings.size,
            own_bitmap=own_bitmap,
            fan_in=tree.fan_in(node),
            result_bitmap=tree.result_bitmap,
            path_length=len(path),
            nodes=len(tree.nodes),
            fallback=settings.fallback,
            fixed=settings.numbers == "fixed",
            scale_bits=settings.scale_bits,
            per_lane=1,
            spare=SPARE,
            bare=settings.bare,
            salted=settings.salted,
            psn_limit=settings.psn_limit,
            base=settings.first_psn,
            limit=most,
            claims=most,
            claims_next=most,
            room=most,
            allowed=most,
            rto=round(settings.rto.initial_s * 1e9),
        )
        self.set_limits(settings.rto)

        header = _header_template(settings, settings.lanes)
        struct.prefix = len(header) - wire.INA_BYTES
        ctypes.memmove(struct.header, header, len(header))
        ctypes.memmove(struct.bare_header, _header_template(settings, 0), len(header))

        self.index = self._array("index", window, np.int64)
        self.sent_at = self._array("sent_at", window, np.int64)
        self.status = self._array("status", window, np.uint16)
        self.exponent = self._array("exponent", 2 * window, np.uint8)
        self.ready_ring = self._array("ready_ring", window, np.uint32)
        self.resend_ring = self._array("resend_ring", window, np.uint32)
        self.marks = self._array("marks", window, np.uint16)
        self.path_nodes = self._array("path_nodes", len(path), np.uint32)
        self.path_bits = self._array("path_bits", len(path), np.uint32)
        self.path_nodes[:], self.path_bits[:] = zip(*path, strict=True)
        self.node_id = self._array("node_id", len(tree.nodes), np.uint32)
        self.node_id[:] = list(tree.nodes)
        self.node_bitmap = self._array("node_bitmap", len(tree.nodes), np.uint32)
        self.node_heard_at = self._array("node_heard_at", len(tree.nodes), np.int64)
        keeps = window if settings.fallback else 0
        self.answers = self._array("answers", keeps * packet.itemsize, np.uint8).reshape(
            keeps, packet.itemsize
        )
        self.kept = self._array("kept", keeps, np.uint8)
        self.answer_ring = self._array("answer_ring", keeps, np.uint32)
        self.wanted = self._array("wanted", keeps, np.int64)
        self.wanted[:] = -1
        self.salts = self._array("salts", window if settings.salted else 0, np.uint8)
        self._header: dict[str, int] = {}
        """Values from `set_header`."""
        self.input = self.output = _NO_ARRAY
        self.set_exponents(None, None)

    def set_exponents(
        self,
        found: NDArray[np.uint8] | None,
        foreseen: NDArray[np.uint8] | None,
        picked: NDArray[np.int64] | None = None,
    ) -> None:
        """Set the exponents of the collective's data packets, and keep references to the arrays.

        Args:
            found: Array for the exponents in results; None: they are not stored.
            foreseen: Exponents by which values are scaled; None: the exponents in results.
            picked: Numbers of the packets to send, if exponents are foreseen; None: send all packets.
        """
        self.found, self.foreseen, self.picked = found, foreseen, picked
        struct = self.struct
        struct.found = None if found is None else _address(found)
        struct.foreseen = None if foreseen is None else _address(foreseen)
        struct.picked = None if picked is None else _address(picked)

    def set_arrays(self, source: NDArray[Any], target: NDArray[Any]) -> None:
        """Set the flat arrays that the collective reads and writes, and keep references to them."""
        self.input, self.output = source, target
        self.struct.input = address = _address(source)
        self.struct.output = address if target is source else _address(target)

    def release_arrays(self) -> None:
        """Release the arrays of a complete collective."""
        self.input = self.output = _NO_ARRAY
        self.struct.input = self.struct.output = 0

    def set_header(self, field: str, value: int) -> None:
        """Set a header field of one or two bytes in all further packets."""
        if self._header.get(field) == value:
            return
        dtype, offset, *_ = wire.HEADER_DTYPE.fields[field]  # type: ignore[index]
        start = self.struct.prefix + offset
        for header in (self.struct.header, self.struct.bare_header):
            header[start : start + dtype.itemsize] = value.to_bytes(dtype.itemsize, "big")
        self._header[field] = value

    def set_limits(self, rto: RtoLimits) -> None:
        """Set the limits of time-outs from now on; `initial_s` has no effect after the job's start."""
        struct = self.struct
        struct.rto_margin = round(rto.margin_s * 1e9)
        struct.rto_max = round(rto.max_s * 1e9)
        struct.probe_margin = NEVER if rto.probe_s is None else round(rto.probe_s * 1e9)

    def psn(self, index: int) -> int:
        """Return the PSN of a packet of the collective."""
        return int(self.struct.base + index) % int(self.struct.psn_limit)

    def _array(self, field: str, length: int, dtype: DTypeLike) -> NDArray[Any]:
        array = np.zeros(length, dtype)
        setattr(self.struct, field, array.ctypes.data)
        return array


_NO_ARRAY: Final[NDArray[Any]] = np.empty(0, np.int32)


def _address(array: NDArray[Any]) -> int:
    """Return an array's address; from its buffer if possible, because NumPy's `ctypes` takes longer."""
    if array.size and array.flags.writeable:
        return ctypes.addressof(ctypes.c_char.from_buffer(array))  # type: ignore[arg-type]  # it is a buffer
    return int(array.ctypes.data)


def _header_template(settings: CoreSettings, lanes: int) -> bytes:
    header = np.zeros(1, wire.HEADER_DTYPE)
    header["version_kind"] = wire.version_kind(wire.KIND_GRADIENT)
    header["job"] = settings.job
    header["epoch"] = settings.epoch & 0xFF
    header["node"], header["bitmap"] = settings.resolved_tree.path(settings.rank)[0]
    header["fan_in"] = settings.resolved_tree.fan_in(int(header["node"][0]))
    header["lanes"] = lanes
    prefix = b""
    if settings.endpoints:
        prefix = wire.frame_prefix(settings.endpoints, wire.INA_BYTES + 4 * lanes)
    return prefix + header.tobytes()
