"""A few cases of ``python -m benchmarks.p4_fuzz``; it is run for longer by hand."""

import random

from benchmarks.p4_fuzz import damaged, programs, tried
from tests.p4.make_scripts import FOLDER


def test_damaged_programs_are_refused_or_compile() -> None:
    rng = random.Random(3)
    corpus = programs(FOLDER)
    outcomes = [tried(damaged(rng.choice(corpus), corpus, rng)) for _ in range(6)]
    assert set(outcomes) <= {"error", "unsupported", "compiled"}
    assert "error" in outcomes


def test_undamaged_programs_compile() -> None:
    corpus = programs(FOLDER / "for_loops")
    assert [tried(" ".join((*ours, *own))) for ours, own in corpus] == ["compiled"]
