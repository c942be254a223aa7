"""Ranks that do what they should not, or look where they should not: ``odd_ranks.py NAME ARGUMENTS…``."""

from __future__ import annotations

import dataclasses
import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np

import hostlib as ina


def forks() -> None:
    """Have a forked process try all that a rank may: the rank's own sum has to be right after it."""
    ina.init()
    pid = os.fork()
    if pid == 0:
        for call in (
            lambda: ina.allreduce(np.ones(3, np.float32)),
            lambda: ina.allreduce_async(np.ones(3, np.float32)),
            lambda: ina.reduce(np.ones(3, np.float32)),
            ina.barrier,
            lambda: ina.progress(1, 2),
        ):
            try:
                call()
            except ina.NotInitialized as error:
                print("refused:", error, flush=True)
        ina.shutdown()
        os._exit(0)
    os.waitpid(pid, 0)
    print(*ina.allreduce(np.full(3, 5, np.float32)))
    ina.shutdown()


def impostor(field: str, value: str, watched: str) -> None:
    """As the last rank, believe in another rank, size, job or lane count; unless "watched", meet nobody."""
    config = ina.JobConfig.from_environment(os.environ)
    if config.rank == config.size - 1:
        config = dataclasses.replace(config, **{field: json.loads(value)})
    if watched != "watched":
        config = dataclasses.replace(config, rendezvous=None)
    try:
        ina.init(config)
        ina.allreduce(np.ones(100, np.float32))
    except Exception as error:
        print(f"{type(error).__name__}: {error}", flush=True)
        sys.exit(5)
    print("finished", flush=True)


def telltale(file: str) -> None:
    """Look for the job's token where others could see it, leave it in a file, and fail aloud."""
    config = ina.JobConfig.from_environment()
    secret = config.token.encode()
    Path(file).write_bytes(secret)
    print(config, flush=True)
    ina.init()
    for process in Path("/proc").glob("[0-9]*"):
        try:
            seen = secret in (process / "cmdline").read_bytes()
        except OSError:
            continue  # it has ended
        if seen:
            print(f"process {process.name} shows the token", flush=True)
    if os.geteuid() == 0:
        mine = f"/proc/{os.getpid()}/environ"
        other = subprocess.run(
            ["cat", mine],
            user=65534,
            group=65534,
            extra_groups=[],
            capture_output=True,
            text=True,
            check=False,
        )
        print(f"another user: {other.stderr.strip()}", flush=True)
    ina.allreduce(np.full(10, np.nan, np.float32))


if __name__ == "__main__":
    {"forks": forks, "impostor": impostor, "telltale": telltale}[sys.argv[1]](*sys.argv[2:])
