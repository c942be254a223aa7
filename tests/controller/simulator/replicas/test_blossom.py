from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from controller.scheduling.errors import NotCompiled
from controller.simulator.families.base import SimulationConfig
from controller.simulator.replicas.muri import blossom
from controller.simulator.replicas.muri.blossom import dense_matching
from controller.simulator.runs import RunFailed, Source, Task, run
from controller.vocabulary import Cluster
from tests import effort
from tests.controller.grouping.cases import exact, table_of, total
from tests.controller.simulator.replicas import matching_oracle


@settings(deadline=None, max_examples=effort.cases(60))
@given(st.integers(0, 14), st.integers(0, 10**6), st.sampled_from([0, 1, 3]))
def test_matchings_are_valid_and_of_maximum_weight(count: int, seed: int, distinct: int) -> None:
    table = table_of(count, seed, distinct)
    partner = dense_matching(table.tolist())
    pairs = [(u, v) for u, v in enumerate(partner) if u < v]
    assert all(partner[v] == u for u, v in pairs)
    assert total(table, pairs) == pytest.approx(exact(table))


@settings(deadline=None, max_examples=effort.cases(300))
@given(st.integers(1, 40), st.integers(0, 10**6), st.sampled_from([0, 1, 2, 5]), st.booleans())
def test_ties_break_as_in_python(count: int, seed: int, distinct: int, rounded: bool) -> None:
    table = table_of(count, seed, distinct)
    if rounded:  # one half of the table off by the last bit
        table = np.where(np.tri(count, dtype=bool), np.nextafter(table, 1.0) * (table > 0), table)
    if table.any():
        assert dense_matching(table.tolist()) == matching_oracle.dense_matching(table.tolist())


def test_without_the_library_it_is_said_what_is_missing(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(blossom, "LIBRARY", tmp_path / "_blossom.so")
    with pytest.raises(NotCompiled, match=r"needs _blossom.so: install ina where there is a C compiler"):
        dense_matching([[0, 1], [1, 0]])
    source = Source(count=30, load=3, kind="muri-replica")
    with pytest.raises(
        RunFailed, match="muri-replica:muri-s: the matching of Muri's public simulator needs"
    ) as caught:
        run(Task("muri-replica:muri-s", source, SimulationConfig(Cluster.uniform(1, 2))))
    assert not caught.value.usage
