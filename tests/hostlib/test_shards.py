"""The order in which packets of shards are sent: in turns, as long as the packets in flight allow."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hostlib.core.state import CoreStruct, turn_of
from hostlib.core.window import place_of
from tests.hostlib.cases import LANES, MakeKernel
from tests.hostlib.fabric import Does, FabricCase, JobCase, build, carry_out
from tests.hostlib.virtual_network import Impairments


@pytest.mark.parametrize(
    ("in_flight", "ranks", "turn"),
    [(512, 2, 64), (512, 4, 64), (512, 8, 32), (512, 32, 8), (128, 4, 16), (64, 4, 8), (1, 2, 8), (1, 32, 8)],
)
def test_two_turns_of_all_shards_fit_into_what_is_in_flight(in_flight: int, ranks: int, turn: int) -> None:
    assert turn_of(in_flight, ranks) == turn


@given(
    turn=st.integers(1, 70), shards=st.integers(2, 5), of_shard=st.integers(1, 200), last=st.integers(1, 4)
)
def test_every_packet_has_a_place_of_its_own(turn: int, shards: int, of_shard: int, last: int) -> None:
    lanes = 4
    length = lanes * (of_shard - 1) + last
    core = CoreStruct(
        turn=turn, shards=shards, data_packets=shards * of_shard, lanes=lanes, per_lane=1, length=length
    )
    places = [place_of(core, data) for data in range(shards * of_shard)]
    assert {(place.shard, place.at) for place in places} == {
        (shard, lanes * number) for shard in range(shards) for number in range(of_shard)
    }
    assert all(place.count == min(lanes, length - place.at) for place in places)
    firsts = [place for place in places if place.at % (lanes * turn) == 0]
    assert [place.shard for place in firsts] == [*range(shards)] * (len(firsts) // shards)


@pytest.mark.parametrize("exclusive", [False, True])
@pytest.mark.parametrize("does", ["scatter", "gather"])
@pytest.mark.parametrize(("ranks", "window"), [(2, 512), (3, 512), (3, 100)])
def test_long_turns_under_loss(
    make_kernel: MakeKernel, does: Does, ranks: int, window: int, exclusive: bool
) -> None:
    """Shards whose last turn is shorter than the others."""
    job = JobCase((0,) * ranks, frozenset(), window, (150 * LANES + 7,), "float32", does=does)
    impairments = Impairments(0.02, 0.01, 0.01)
    case = FabricCase((job,), 512, impairments, 1, exclusive)
    network = build(case, make_kernel)
    carry_out(case, network)
    in_flight = window if exclusive else window // 8
    assert network.workers[0].window.state.struct.turn == turn_of(in_flight, ranks)
