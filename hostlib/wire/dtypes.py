"""Packets of `hostlib.wire` as numpy dtypes; used as ``wire.HEADER_DTYPE`` and so on."""

from __future__ import annotations

import functools
from typing import Any, Final

import numpy as np

PREFIX_DTYPE: Final = np.dtype(
    [
        ("eth_dst", "u1", 6),
        ("eth_src", "u1", 6),
        ("ether_type", ">u2"),
        ("ip_version_ihl", "u1"),
        ("ip_tos", "u1"),
        ("ip_total_len", ">u2"),
        ("ip_id", ">u2"),
        ("ip_fragment", ">u2"),
        ("ip_ttl", "u1"),
        ("ip_protocol", "u1"),
        ("ip_checksum", ">u2"),
        ("ip_src", "u1", 4),
        ("ip_dst", "u1", 4),
        ("udp_src", ">u2"),
        ("udp_dst", ">u2"),
        ("udp_length", ">u2"),
        ("udp_checksum", ">u2"),
    ]
)

HEADER_DTYPE: Final = np.dtype(
    [
        ("version_kind", "u1"),
        ("flags", "u1"),
        ("job", ">u2"),
        ("psn", ">u4"),
        ("bitmap", ">u4"),
        ("fan_in", "u1"),
        ("priority", "u1"),
        ("exponent", "u1"),
        ("epoch", "u1"),
        ("valid", ">u2"),
        ("lanes", ">u2"),
        ("tag", ">u4"),
        ("node", ">u2"),
        ("target", ">u2"),
    ]
)


@functools.cache
def packet_dtype(lanes: int, *, framed: bool) -> np.dtype[Any]:
    """Return the dtype of a packet with `lanes` values, as a whole frame or as a UDP payload.

    One ``np.zeros(n, packet_dtype(...))`` is one allocation for a batch of n packets.
    """
    prefix = PREFIX_DTYPE.descr if framed else []
    return np.dtype([*prefix, *HEADER_DTYPE.descr, ("values", ">i4", (lanes,))])
