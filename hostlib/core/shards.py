"""Places of data packets in arrays of shards: as ``place_of`` in ``_native/ina_core.c``."""

from __future__ import annotations

from dataclasses import dataclass

from hostlib.core.state import CoreStruct


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
        turns, in_round = divmod(data, core.turn * core.shards)
        turn = min(core.turn, core.data_packets // core.shards - core.turn * turns)
        shard, in_turn = divmod(in_round, turn)
        number = turns * core.turn + in_turn
    most = core.lanes * core.per_lane
    at = number * most
    return Place(shard, at, min(most, core.length - at))
