"""Two ranks whose models outlive their groups, while a thread of gloo still has Python to run."""

from __future__ import annotations

import os
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from hostlib.torch.group import InaProcessGroup

store = dist.HashStore()
called, returned = threading.Event(), threading.Event()


def group_of(rank: int) -> InaProcessGroup:
    return InaProcessGroup(store, rank, 2, timedelta(seconds=30), ranks=range(2))


def model_on(group: InaProcessGroup) -> DistributedDataParallel:
    return DistributedDataParallel(torch.nn.Linear(2, 2), process_group=group)


def late(future: Any) -> Any:
    """Be in gloo's thread without the interpreter's lock, which it wants back when the groups are gone."""
    called.set()
    time.sleep(0.3)
    returned.set()
    return future.value()


with ThreadPoolExecutor(2) as ranks:
    groups = list(ranks.map(group_of, range(2)))
    models = list(ranks.map(model_on, groups))
works = [groups[0].allreduce([torch.ones(3)], dist.ReduceOp.MAX)]
future = works[0].get_future().then(late)
works.append(groups[1].allreduce([torch.ones(3)], dist.ReduceOp.MAX))
assert called.wait(30)
for group in groups:
    group.shutdown()
del group, future
works.clear()
groups.clear()
models.clear()
assert returned.wait(30)
print("over", flush=True)
os._exit(0)  # the thread may have a last word to say, and there is no Python to say it in any more
