"""Packets as the numpy core reads and writes them, and the arithmetic on their lanes."""

from __future__ import annotations

from collections import namedtuple
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hostlib import wire
from hostlib.fallback.config import Count
from tests.twins.fallback_store import Entry, Job, Piece

_QUIET_NAN = 0x7FC00000


Header = namedtuple(
    "Header",
    "version_kind flags job psn bitmap fan_in priority exponent epoch valid lanes tag node target",
)
"""The fields of an INA header, in the order of `wire.HEADER_DTYPE`."""


def header_of(job: Job, entry: Entry, kind: int, index: int, bitmap: int, flags: int) -> NDArray[Any]:
    """Return the header of a packet about an entry, as an array of one; without lanes."""
    header = np.zeros(1, wire.HEADER_DTYPE)
    header["version_kind"] = wire.version_kind(kind)
    header["flags"] = flags
    header["job"] = job.id
    header["psn"] = entry.psn
    header["bitmap"] = bitmap
    header["fan_in"] = len(job.nodes[index].children)
    header["priority"] = entry.priority
    header["exponent"] = entry.exponent
    header["epoch"] = job.epoch
    header["tag"] = entry.tag
    header["node"] = job.nodes[index].id
    header["target"] = job.asked_rank(index, bitmap) if kind == wire.KIND_REMINDER else entry.target
    return header


def is_udp(prefixes: NDArray[Any]) -> NDArray[np.bool_]:
    """Return a mask of the prefixes (`wire.PREFIX_DTYPE`) that are UDP over plain IPv4, no fragments."""
    plain: NDArray[np.bool_] = (
        (prefixes["ether_type"] == wire.TYPE_IPV4)
        & (prefixes["ip_version_ihl"] == 0x45)
        & (prefixes["ip_fragment"] & 0x1FFF == 0)
        & (prefixes["ip_protocol"] == wire.PROTO_UDP)
    )
    return plain


def is_ours(frame: NDArray[Any]) -> bool:
    """Whether a frame is UDP over plain IPv4 from or to the INA port: nothing else is for us."""
    prefix = np.frombuffer(frame[: wire.FRAME_PREFIX_BYTES].tobytes(), wire.PREFIX_DTYPE)
    ports = (prefix["udp_src"][0], prefix["udp_dst"][0])
    return bool(is_udp(prefix)[0]) and wire.INA_UDP_PORT in ports


def refusal(job: Job, header: Header, kind: int, lanes: int, lane_bytes: int) -> Count | None:
    """Return why a packet of a known job cannot be used, None if it can."""
    if header.epoch != job.epoch:
        return Count.WRONG_EPOCH
    is_raw = bool(header.flags & wire.FLAG_RAW)
    is_bare = header.lanes == 0 and not is_raw
    if (header.lanes != lanes and not is_bare) or header.valid & ~wire.VALID_INT32 > lanes:
        return Count.BAD_LANES
    if header.valid & wire.VALID_INT32 and not is_raw:
        return Count.BAD_LANES
    if lane_bytes < 4 * header.lanes:
        return Count.BAD_LENGTH
    index = job.node_index.get(header.node)
    if index is None:
        return Count.WRONG_NODE
    if kind == wire.KIND_PARTIAL:
        node = job.nodes[index]
        if not header.bitmap or header.bitmap & ~node.full:
            return Count.FOREIGN_BITS
        if header.flags & wire.FLAG_RAW and (header.bitmap & (header.bitmap - 1) or rank_of(job, header) < 0):
            return Count.FOREIGN_BITS
        if header.fan_in != len(node.children):
            return Count.WRONG_FAN_IN
        if job.is_stale(header.psn):
            return Count.STALE
    return None


def rank_of(job: Job, header: Header) -> int:
    """Return the rank of a contribution of one bit, negative if it is a node's."""
    return job.nodes[job.node_index[header.node]].children[header.bitmap.bit_length() - 1]


def can_be_repaired(entry: Entry) -> bool:
    """Whether a finished entry overflowed, and has not been repaired."""
    bad = wire.FLAG_OVERFLOW | wire.FLAG_RAW | wire.FLAG_DISAGREE
    return entry.flags & bad == wire.FLAG_OVERFLOW


def add(entry: Entry, piece: Piece, lanes: NDArray[np.int32]) -> None:
    """Add lanes to those of a piece; note in the entry if some sum left the int32 range."""
    before = piece.lanes.copy()
    piece.lanes += lanes  # wraps
    if ((piece.lanes ^ before) & (piece.lanes ^ lanes) < 0).any():
        entry.flags |= wire.FLAG_OVERFLOW


def raw_sum(ordered: list[NDArray[np.int32]], *, is_int: bool) -> NDArray[np.int32] | None:
    """Add raw values up in order, rounded once; None if an int32 sum leaves the range."""
    if is_int:
        total: NDArray[np.int64] = np.asarray(ordered).sum(axis=0, dtype=np.int64)
        fits = (total == total.astype(np.int32)).all()
        return total.astype(np.int32) if fits else None
    with np.errstate(all="ignore"):
        double = ordered[0].view(np.float32).astype(np.float64)
        for lanes in ordered[1:]:
            double = double + lanes.view(np.float32)
        single = double.astype(np.float32)
    bits = single.view(np.int32)
    bits[np.isnan(single)] = _QUIET_NAN
    return bits


def swapped(data: NDArray[Any]) -> NDArray[np.int32]:
    """Return big-endian lanes in the byte order of the machine."""
    return data.view(">i4").astype(np.int32)
