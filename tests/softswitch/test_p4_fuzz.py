"""A few cases of ``python -m benchmarks.p4.p4_fuzz``, of each kind; it is run for longer by hand."""

import random
from pathlib import Path

import pytest

from benchmarks.p4.p4_fuzz import messages
from benchmarks.p4.p4_fuzz.programs import damaged, programs, tried
from benchmarks.p4.p4_fuzz.watch import Defect, Job, watched
from softswitch.engine.build import sanitizer_environment
from softswitch.engine.pipeline import BuildFailed, NoCompiler
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


def test_any_frames_leave_the_sanitizers_silent() -> None:
    try:
        sanitizer_environment()
    except (NoCompiler, BuildFailed) as error:
        pytest.skip(str(error))
    job = Job("packets", 1, FOLDER / "for_loops")
    assert [outcome for _, outcome in watched(job, cases=2, until_s=600)] == ["frames left"] * 2


def test_any_messages_get_a_status() -> None:
    assert messages.cases(1, FOLDER / "basic_tables")(0) == "served"


def test_a_defect_is_told_with_what_tries_it_again(tmp_path: Path) -> None:
    job = Job("programs", 7, tmp_path)
    with pytest.raises(Defect, match="IndexError") as caught:  # there is no program in that folder
        list(watched(job, first=3, until_s=600))
    assert job.again(caught.value.number) == (
        f"python -m benchmarks.p4.p4_fuzz programs --seed 7 --first 3 --cases 1 --corpus {tmp_path}"
    )
