""" """

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from controller.policies.scheduling.synergy.demand import (
    BadDemand,
    BadMatrix,
    Sensitivity,
    ServerShape,
    ShareOption,
    demand,
    read_profiles,
)
from tests.controller.policies.scheduling.synergy.cases import CACHING, HUNGRY, MODEST, SHAPE, job, matrices

HEADER = (
    "cpu_gpu_ratio_dir,model,ideal_cpus,ideal_mem_gb,ideal_storage_mbps,batch,iter_time_s,speedup,"
    "placement_penalty,cpu,tput_mem20,tput_mem60\n"
)
LINES = """\
models,net_1,6,60,60,512,0.5,2.0,1,3,0.1,1.0
models,net_1,6,60,60,512,0.5,2.0,1,6,0.1,2.0
models,net_2,6,60,60,512,0.5,2.0,1,6,0.1
models-4,net_1,6,60,60,512,0.4,1.5,1,4,0.1,1.0
"""


@settings(deadline=None)
@given(matrices(), st.floats(1, 20), st.floats(1, 120), st.floats(0, 5), st.floats(0, 30))
def test_more_resources_never_slow_a_job(
    matrix: Sensitivity, cpus: float, memory: float, more_cpus: float, more_memory: float
) -> None:
    assert matrix.at(cpus + more_cpus, memory + more_memory) >= matrix.at(cpus, memory)


def test_between_grid_points_the_smaller_one_holds() -> None:
    matrix = Sensitivity.build([1, 2], [10, 20], [[1, 2], [3, 4]])
    assert matrix.at(1.5, 19) == 1
    assert matrix.at(2, 20) == 4
    assert matrix.at(0.5, 20) == 0
    assert matrix.at(2, 9) == 0


@pytest.mark.parametrize(
    ("cpus", "memory", "grid", "message"),
    [
        ([], [1], [], "no CPUs axis"),
        ([1], [], [[]], "no memory axis"),
        ([2, 1], [1], [[1], [1]], "the CPUs axis has 1 after 2; want increasing values"),
        ([1, 1], [1], [[1], [1]], "the CPUs axis has 1 after 1"),
        ([0, 1], [1], [[1], [1]], r"the CPUs axis is \[0, 1\]; want positive values"),
        ([1], [math.nan], [[1]], "the memory axis"),
        ([1, 2], [1], [[1]], "1 rows for 2 CPU counts"),
        ([1], [1, 2], [[1]], "1 CPUs: 1 entries for 2 memory sizes"),
        ([1], [1, 2], [[1, -1]], "1 CPUs and 2 GB: throughput -1; want a finite number"),
        ([1], [1], [[math.inf]], "throughput inf"),
        ([1], [1], [[0]], "zero everywhere"),
    ],
)
def test_bad_grids_are_named(
    cpus: list[float], memory: list[float], grid: list[list[float]], message: str
) -> None:
    with pytest.raises(BadMatrix, match=message):
        Sensitivity.build(cpus, memory, grid)


def test_profiles_are_read_by_server_shape(write_file: Callable[[str, str], Path]) -> None:
    path = write_file("m.csv", HEADER + LINES)
    profile = read_profiles(path)["net"]
    assert (profile.iteration_s, profile.speedup, profile.batch) == (0.5, 2.0, 512)
    assert profile.sensitivity.at(6, 60) == 2.0
    assert profile.sensitivity.at(3, 59) == 0.1
    assert read_profiles(path, cpus_per_gpu=4)["net"].iteration_s == 0.4


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "line 1: there is no column 'cpu_gpu_ratio_dir'"),
        (HEADER.replace("speedup,", ""), "line 1: there is no column 'speedup'"),
        (HEADER.replace("tput_mem20,tput_mem60", "x,y"), "there is no column 'tput_mem<GB>'"),
        (HEADER.replace("mem60", "memory"), "line 1, column 'tput_memory': 'ory' is not a number"),
        (HEADER, r"no profile of 3 CPUs per GPU \('models'\)"),
        (HEADER + LINES.replace("3,0.1,1.0", "3,0.1,fast"), "line 2, column 'tput_mem60': 'fast' is not a"),
        (HEADER + LINES.replace("6,0.1,2.0", "6,0.1"), "line 3, column 'tput_mem60': '' is not a number"),
        (HEADER + LINES.replace("6,0.1,2.0", "3,0.1,2.0"), "model 'net': the CPUs axis has 3 after 3"),
    ],
)
def test_bad_files_are_refused_with_line_and_column(
    write_file: Callable[[str, str], Path], text: str, message: str
) -> None:
    path = write_file("m.csv", text)
    with pytest.raises(BadMatrix, match=message):
        read_profiles(path)


