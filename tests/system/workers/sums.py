"""A worker that sums for ever, or as often as told, and can come to grief on purpose."""

from __future__ import annotations

import argparse
import os
import signal
import sys
import time

import numpy as np

import hostlib as ina

LINGER_S = 3  # ten of the intervals at which waiting workers look up

parser = argparse.ArgumentParser()
parser.add_argument("--times", type=int, default=1_000_000)
parser.add_argument("--length", type=int, default=5000)
parser.add_argument("--victim", type=int, default=-1, help="the rank that the other options are about")
parser.add_argument("--kill-at", type=int, default=-1, help="die at this iteration")
parser.add_argument("--stall-at", type=int, default=-1, help="stop calling allreduce at this iteration")
parser.add_argument("--exit-at", type=int, default=-1, help="leave in good order at this iteration")
parser.add_argument("--longer-by", type=int, default=0, help="submit more elements than the others")
options = parser.parse_args()

ina.init()
victim = ina.rank() == options.victim
length = options.length + (options.longer_by if victim else 0)
expected = ina.size() * (ina.size() + 1) / 2
print("started", flush=True)
for i in range(options.times):
    if victim and i == options.kill_at:
        os.kill(os.getpid(), signal.SIGKILL)
    if victim and i == options.stall_at:
        while True:
            time.sleep(1)
    if victim and i == options.exit_at:
        break
    began = time.monotonic()
    try:
        result = ina.allreduce(np.full(length, ina.rank() + 1, np.float32))
    except ina.InaError as error:
        print(f"{type(error).__name__} after {time.monotonic() - began:.3f} s: {error}", flush=True)
        # The first to end would be what the others report, instead of what they found out themselves.
        time.sleep(LINGER_S)
        sys.exit(5)
    if not np.array_equal(result, np.full(length, expected, np.float32)):
        print(f"wrong sum in iteration {i}", flush=True)
        sys.exit(6)
print("finished", flush=True)
ina.shutdown()
