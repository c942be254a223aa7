"""Turns of ranks in several processes: all are measured, and a rank or a library that fails is named."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from ina.bench import baselines
from ina.bench.baselines import Baselines, Library
from ina.bench.turns import MeasuringTurns, joined, processor_s

CONTENDERS = [("ina", "ina"), ("ina", "block16"), ("gloo", "gloo")]


def rank(path: Path, library: str, answer: Callable[[str], float | None]) -> threading.Thread:
    def run() -> None:
        # the turns may end before it has joined
        with contextlib.suppress(ConnectionError), joined(str(path), library) as (turns, tell):
            for name in turns:
                if (elapsed := answer(name)) is None:
                    return
                tell(elapsed, 2 * elapsed)

    thread = threading.Thread(target=run)
    thread.start()
    return thread


def test_the_slowest_rank_counts_and_the_processor_time_of_all(tmp_path: Path) -> None:
    path, order = tmp_path / "turns", list[str]()

    def answer(name: str) -> float:
        order.append(name)
        return {"ina": 1.0, "block16": 2.0, "gloo": 3.0}[name]

    turns = MeasuringTurns(path, CONTENDERS, 1, 2)
    turns.switches = [os.getpid()]
    with turns:
        for thread in [rank(path, library, answer) for library in ("gloo", "ina")]:
            thread.join()
    assert turns.failure is None
    assert order == 3 * ["ina", "block16", "gloo"]  # the first of each does not count
    assert turns.found["block16"].times_s == [2.0, 2.0]
    assert turns.found["gloo"].processor_s == [6.0, 6.0]
    assert min(turns.found["ina"].switch_s) >= 0

    two = MeasuringTurns(tmp_path / "two", [("ina", "ina")], 2, 1)
    with two:
        for thread in [rank(tmp_path / "two", "ina", lambda _, at=at: 1.0 + at) for at in range(2)]:
            thread.join()
    assert (two.found["ina"].times_s, two.found["ina"].processor_s) == ([2.0], [6.0])


def test_a_rank_that_leaves_ends_the_measurement(tmp_path: Path) -> None:
    path = tmp_path / "turns"
    turns = MeasuringTurns(path, CONTENDERS, 1, 2)
    with turns:
        stays = rank(path, "ina", lambda _: 1.0)
        rank(path, "gloo", lambda _: None).join()
        stays.join()  # it is told so
    assert turns.failure == "a rank of gloo ended before its last turn"


def test_an_error_beside_ends_all_turns(tmp_path: Path) -> None:
    path = tmp_path / "turns"
    turns = MeasuringTurns(path, CONTENDERS, 1, 2)
    stays = rank(path, "ina", lambda _: 1.0)
    with pytest.raises(KeyError), turns:
        raise KeyError
    stays.join()


def test_a_launcher_that_fails_is_named_with_its_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fails = Library("Some MPI", "json", "", ("python", "-c", "raise SystemExit('no slots left')"))
    monkeypatch.setattr(baselines, "LIBRARIES", {"mpi": fails})
    others = Baselines()
    turns = MeasuringTurns(tmp_path / "turns", [("mpi", "mpi")], 1, 1, others.failed)
    with others.started(["mpi"], 1, [], tmp_path), turns:
        pass
    assert turns.failure == "Some MPI ended with status 1: no slots left"


def test_processor_time_is_of_all_threads() -> None:
    code = "import threading; work = lambda: (sum(range(4_000_000)), print(flush=True), input())"
    code = f"{code}; threading.Thread(target=work).start()"
    pipe = subprocess.PIPE
    with subprocess.Popen([sys.executable, "-c", code], stdin=pipe, stdout=pipe) as process:
        assert process.stdout is not None
        process.stdout.readline()
        its = processor_s([process.pid])
        assert its > 0.01
        assert processor_s([os.getpid(), process.pid]) > its
