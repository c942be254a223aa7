from __future__ import annotations

import hashlib
import math
import os
import random
import subprocess
from pathlib import Path

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
from tests.controller.policies.grouping.cases import exact, table_of, total


@settings(deadline=None, max_examples=effort.cases(60))
@given(st.integers(0, 14), st.integers(0, 10**6), st.sampled_from([0, 1, 3]))
def test_matchings_are_valid_and_of_maximum_weight(count: int, seed: int, distinct: int) -> None:
    table = table_of(count, seed, distinct)
    partner = dense_matching(table.tolist())
    pairs = [(u, v) for u, v in enumerate(partner) if u < v]
    assert all(partner[v] == u for u, v in pairs)
    assert total(table, pairs) == pytest.approx(exact(table))


TIES = {
    (0, False): "f7a44793aa27a667",
    (1, False): "f755065358124f12",
    (2, False): "53419d222b773c89",
    (5, False): "6c5b30dc88c8ed82",
    (1, True): "498825122f9263f8",
    (2, True): "ba4e17624489ee14",
    (5, True): "22c3bbb61cc45cf7",
}
"""Which of many maximum matchings are found, by numbers of weights (0: all differ) and whether one half of
the table is off by the last bit: hashes of what the same search gave in Python, written by function."""


def drawn(count: int, seed: int, distinct: int, rounded: bool) -> list[list[float]]:
    rng = random.Random(seed)
    values = [rng.random() for _ in range(distinct or count * count)]
    table = [[0.0] * count for _ in range(count)]
    for u in range(count):
        for v in range(u):
            weight = rng.choice(values) if rng.random() < 0.8 else 0.0
            table[u][v], table[v][u] = weight, math.nextafter(weight, 1.0) if rounded and weight else weight
    return table


@pytest.mark.parametrize("kind", TIES)
def test_ties_break_as_in_the_public_code(kind: tuple[int, bool]) -> None:
    tables = (drawn(2 + seed % 39, seed, *kind) for seed in range(60))
    found = (
        bytes(partner + 1 for partner in dense_matching(table)) for table in tables if any(map(any, table))
    )
    assert hashlib.sha256(b"".join(found)).hexdigest()[:16] == TIES[kind]


@pytest.mark.parametrize("seed", range(3))
def test_random_graphs_leave_the_sanitizers_silent(tmp_path: Path, seed: int) -> None:
    driver = tmp_path / "driver"
    flags = ("-std=gnu11", "-g", "-O1", "-Wall", "-Wextra", "-Werror", "-fsanitize=address,undefined")
    sources = (str(muri.SOURCE), str(Path(__file__).with_name("blossom_fuzz.c")))
    compiler = [os.environ.get("CC", "cc"), *flags, "-fno-sanitize-recover=all", "-o", str(driver)]
    try:
        built = subprocess.run([*compiler, *sources, "-lm"], capture_output=True, text=True)
    except OSError:
        pytest.skip("no C compiler")
    if "cannot find" in built.stderr:  # the linker: there are no sanitizers
        pytest.skip("the C compiler has no sanitizers here")
    assert (built.returncode, built.stderr) == (0, "")
    done = subprocess.run([str(driver), str(seed)], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")


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
