""" """

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.schedulers.synergy import draw
from controller.policies.scheduling.synergy.allocators import top_up, tune
from controller.policies.scheduling.synergy.demand import BadMatrix, Servers, ServerShape
from controller.policies.scheduling.synergy.opt import opt
from controller.policies.scheduling.synergy.profiling import (
    TASKS,
    Dataset,
    MadeUpTask,
    model_profiles,
    profile,
    profile_all,
)

MEMORY = [20, 62.5, 125, 250]


def build(task: MadeUpTask, max_cpus: int = 24, **options: float):
    return profile(
        task.samples_per_s,
        max_cpus=max_cpus,
        memory_gb=MEMORY,
        dataset=task.dataset,
        bandwidth_mbps=62.5,
        **options,
    )


@pytest.mark.parametrize("task", TASKS.values(), ids=TASKS.keys())
def test_the_profile_is_close_to_measuring_everything(task: MadeUpTask) -> None:
    found = build(task)
    for cpus in range(1, 25):
        for memory in MEMORY:
            real = min(task.samples_per_s(cpus), task.dataset.storage_bound(memory, 62.5))
            assert found.sensitivity.at(cpus, memory) == pytest.approx(real, rel=0.12)
    assert len(found.measured) <= 12
    assert len(found.measured) < 24 / 2 or task.prepare_ms / task.train_ms > 10


def test_a_job_that_cpus_do_not_help_takes_two_measurements() -> None:
    asked: list[int] = []

    def measure(cpus: int) -> float:
        asked.append(cpus)
        return 100.0

    found = profile(
        measure,
        max_cpus=32,
        memory_gb=[10],
        dataset=Dataset(samples=10, sample_mb=1),
        bandwidth_mbps=50,
    )
    assert sorted(asked) == [1, 32]
    assert found.sensitivity.at(16, 10) == 100.0


@settings(deadline=None)
@given(
    st.floats(0.5, 20),
    st.floats(0.2, 20),
    st.integers(1, 64),
    st.sampled_from([0.05, 0.1, 0.2]),
)
def test_no_count_is_measured_twice_and_the_ends_always_are(
    prepare_ms: float, train_ms: float, max_cpus: int, threshold: float
) -> None:
    asked: list[int] = []
    task = MadeUpTask("", prepare_ms, train_ms, Dataset(1000, 1.0))

    def measure(cpus: int) -> float:
        asked.append(cpus)
        return task.samples_per_s(cpus)

    found = profile(
        measure,
        max_cpus=max_cpus,
        memory_gb=[10],
        dataset=task.dataset,
        bandwidth_mbps=1e9,
        threshold=threshold,
    )
    assert len(set(asked)) == len(asked)
    assert {1, max_cpus} <= set(asked)
    for cpus in range(1, max_cpus + 1):
        # between measurements that differ by less than the threshold, or on a line: never far off
        real = task.samples_per_s(cpus)
        assert found.sensitivity.at(cpus, 10) == pytest.approx(real, rel=2.5 * threshold)


def test_memory_is_a_matter_of_hits_and_bandwidth() -> None:
    data = Dataset(samples=1000, sample_mb=10)  # 10 GB
    assert data.hit_rate(2.5) == 0.25
    assert data.storage_bound(2.5, bandwidth_mbps=75) == 75 / (10 * 0.75)
    assert data.storage_bound(10, bandwidth_mbps=75) == math.inf
    assert data.storage_bound(99, bandwidth_mbps=75) == math.inf


@pytest.mark.parametrize("value", [0.0, -1.0, math.nan, math.inf])
def test_a_measurement_that_is_no_throughput_is_refused(value: float) -> None:
    with pytest.raises(BadMatrix, match="the throughput measured with 4 CPUs is"):
        profile(
            lambda cpus: value,
            max_cpus=4,
            memory_gb=[1],
            dataset=Dataset(1, 1),
            bandwidth_mbps=1,
        )


@pytest.mark.parametrize(
    ("call", "why"),
    [
        (lambda: Dataset(0, 1), "0 samples of 1 MB"),
        (lambda: build(TASKS["text-recurrent"], threshold=1.5), r"threshold 1\.5"),
        (lambda: build(TASKS["text-recurrent"], max_cpus=0), "profiling up to 0 CPUs"),
    ],
)
def test_bad_parameters_are_refused(call: Callable[[], object], why: str) -> None:
    with pytest.raises(BadMatrix, match=why):
        call()


SERVER = ServerShape(gpus=8, cpus=24, memory_gb=500)
KINDS = {k: [n for n, t in TASKS.items() if t.kind == k] for k in ("image", "text", "sound")}


def test_drawn_jobs_fill_the_cluster_and_depend_on_the_seed_only() -> None:
    matrices = profile_all()
    mix = {"image": 20.0, "text": 70.0, "sound": 10.0}
    a, b, c = (
        draw(matrices, KINDS, mix, gpus=64, server=SERVER, seed=seed, sizes=(1, 2, 4)) for seed in (1, 1, 2)
    )
    assert sum(j.gpus for j in a) == 64
    assert a == b
    assert [j.job for j in a] != [j.job for j in c]


def test_topped_up_tune_is_within_a_tenth_of_the_optimum_on_128_gpus() -> None:
    pytest.importorskip("scipy")
    matrices = profile_all()
    mix = {"image": 20.0, "text": 70.0, "sound": 10.0}
    for seed in range(3):
        jobs = draw(matrices, KINDS, mix, gpus=128, server=SERVER, seed=seed)
        best = opt(jobs, Servers.equal(16, SERVER)).plan.throughput
        assert (
            top_up(tune(jobs, Servers.equal(16, SERVER)), Servers.equal(16, SERVER)).throughput >= 0.9 * best
        )
        assert tune(jobs, Servers.equal(16, SERVER)).throughput >= 0.85 * best


def test_made_up_profiles_are_at_their_fastest_with_their_ideal_share() -> None:
    for name, made in model_profiles(SERVER).items():
        matrix = made.sensitivity
        fair, best = matrix.at(3, 62.5), matrix.at(24, 250)
        assert matrix.at(made.ideal_cpus, made.ideal_memory_gb) == best, name
        assert made.speedup == pytest.approx(best / fair)
        assert matrix.at(made.ideal_cpus - 1, made.ideal_memory_gb) < best
