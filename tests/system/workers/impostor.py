"""A worker whose last rank believes in another rank, size, job or lane count; nobody watches them."""

from __future__ import annotations

import dataclasses
import json
import os
import sys

import numpy as np

import hostlib as ina

field, value, watched = sys.argv[1], json.loads(sys.argv[2]), sys.argv[3] == "watched"
config = ina.JobConfig.from_environment(os.environ)
assert config is not None
if config.rank == config.size - 1:
    config = dataclasses.replace(config, **{field: value})
if not watched:
    config = dataclasses.replace(config, rendezvous=None)
try:
    ina.init(config)
    ina.allreduce(np.ones(100, np.float32))
except Exception as error:
    print(f"{type(error).__name__}: {error}", flush=True)
    sys.exit(5)
print("finished", flush=True)
