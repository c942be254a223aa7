"""A rank of torchrun that joins and leaves the group again and again; says what it holds after each round.

``torch_rounds.py ROUNDS FILE``: rank r writes to FILE.r, as JSON, for each round its time, and the numbers of
its descriptors and threads when it is over; and its children.
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path

import torch
import torch.distributed as dist

rounds, file = int(sys.argv[1]), sys.argv[2]
found = []
for number in range(rounds):
    began_s = time.monotonic()
    dist.init_process_group("ina")
    tensor = torch.full((100,), number + 1.0)
    dist.all_reduce(tensor)
    assert tensor.tolist() == [dist.get_world_size() * (number + 1.0)] * 100
    dist.all_reduce(tensor, dist.ReduceOp.MAX)  # by gloo
    dist.destroy_process_group()
    time_s = time.monotonic() - began_s
    found.append([time_s, *(len([*Path("/proc/self", each).iterdir()]) for each in ("fd", "task"))])
children = Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()
Path(f"{file}.{os.environ['RANK']}").write_text(json.dumps({"rounds": found, "children": children}))
