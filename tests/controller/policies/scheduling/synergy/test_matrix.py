import math
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from controller.policies.scheduling.synergy.demand import BadMatrix, Sensitivity
from controller.policies.scheduling.synergy.matrix_csv import read_profiles
from tests.controller.policies.scheduling.synergy.cases import matrices

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


def test_profiles_are_read_by_server_shape(tmp_path: Path) -> None:
    path = tmp_path / "m.csv"
    path.write_text(HEADER + LINES)
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
def test_bad_files_are_refused_with_line_and_column(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "m.csv"
    path.write_text(text)
    with pytest.raises(BadMatrix, match=message):
        read_profiles(path)
