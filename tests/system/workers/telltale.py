"""A worker that looks for its job's token where others could see it, leaves it in a file, and fails aloud."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np

import hostlib as ina

config = ina.JobConfig.from_environment()
assert config is not None
assert config.token is not None
secret = config.token.encode()
Path(sys.argv[1]).write_bytes(secret)
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
        ["cat", mine], user=65534, group=65534, extra_groups=[], capture_output=True, text=True, check=False
    )
    print(f"another user: {other.stderr.strip()}", flush=True)
ina.allreduce(np.full(10, np.nan, np.float32))
