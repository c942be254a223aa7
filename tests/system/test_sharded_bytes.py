"""Sharded training under torchrun: gloo's losses, no call of gloo, and the fewest bytes on each link."""

from __future__ import annotations

import pytest

from benchmarks.training.sharded import PACKET_BYTES, both
from tests.effort import if_thorough
from tests.extras import needs
from tests.system.command import TORCHRUN


@needs("torch")
@pytest.mark.slow
@pytest.mark.parametrize(
    ("training", "replicas"), [("HSDP", 2), pytest.param("FSDP2", 1, marks=if_thorough())]
)
def test_links_carry_the_least_that_calls_need_and_a_vote_for_each_small_sum(
    training: str, replicas: int
) -> None:
    gloo, ina, rows = both(training, replicas, epochs=1, torchrun=TORCHRUN)
    assert ina.losses == pytest.approx(gloo.losses, abs=1e-5)
    assert len(gloo.losses) == 1
    assert ina.paths == ["switch"]
    groups = {(row.rank, row.group) for row in rows}
    assert groups == {(rank, group) for group in ina.jobs.values() for rank in group}, "each port is counted"
    for row in rows:
        for least, found in (
            (row.least.up, row.captured.lanes.up),
            (row.least.down, row.captured.lanes.down),
        ):
            votes = (found - least) / PACKET_BYTES
            assert 0 <= votes <= row.sums, row
