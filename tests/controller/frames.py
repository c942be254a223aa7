"""INA frames as the workers and the fallback server of an admission send them."""

from __future__ import annotations

from collections.abc import Sequence

from controller import Admission
from tests.p4.bed import GRADIENT, NONE, REMINDER, Packet

SERVER = 99
"""Number of the fallback server among the senders."""


def gradient(
    admission: Admission, psn: int, rank: int, lanes: Sequence[int], *, flags: int = 0, priority: int = 0
) -> bytes:
    """A contribution as the worker of that rank, a member of the admission, sends it."""
    (member,) = (m for m in admission.members if m.rank == rank)
    packet = Packet(
        *(GRADIENT, flags, admission.job, psn, member.bitmap, admission.fan_in, priority),
        epoch=admission.epoch,
        valid=len(lanes),
        node=admission.node,
        values=tuple(lanes),
    )
    return packet.frame(rank + 1)


def reminder(admission: Admission, psn: int) -> bytes:
    """A reminder of the fallback server for the root."""
    packet = Packet(
        *(REMINDER, 0, admission.job, psn, admission.full_bitmap, admission.fan_in),
        epoch=admission.epoch,
        valid=0,
        values=NONE,
    )
    return packet.frame(SERVER)
