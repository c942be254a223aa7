"""A worker that sums arrays of several lengths and both types, and checks every element."""

from __future__ import annotations

import argparse
import sys

import numpy as np

import hostlib as ina

parser = argparse.ArgumentParser()
parser.add_argument("--rounds", type=int, default=1)
parser.add_argument("lengths", type=int, nargs="+")
options = parser.parse_args()

ina.init()
print("started", flush=True)
for i in range(options.rounds):
    for length in options.lengths:
        for dtype in (np.int32, np.float32):
            # Of whole numbers below 2**20, three float32 values add up without rounding.
            inputs = [
                np.random.default_rng((i, length, rank)).integers(-(2**20), 2**20, length).astype(dtype)
                for rank in range(ina.size())
            ]
            result = ina.allreduce(inputs[ina.rank()])
            if not np.array_equal(result, np.sum(inputs, axis=0, dtype=np.int64)):
                print(f"wrong sum of {length} {np.dtype(dtype)} in round {i}", flush=True)
                sys.exit(6)
print("finished", flush=True)
ina.shutdown()
