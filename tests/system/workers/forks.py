"""A rank whose forked process tries all that a rank may: the rank's own sum has to be right after it."""

import os

import numpy as np

import hostlib as ina

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
