from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.replicas.muri import muri
from benchmarks.replicas.muri.muri import dense_matching
from controller.policies.family import SimulationConfig
from controller.policies.scheduling.errors import SchedulingError
from controller.simulator.runs import SimulationFailed, SimulationTask, Source, run
from controller.vocabulary import Cluster
from tests import effort
from tests.benchmarks.replicas import matching_oracle
from tests.controller.policies.grouping.cases import exact, table_of, total


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


def test_without_a_compiler_it_is_said_what_is_missing(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("CC", "nobody-has-this-compiler")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))  # what another compiler has built would serve
    muri.library.cache_clear()
    with pytest.raises(SchedulingError, match="simulator: no C compiler: nobody-has-this-compiler is not on"):
        dense_matching([[0, 1], [1, 0]])
    source = Source(count=30, load=3, kind="benchmarks.replicas.muri")
    with pytest.raises(
        SimulationFailed,
        match=r"benchmarks\.replicas\.muri:muri-s: the matching of Muri's public simulator: no C",
    ) as caught:
        run(
            SimulationTask("benchmarks.replicas.muri:muri-s", source, SimulationConfig(Cluster.uniform(1, 2)))
        )
    assert caught.value.exit_code == 1