def test_the_ideal_is_the_smallest_of_the_fastest() -> None:
    assert job("a", HUNGRY).ideal == ShareOption(6, 25, 2.0)
    assert job("a", HUNGRY).floor == ShareOption(3, 25, 1.0)
    assert job("b", MODEST).ideal == job("b", MODEST).floor == ShareOption(1, 25, 1.0)
    assert job("c", CACHING).ideal == ShareOption(3, 75, 4.0)
    assert job("c", CACHING).floor == ShareOption(1, 25, 1.0)


def test_many_gpus_on_a_server_share_what_it_has() -> None:
    assert job("a", HUNGRY, gpus=2).ideal == ShareOption(6, 25, 2.0)
    assert job("a", HUNGRY, gpus=3).ideal == ShareOption(3, 25, 1.0)
    assert job("a", HUNGRY, gpus=5).ideal == ShareOption(3, 25, 1.0)  # three on one of two servers
    assert job("c", CACHING, gpus=2).ideal == ShareOption(3, 50, 2.0)


def test_a_job_on_two_servers_shares_each_with_half_of_itself() -> None:
    steps = Sensitivity.build([1, 4], [5], [[1], [2]])
    assert [job("s", steps, gpus=gpus).ideal.cpus for gpus in (3, 4, 5, 6, 8)] == [4, 1, 4, 4, 1]


def test_shares_with_less_of_anything_than_the_floor_are_no_options() -> None:
    trade = Sensitivity.build([2, 3], [25, 50], [[1, 2], [2, 2]])  # fewer CPUs do with more memory
    assert [(o.cpus, o.memory_gb) for o in job("t", trade).options] == [(3, 25)]


@settings(deadline=None)
@given(matrices(), st.integers(1, 9))
def test_falling_back_takes_nothing_and_keeps_the_fair_speed(matrix: Sensitivity, gpus: int) -> None:
    found = demand("j", gpus, matrix, SHAPE)
    assert found.floor.speed == 1.0
    assert found.floor.cpus <= SHAPE.fair_cpus
    assert found.floor.memory_gb <= SHAPE.fair_memory_gb
    assert found.floor in found.options
    assert found.ideal in found.options
    for option in found.options:
        assert option.cpus >= found.floor.cpus
        assert option.memory_gb >= found.floor.memory_gb
        assert 1.0 <= option.speed <= found.ideal.speed


@settings(deadline=None)
@given(matrices(), st.integers(1, 4))
def test_no_option_is_beaten_by_a_smaller_one(matrix: Sensitivity, gpus: int) -> None:
    options = demand("j", gpus, matrix, SHAPE).options
    for a in options:
        for b in options:
            smaller = b.cpus <= a.cpus and b.memory_gb <= a.memory_gb
            assert a is b or not (smaller and b.speed >= a.speed)


@pytest.mark.parametrize(
    ("call", "why"),
    [
        (
            lambda: job("x", Sensitivity.build([4, 8], [25], [[1], [2]])),
            "job x does not run with its GPU's share of 3 CPUs and 25 GB",
        ),
        (lambda: ServerShape(0, 1, 1), "a server of 0 GPUs"),
    ],
)
def test_a_job_that_its_share_cannot_run_is_refused(call: Callable[[], object], why: str) -> None:
    with pytest.raises(BadDemand, match=why):
        call()
