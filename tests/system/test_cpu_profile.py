"""``ina schedule profile``: a real job, bound to fewer and more CPUs while it runs."""

import json
import os
import re
import sys
from pathlib import Path

import pytest

from controller.policies.scheduling.synergy.demand import (
    BadMatrix,
    ModelProfile,
    Sensitivity,
    read_profiles,
    write_profile,
)
from tests.system.command import here, ina

# An iteration takes 600 ms divided by the CPUs that the thread of its stage may use.
SCALES = """
import os
import re
import sys
import threading
import time
import hostlib as ina
from hostlib import interleave

jobs = threading.Semaphore(0), threading.Semaphore(0)
def work():
    while True:
        jobs[0].acquire()
        time.sleep(0.6 / len(os.sched_getaffinity(0)))
        jobs[1].release()
threading.Thread(target=work, daemon=True).start()

ina.init()
with interleave.join(ina.rank()) as timer:
    for number in range(int(sys.argv[1])):
        with timer.iteration(), timer.stage("cpu"):
            jobs[0].release()
            jobs[1].acquire()
"""


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="needs two CPUs")
def test_a_running_job_is_measured_with_the_cpus_that_it_is_given(tmp_path: Path) -> None:
    out = tmp_path / "matrix.csv"
    words = ["--cpus", 2, "--iterations", 5, "--out", out, "--name", "scales"]
    done = ina("schedule", "profile", *words, "--json", "--", sys.executable, "-c", SCALES, 10_000, status=0)
    rows = json.loads(done.stdout)["jobs"]
    # twice as long, but for what a busy machine adds to both
    assert rows["1"]["iteration_s"] > 1.1 * rows["2"]["iteration_s"] > 1.1 * 0.3
    (found,) = read_profiles(out).values()
    assert found.sensitivity.cpus == (1, 2)
    assert found.sensitivity.at(2, 62.5) == pytest.approx(1 / rows["2"]["iteration_s"], rel=1e-4)


def test_a_job_that_ends_too_soon_says_how_far_it_came() -> None:
    done = ina("schedule", "profile", "--", sys.executable, "-c", SCALES, 4, status=1)
    said = " ".join(done.stderr.split())
    assert re.search(
        r"ended after 4 iterations; want 1\d for this measurement: "
        r"the program ended before the last measurement",
        said,
    )


def test_what_a_profile_needs_is_said_at_once() -> None:
    for words, said in (
        ((), "nothing to run"),
        (
            ("--reads", 5, "--", "true"),
            "--reads 5, --dataset 0: give both, with a data set that is not smaller than the reads",
        ),
        (("--cpus", 4096, "--", "true"), "--cpus 4096: this process may use"),
    ):
        assert said in " ".join(here("schedule", "profile", *words, status=2).stderr.split())


def test_profiles_are_added_to_a_file(tmp_path: Path) -> None:
    path = tmp_path / "m.csv"
    grid = Sensitivity.build([1, 2], [62.5, 125], [[1, 1], [2, 3]])
    for name in "ab":
        write_profile(path, ModelProfile(name, grid, 1, 0.5, 1.5, 2, 125))
    assert [each.sensitivity.throughput for each in read_profiles(path).values()] == [grid.throughput] * 2
    with pytest.raises(BadMatrix, match="has a profile of 'a' in 'models' already"):
        write_profile(path, ModelProfile("a", grid, 1, 0.5, 1.5, 2, 125))
    other = Sensitivity.build([1], [10], [[1]])
    with pytest.raises(BadMatrix, match="line 1: its columns are cpu_gpu_ratio_dir,"):
        write_profile(path, ModelProfile("c", other, 1, 0.5, 1.5, 2, 125))
