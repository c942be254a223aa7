"""Bytes on each worker's link, counted in the frames that pass it: no more lanes than a collective needs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from contextlib import ExitStack
from typing import Any, Literal

import pytest

from hostlib import wire
from hostlib._native import NativeKernel
from softswitch.engine.switch import Switch
from tests.hostlib.cases import LANES
from tests.hostlib.compiled_switch import compiled_from
from tests.hostlib.fabric import SWITCH_PORTS, Does, FabricCase, JobCase, build, carry_out, make_server
from tests.hostlib.reference_switch import Job
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

    with ExitStack() as stack:

        def make_switch(case: FabricCase, jobs: Mapping[int, Job]) -> Switch:
            name: Any = "exclusive" if case.exclusive else "shared"
            return stack.enter_context(compiled_from(jobs, LANES, name, SWITCH_PORTS))

        network = build(case, NativeKernel, make_server(case), make_switch)
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
