"""Ranks that end with gradients on their way; rank 0 does while the interpreter of rank 1 ends: FILE."""

import fcntl
import os
import sys
import time

import torch

import hostlib.horovod as hvd

hvd.init()
weight = torch.nn.Parameter(torch.ones(3))
optimizer = hvd.DistributedOptimizer(torch.optim.SGD([weight], 0.1))
lock = os.open(sys.argv[1], os.O_RDWR | os.O_CREAT)
fifo = os.open(f"{sys.argv[1]}.fifo", os.O_RDWR)
if hvd.rank() == 0:
    fcntl.flock(lock, fcntl.LOCK_EX)
hvd.barrier()
weight.sum().backward()


class Last:
    """Ends as late as a module's variable can; what it needs is bound, for modules may be gone."""

    def __del__(
        self, lock=lock, flock=fcntl.flock, kind=fcntl.LOCK_EX, fifo=fifo, write=os.write, sleep=time.sleep
    ) -> None:
        write(fifo, b"ending")
        flock(lock, kind)  # until rank 0 has ended
        sleep(0.2)  # a thread that hears of that may want the interpreter's lock


if hvd.rank():
    last = Last()
else:
    assert os.read(fifo, 6) == b"ending"
