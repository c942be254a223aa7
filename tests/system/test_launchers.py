"""Ranks that others start: torchrun, mpirun's and srun's variables, and `ina admit` behind them."""

from __future__ import annotations

import itertools
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import hostlib
from tests.system.command import ROOT, ina, start

LAUNCHES = itertools.count()
SUM = (
    "import numpy as np, hostlib as ina; ina.init(); print(ina.rank(), ina.allreduce(np.ones(3, np.float32)))"
)


def launch(code: str, environments: Sequence[Mapping[str, str]]) -> list[subprocess.Popen[str]]:
    """Start a process for each environment, as a launcher does."""
    return [
        subprocess.Popen(
            [sys.executable, "-c", code],
            cwd=ROOT,
            env={**os.environ, **environment},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for environment in environments
    ]


def openmpi(size: int) -> list[dict[str, str]]:
    """Return what mpirun sets for each rank of a launch of its own."""
    launched = next(LAUNCHES)
    return [
        {
            "OMPI_COMM_WORLD_RANK": str(rank),
            "OMPI_COMM_WORLD_SIZE": str(size),
            "OMPI_COMM_WORLD_LOCAL_RANK": str(rank),
            "OMPI_COMM_WORLD_LOCAL_SIZE": str(size),
            "PMIX_NAMESPACE": f"test-{os.getpid()}-{launched}",
        }
        for rank in range(size)
    ]


def test_ranks_of_mpirun_have_a_job_admitted_that_ends_with_them() -> None:
    ranks = launch(SUM, openmpi(2))
    for rank, process in enumerate(ranks):
        output, errors = process.communicate()
        assert process.returncode == 0, errors
        assert output == f"{rank} [2. 2. 2.]\n"
    assert not nothing_left(ranks)


def nothing_left(ranks: Sequence[subprocess.Popen[str]]) -> list[str]:
    """Wait until `ina admit` of a launch has ended; return it if it does not."""
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        left = [command for command in children_of_init() if "-m ina admit" in command]
        if not left:
            return []
        time.sleep(0.05)
    return left


def children_of_init() -> list[str]:
    """Return the command lines of this test's processes whose parents have ended."""
    own = os.environ["INA_TEST_FAMILY"].split()[-1].encode()
    found = []
    for entry in Path("/proc").iterdir():
        try:
            if entry.name.isdigit() and own in (entry / "environ").read_bytes():
                found.append((entry / "cmdline").read_bytes().replace(b"\0", b" ").decode())
        except OSError:
            continue
    return found


def test_a_killed_first_rank_ends_the_job_for_all() -> None:
    code = f"{SUM}; import os; ina.rank() or os.kill(os.getpid(), 9); ina.barrier()"
    ranks = launch(code, openmpi(2))
    said = [process.communicate() for process in ranks]
    assert ranks[0].returncode == -signal.SIGKILL
    assert ranks[1].returncode == 1
    assert "PeerLost" in said[1][1]
    assert "lost rank 0" in said[1][1]
    assert not nothing_left(ranks)


def test_what_cannot_be_admitted_is_told_to_all_ranks() -> None:
    ranks = launch(SUM, [{**each, "INA_OPTIONS": "--lanes 33"} for each in openmpi(2)])
    said = [process.communicate()[1] for process in ranks]
    assert [process.returncode for process in ranks] == [1, 1]
    assert "'ina admit' ended with status" in said[0]
    assert "rank 1: rank 0 could not have the job admitted: 'ina admit' ended" in said[1]


def test_ranks_of_a_machine_are_summed_there_first_if_asked_to() -> None:
    code = f"{SUM}; print(ina.statistics().get('packets_sent', 0) > 0)"
    ranks = launch(code, [{**each, "INA_HIERARCHICAL": "1"} for each in openmpi(3)])
    for rank, process in enumerate(ranks):
        output, errors = process.communicate()
        assert process.returncode == 0, errors
        assert output == f"{rank} [3. 3. 3.]\n{rank == 0}\n"
    assert not nothing_left(ranks)


def test_admit_takes_the_ranks_of_machines_once_each() -> None:
    for options, text in (
        (("--machines", "0,1/2"), "--machines '0,1/2': want each rank of 0..3 once"),
        (("--machines", "0,x/2"), "want each rank of 0..3 once"),
        (
            ("--host", "1=10.0.0.1/02:00:00:00:00:01"),
            "--host needs --program exclusive and a running switch",
        ),
        (("--switch", "grpc://127.0.0.1:1", "--host", "1"), "--host '1': want PORT=IP/MAC"),
    ):
        done = ina("admit", "-np", 4, *options)
        assert done.returncode == 2
        assert text in done.stderr


def test_admit_says_once_what_ranks_must_know_and_ends_with_its_input() -> None:
    process = start("admit", "-np", 2, "--slots", 64)
    # its standard input has ended, and nobody has joined
    output, errors = process.communicate()
    assert process.returncode == 0, errors
    first, last = output.splitlines()
    configs = [hostlib.JobConfig.from_json(json.dumps(each)) for each in json.loads(first)["configs"]]
    assert [config.rank for config in configs] == [0, 1]
    assert len({config.token for config in configs}) == 1
    assert json.loads(last)["allreduces"] == 0


def test_admit_refuses_what_run_refuses() -> None:
    done = ina("admit", "-np", 33)
    assert done.returncode == 2
    assert "33 workers: want 1 to 32 per switch" in done.stderr
