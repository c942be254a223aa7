"""Sharded training under torchrun: gloo's losses, no call of gloo, and the fewest bytes on each link."""

from __future__ import annotations

import pytest

from tests.effort import if_thorough
from tests.extras import needs
from tests.system.sharded import PACKET_BYTES, both


@needs("torch")
@pytest.mark.slow
@pytest.mark.parametrize("replicas", [2, pytest.param(1, marks=if_thorough())], ids=("HSDP", "FSDP2"))
def test_links_carry_the_least_that_calls_need_and_a_vote_for_each_small_sum(replicas: int) -> None:
    gloo, ina, rows = both(replicas, epochs=1)
    assert ina.losses == pytest.approx(gloo.losses, abs=1e-5)
    assert len(gloo.losses) == 1
    assert ina.paths == ["switch"]
    groups = {(row.rank, row.group) for row in rows}
    assert groups == {(rank, group) for group in ina.jobs.values() for rank in group}, "each port is counted"
    for row in rows:
        for least, found in (
            (row.least.up, row.captured.up),
            (row.least.down, row.captured.down),
        ):
            votes = (found - least) / PACKET_BYTES
            assert 0 <= votes <= row.sums, row
