"""A worker that sums for a while, checks every sum, and has rank 0 add a mark to a file at the end.

It waits for minutes for a switch or fallback server that is started again: what is gone, others decide.
"""

from __future__ import annotations

import argparse
import time
from dataclasses import replace
from pathlib import Path

import numpy as np

import hostlib as ina

parser = argparse.ArgumentParser()
parser.add_argument("marks", type=Path)
parser.add_argument("--sums", type=int, default=10)
parser.add_argument("--until", type=Path, help="Go on summing until this file is there.")
options = parser.parse_args()

config = ina.JobConfig.from_environment()
ina.init(config and replace(config, timeout_s=300.0))
print("started", flush=True)
of_all = ina.size() * (ina.size() + 1) // 2
done = 0
while True:
    # all ranks go on for as long as rank 0 says
    more = done < options.sums or (options.until is not None and not options.until.exists())
    found = ina.allreduce(np.array([ina.rank() + 1] * 5000 + [more * (ina.rank() == 0)], np.int32))
    assert (found[:-1] == of_all).all(), found
    done += 1
    if done == 3 and ina.rank() == 0:
        options.marks.with_suffix(".begun").touch()
    if not found[-1]:
        break
    time.sleep(0.01)
if ina.rank() == 0:
    with options.marks.open("a") as file:
        file.write("x")
ina.shutdown()
