"""Places of data packets in arrays of shards: as ``place_of`` in ``_native/ina_core.c``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from hostlib.core.state import CoreStruct

TURN: Final = 8
"""Packets of a shard in a row, before those of the next: so the links of all ranks are used at the same time.

The same on all ranks, which count packets alike."""


@dataclass(frozen=True, slots=True)
class Place:
    """`count` elements from `at` on of a shard."""

    shard: int
    at: int
    count: int


def place_of(core: CoreStruct, data: int) -> Place:
    """Return the place of a data packet of the collective, by its number."""
    shard, number = 0, data
    if core.shards > 1:
        turns, in_round = divmod(data, TURN * core.shards)
        turn = min(TURN, core.data_packets // core.shards - TURN * turns)
        shard, in_turn = divmod(in_round, turn)
        number = turns * TURN + in_turn
    most = core.lanes * core.per_lane
    at = number * most
    return Place(shard, at, min(most, core.length - at))
