"""Bytes on each link, counted in the frames that pass it: no more lanes than a collective needs."""

from __future__ import annotations

from collections import Counter
from typing import Literal

import pytest

from hostlib import wire
from tests.hostlib.cases import LANES
from tests.hostlib.fabric import ABOVE, Does, FabricCase, JobCase, build, carry_out
from tests.hostlib.virtual_network import Impairments

HEADERS = wire.FRAME_PREFIX_BYTES + wire.INA_BYTES
RANKS = 4
PACKETS = 24
"""Of each shard, or of the array that is broadcast."""
SHARD = 4 * LANES * PACKETS
"""Bytes of lanes."""
WHOLE = RANKS * SHARD


def lane_bytes(
    does: Does, kind: Literal["int32", "float32"], exclusive: bool
) -> tuple[Counter[int], Counter[int]]:
    """Return the bytes of lanes that each rank sends and receives in one collective, without any fault.

    The seed is odd: packets that only announce exponents have no lanes (`build`).
    """
    job = JobCase((0,) * RANKS, frozenset(), 64, (PACKETS * LANES,), kind, does=does)
    case = FabricCase((job,), 64, Impairments(), 1, exclusive)
    up: Counter[int] = Counter()
    down: Counter[int] = Counter()

    def count(worker: int, packet: bytes, upwards: bool) -> bool:
        (up if upwards else down)[worker] += len(packet) - HEADERS
        return True

    network = build(case)
    network.on_packet = count
    carry_out(case, network)
    return up, down


@pytest.mark.parametrize("exclusive", [False, True])
@pytest.mark.parametrize(
    ("does", "kind", "up", "down"),
    [
        ("sum", "float32", [SHARD] * RANKS, [SHARD] * RANKS),
        ("sum", "int32", [SHARD] * RANKS, [SHARD] * RANKS),
        ("scatter", "float32", [WHOLE - SHARD] * RANKS, [SHARD] * RANKS),
        ("scatter", "int32", [WHOLE] * RANKS, [SHARD] * RANKS),
        ("gather", "float32", [SHARD] * RANKS, [WHOLE - SHARD] * RANKS),
        ("broadcast", "float32", [SHARD, 0, 0, 0], [0, SHARD, SHARD, SHARD]),
    ],
)
def test_a_link_carries_the_lanes_that_its_rank_gives_and_takes(
    does: Does, kind: Literal["int32", "float32"], up: list[int], down: list[int], exclusive: bool
) -> None:
    sent, received = lane_bytes(does, kind, exclusive)
    assert [sent[rank] for rank in range(RANKS)] == up
    assert [received[rank] for rank in range(RANKS)] == down


Shards = list[tuple[set[int], set[int]]]
"""Of each shard, which has `PACKETS` packets: the ranks that give lanes, and those that take the sum."""


def shards_of(does: Does, kind: str, ranks: int) -> Shards:
    """Return what docs/reference/protocol/collectives.md says of who gives and who takes."""
    everybody = set(range(ranks))
    if does == "scatter":
        return [(everybody if kind == "int32" else everybody - {owner}, {owner}) for owner in everybody]
    if does == "gather":
        return [({owner}, everybody - {owner}) for owner in everybody]
    return [({0}, everybody - {0}) if does == "broadcast" else (everybody, everybody)]


def least(job: JobCase, shards: Shards) -> dict[tuple[int, int], int]:
    """Return the bytes of lanes that links between switches have to carry, by (from, to)."""
    found: dict[tuple[int, int], int] = {}

    def below(switch: int) -> set[int]:
        inner = (below(child) for child, above in ABOVE.items() if above == switch)
        return {rank for rank, place in enumerate(job.places) if place == switch}.union(*inner)

    def contributions(switch: int, givers: set[int]) -> int:
        """Those with lanes that come up from a switch: one of its sum, or all that come to it."""
        own = sum(job.places[rank] == switch for rank in givers)
        inner = [contributions(child, givers) for child, above in ABOVE.items() if above == switch]
        return min(1, own + sum(inner)) if switch in job.sums_at else own + sum(inner)

    for switch in job.used - {0}:
        up = sum(contributions(switch, givers) for givers, _ in shards)
        down = sum(bool(takers & below(switch)) for _, takers in shards)
        found |= {(switch, ABOVE[switch]): SHARD * up, (ABOVE[switch], switch): SHARD * down}
    return found


TWO_RACKS = (1, 1, 1, 3)
"""One rank is alone: of what only it gives, or takes."""
THREE_LEVELS = (0, 0, 1, 2, 2, 3)


@pytest.mark.parametrize("exclusive", [False, True])
@pytest.mark.parametrize(
    ("places", "sums_at"),
    [
        pytest.param(TWO_RACKS, {1, 3}, id="two racks"),
        pytest.param(THREE_LEVELS, {1, 2, 3}, id="three levels"),
        pytest.param(THREE_LEVELS, {2}, id="two of three switches only pass"),
    ],
)
@pytest.mark.parametrize(
    ("does", "kind"),
    [
        *(("sum", "int32"), ("scatter", "int32"), ("scatter", "float32")),
        *(("gather", "float32"), ("broadcast", "float32")),
    ],
)
def test_a_link_between_switches_carries_the_lanes_that_somebody_below_gives_or_takes(
    does: Does, kind: Literal["int32", "float32"], places: tuple[int, ...], sums_at: set[int], exclusive: bool
) -> None:
    job = JobCase(places, frozenset(sums_at), 64, (PACKETS * LANES,), kind, does=does)
    case = FabricCase((job,), 64, Impairments(), 1, exclusive)
    carried: Counter[tuple[int, int]] = Counter()

    def count(sender: str, receiver: str, packet: bytes) -> None:
        if (sender[0], receiver[0]) == ("s", "s"):
            carried[int(sender[1:]), int(receiver[1:])] += len(packet) - HEADERS

    network = build(case)
    network.on_link = count
    carry_out(case, network)
    assert carried == least(job, shards_of(does, kind, len(places)))
