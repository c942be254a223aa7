"""A worker of a group: sums in the network stage, and writes down when it had which stage.

Each rank adds lines to ``PREFIX-RANK``: process, iteration, stage, begin and end by the monotonic clock,
which all processes of a machine share. Rank 0 saves how many iterations are done; a job that starts again
goes on there. All ends when a file is there.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from pathlib import Path

import numpy as np

import hostlib as ina
from hostlib import interleave

parser = argparse.ArgumentParser()
parser.add_argument("prefix", type=Path)
parser.add_argument("until", type=Path)
options = parser.parse_args()

saved = options.prefix.with_suffix(".saved")
ina.init()
of_all = ina.size() * (ina.size() + 1) // 2
number, more = int(saved.read_text()) if saved.exists() else 0, True
number = int(ina.allreduce(np.array([number * (ina.rank() == 0)], np.int32))[0])  # where rank 0 goes on
with (
    Path(f"{options.prefix}-{ina.rank()}").open("a") as lines,
    interleave.join(ina.rank()) as timer,
):
    while more:
        with timer.iteration():
            for stage in interleave.STAGES:
                with timer.stage(stage):
                    begin_s = time.monotonic()
                    if stage == "network":
                        own = [ina.rank() + 1] * 5000 + [(not options.until.exists()) * (ina.rank() == 0)]
                        found = ina.allreduce(np.array(own, np.int32))
                        assert (found[:-1] == of_all).all(), found
                        more = bool(found[-1])
                    else:
                        time.sleep(0.003)
                    line = [os.getpid(), number, stage, begin_s, time.monotonic()]
                    print(json.dumps(line), file=lines, flush=True)
        number += 1
        if ina.rank() == 0:
            draft = saved.with_suffix(".draft")
            draft.write_text(str(number))
            draft.replace(saved)
ina.shutdown()
