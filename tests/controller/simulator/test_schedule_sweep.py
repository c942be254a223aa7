from __future__ import annotations

import json
import os
import signal
import statistics
import threading
import time
from pathlib import Path

import pytest

from benchmarks.replicas import MURI
from benchmarks.schedulers.trace_files import SAMPLE as TRACE
from controller.interrupts import delay_interrupts
from controller.policies.family import SimulationConfig
from controller.policies.scheduling import BadSpec
from controller.simulator.plots import cdf, means
from controller.simulator.pool import run_all
from controller.simulator.runs import SimulationFailed, SimulationTask, Source, run
from controller.vocabulary import Cluster
from tests.controller.simulator.commands import schedule

SMALL = ("--generate", 25, "--nodes", 1, "--policy", "fifo,srtf")


def test_points_are_means_of_single_simulations(tmp_path: Path) -> None:
    output = tmp_path / "sweep.json"
    ran = schedule(
        "sweep", *SMALL, "--loads", "0.5,2", "--seeds", "0-2", "--processes", 1, "--json", "--output", output
    )
    assert json.loads(output.read_text()) == ran.json
    assert [(point["policy"], point["load"], point["seeds"]) for point in ran.json["points"]] == [
        ("fifo", 0.5, 3),
        ("srtf", 0.5, 3),
        ("fifo", 2.0, 3),
        ("srtf", 2.0, 3),
    ]
    alone = [
        schedule("simulate", *SMALL, "--load", 2, "--seed", seed, "--processes", 1, "--json").json["metrics"]
        for seed in range(3)
    ]
    jcts = [metrics["srtf"]["avg_jct_s"] for metrics in alone]
    last = ran.json["points"][-1]
    assert last["mean"]["avg_jct_s"] == pytest.approx(statistics.fmean(jcts))
    assert last["spread"]["avg_jct_s"] == pytest.approx(statistics.stdev(jcts))


def test_a_table_and_a_plot_from_two_processes(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    plot = tmp_path / "sweep.svg"
    ran = schedule(
        "sweep", "--trace", TRACE, "--nodes", 2, "--policy", f"{MURI}:srtf,{MURI}:srsf",
        "--loads", "0.5,1,2", "--processes", 2, "--plot", plot,
    )  # fmt: skip
    assert ran.code == 0
    assert ran.out.count("benchmarks.replicas.muri:srsf") == 3
    assert "benchmarks.replicas.muri:srsf" in plot.read_text()


@pytest.mark.slow
def test_a_ray_cluster_gives_the_same_figures(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("ray")
    monkeypatch.setenv("HOME", str(tmp_path))  # where a local Ray leaves a token, which later clusters want
    arguments = ("sweep", *SMALL, "--loads", "0.5,2", "--seeds", "0-1", "--json")
    assert schedule(*arguments, "--ray").json == schedule(*arguments, "--processes", 1).json


@pytest.mark.parametrize("processes", [1, 2])
def test_what_fails_in_another_process_fails_here_as_well(processes: int) -> None:
    around = SimulationConfig(Cluster.uniform(1, 4))
    source = Source(count=10, kind="benchmarks.replicas.muri")
    tasks = [
        SimulationTask("srtf", source, around),
        SimulationTask("muri-s", source, around),
        SimulationTask("benchmarks.replicas.muri:srtf", source, around),
    ]
    tasks[1] = SimulationTask("muri-s", Source(TRACE), around)
    with pytest.raises(SimulationFailed, match="asks for 16 GPUs; the cluster has 4") as caught:
        run_all(tasks, processes=processes)
    assert caught.value.exit_code == 2


def test_progress_reaches_the_end_and_never_goes_back() -> None:
    seen: dict[int, list[float]] = {}
    tasks = [
        SimulationTask(name, Source(count=30), SimulationConfig(Cluster.uniform(1, 8)))
        for name in ("fifo", "srtf")
    ]
    for processes in (1, 2):
        seen.clear()
        run_all(
            tasks, processes=processes, report=lambda number, part: seen.setdefault(number, []).append(part)
        )
        assert sorted(seen) == [0, 1]
        for parts in seen.values():
            assert parts == sorted(parts)
            assert parts[-1] == 1.0


def test_no_task_no_outcome_and_no_negative_processes() -> None:
    assert run_all([]) == []
    with pytest.raises(ValueError, match="-1 processes"):
        run_all([], processes=-1)


def test_an_unknown_policy_is_a_matter_of_usage() -> None:
    with pytest.raises(SimulationFailed, match="'nobody' is unknown") as caught:
        run(SimulationTask("nobody", Source(count=1), SimulationConfig(Cluster.uniform(1, 8))))
    assert caught.value.exit_code == 2
    with pytest.raises(BadSpec, match="a load of inf"):
        Source(load=float("inf"))


def test_curves() -> None:
    assert cdf([]) == []
    assert cdf([2.0, 2.0]) == [(2.0, 0.5), (2.0, 1.0)]
    assert means([], [], 5.0) == []
    assert means([5.0], [1.0], 5.0) == []
    # 1 for two seconds, 3 for one, 0 for one; bins of a second and a third
    found = means([0.0, 2.0, 3.0], [1.0, 3.0, 0.0], 4.0, bins=3)
    assert [value for _, value in found] == pytest.approx([1.0, (2 / 3 + 3 * 2 / 3) / (4 / 3), 3 / 4])
    assert sum(value for _, value in found) * 4 / 3 == pytest.approx(5.0)


def test_an_interrupt_that_another_thread_sees_waits_until_all_processes_have_started() -> None:
    """It came between a process and what it was to be told: that one ended with a traceback."""
    ended = threading.Event()
    other = threading.Thread(target=ended.wait)  # does not block the signal, as a progress bar's
    other.start()
    steps = []
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # in the background it may be ignored

    def start() -> None:
        with delay_interrupts():
            os.kill(os.getpid(), signal.SIGINT)
            time.sleep(0.01)  # here the interpreter would raise
            steps.append("all started")

    try:
        with pytest.raises(KeyboardInterrupt):
            start()
    finally:
        signal.signal(signal.SIGINT, before)
        ended.set()
        other.join()
    assert steps == ["all started"]
