"""The runner of published tests: what ranks come to is counted, and one that fails disturbs no other."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from tests.extras import needs
from tests.system.command import ROOT, good

PUBLISHED = """
import os
import unittest

import horovod.torch as hvd
import pytest
import torch
from common import skip_or_fail_gpu_test, temppath


class TorchTests(unittest.TestCase):
    def test_fails_at_one_rank(self):
        self.assertEqual(os.environ["HOROVOD_RANK"], "0")

    def test_is_killed(self):
        os._exit(3)

    @pytest.mark.skip(reason="known")
    def test_is_marked(self):
        raise AssertionError

    def test_needs_a_gpu(self):
        skip_or_fail_gpu_test(self, "no GPU")

    def test_sums(self):
        hvd.init()
        self.assertEqual(hvd.allreduce(torch.ones(2), op=hvd.Sum).tolist(), [2.0, 2.0])
        with temppath() as path:
            self.assertFalse(os.path.exists(path))
        hvd.shutdown()
"""


@needs("torch")
def test_horovods_file_is_run_with_ranks_of_its_own_for_each_test(tmp_path: Path) -> None:
    file, outcomes = tmp_path / "test_torch.py", tmp_path / "outcomes.json"
    file.write_text(PUBLISHED)
    command = [
        sys.executable,
        "-m",
        "benchmarks.training.published_tests",
        "horovod",
        str(file),
        "--json",
        str(outcomes),
    ]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 1, done.stdout + done.stderr
    found = {each["test"]: each for each in json.loads(outcomes.read_text())["outcomes"]["ina"]}
    kinds = {name: each["kind"] for name, each in found.items()}
    assert kinds == {
        "test_fails_at_one_rank": "failed",
        "test_is_killed": "failed",
        "test_is_marked": "skipped",
        "test_needs_a_gpu": "skipped",
        "test_sums": "passed",
    }, found
    assert found["test_fails_at_one_rank"]["why"].startswith("rank 1: Traceback")
    assert "rank 1: ended with status 3" in found["test_is_killed"]["why"]
    assert found["test_needs_a_gpu"]["why"] == "no GPU"


def test_a_file_that_is_not_there_is_named() -> None:
    command = [sys.executable, "-m", "benchmarks.training.published_tests", "horovod", "missing.py"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (1, "")
    assert "missing.py is no file; want test_torch.py of Horovod" in done.stderr


@needs("torch")
def test_calls_of_torch_are_measured_beside_those_of_gloo() -> None:
    command = ["-m", "benchmarks.training.torch_speed", "--turns", "1"]
    printed = good("run", "-np", "2", "--", sys.executable, *command).stdout
    assert [line.count(" ms ") for line in printed.splitlines() if "step of DDP" in line] == [3]
