"""Small scripts with torch, each a process or a rank of its own: ``torch_scripts.py NAME ARGUMENTS…``."""

from __future__ import annotations

import atexit
import fcntl
import importlib
import json
import os
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path
from typing import Any


def ends_without_shutdown() -> None:
    """End as an unmodified script does; tell which threads of the group are left at exit.

    It does not import the backend: torch finds it.
    """

    def tell() -> None:
        """Run after all other exit handlers: this one is registered first."""
        names = (thread.name for thread in threading.enumerate() if thread.name in ("watch", "callbacks"))
        print(f"left at exit: {', '.join(sorted(names))}", flush=True)
        print(f"summed though nothing waits for it: {late.is_success()}", flush=True)

    atexit.register(tell)
    import torch
    import torch.distributed as dist

    dist.init_process_group("ina")
    work = dist.all_reduce(torch.ones(4), async_op=True)
    assert work.get_future().then(lambda done: done.value()[0]).wait().tolist() == [2.0] * 4
    late = dist.all_reduce(torch.ones(1_000_000), async_op=True)


def models_outlive_groups() -> None:
    """Be two ranks, while a thread of gloo still has Python to run."""
    import torch
    import torch.distributed as dist
    from torch.nn.parallel import DistributedDataParallel

    from hostlib.torch.group import InaProcessGroup

    store = dist.HashStore()
    called, returned = threading.Event(), threading.Event()

    def late(future: Any) -> Any:
        """Be in gloo's thread without the interpreter's lock, which it wants back after the groups."""
        called.set()
        time.sleep(0.3)
        returned.set()
        return future.value()

    with ThreadPoolExecutor(2) as ranks:
        groups = list(
            ranks.map(
                lambda rank: InaProcessGroup(store, rank, 2, timedelta(seconds=30), ranks=range(2)), range(2)
            )
        )
        models = list(
            ranks.map(
                lambda group: DistributedDataParallel(torch.nn.Linear(2, 2), process_group=group), groups
            )
        )
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


def rounds(number: str, file: str) -> None:
    """Join and leave the group again and again, as a rank of torchrun.

    Rank r writes to FILE.r, as JSON, for each round its time, and the numbers of its descriptors and threads
    when it is over; and its children.
    """
    import torch
    import torch.distributed as dist

    found = []
    for each in range(int(number)):
        began_s = time.monotonic()
        dist.init_process_group("ina")
        tensor = torch.full((100,), each + 1.0)
        dist.all_reduce(tensor)
        assert tensor.tolist() == [dist.get_world_size() * (each + 1.0)] * 100
        dist.all_reduce(tensor, dist.ReduceOp.MAX)  # by gloo
        dist.destroy_process_group()
        time_s = time.monotonic() - began_s
        found.append([time_s, *(len([*Path("/proc/self", what).iterdir()]) for what in ("fd", "task"))])
    children = Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()
    Path(f"{file}.{os.environ['RANK']}").write_text(json.dumps({"rounds": found, "children": children}))


def horovod_ends_amid_gradients(lock_file: str) -> None:
    """Have rank 0 end while the interpreter of rank 1 does."""
    import torch

    import hostlib.horovod as hvd

    hvd.init()
    weight = torch.nn.Parameter(torch.ones(3))
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD([weight], 0.1))
    lock = os.open(lock_file, os.O_RDWR | os.O_CREAT)
    fifo = os.open(f"{lock_file}.fifo", os.O_RDWR)
    if hvd.rank() == 0:
        fcntl.flock(lock, fcntl.LOCK_EX)
    hvd.barrier()
    weight.sum().backward()

    class Last:
        """Ends as late as a module's variable can; what it needs is bound, for modules may be gone."""

        def __del__(
            self,
            lock=lock,
            flock=fcntl.flock,
            kind=fcntl.LOCK_EX,
            fifo=fifo,
            write=os.write,
            sleep=time.sleep,
        ) -> None:
            write(fifo, b"ending")
            flock(lock, kind)  # until rank 0 has ended
            sleep(0.2)  # a thread that hears of that may want the interpreter's lock

    globals()["optimizer"] = optimizer  # as variables of a script, which are there until the end
    if hvd.rank():
        globals()["last"] = Last()
    else:
        assert os.read(fifo, 6) == b"ending"


def trained_by(library: str, file: str) -> None:
    """Train as a rank of torchrun by a library which knows only the backends of torch; under ``INA_AS=gloo``.

    Rank r writes to FILE.r, as JSON, the backend of the default group, the paths of its calls, the weights.
    """
    import torch
    import torch.distributed as dist

    import hostlib.torch

    class Regression(torch.nn.Module):
        """Predicts the sum of a row."""

        def __init__(self) -> None:
            super().__init__()
            self.linear = torch.nn.Linear(4, 1)

        def forward(self, row: torch.Tensor, labels: torch.Tensor) -> dict[str, torch.Tensor]:
            found = self.linear(row)[:, 0]
            return {"loss": torch.nn.functional.mse_loss(found, labels), "logits": found}

    torch.manual_seed(1)
    model = Regression()
    rows = [{"row": row, "labels": row.sum()} for row in torch.arange(32.0).reshape(8, 4) / 32]
    before = [value.clone() for value in model.parameters()]
    if library == "accelerate":
        accelerator = importlib.import_module("accelerate").Accelerator(cpu=True)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        prepared, optimizer, batches = accelerator.prepare(
            model, optimizer, torch.utils.data.DataLoader(rows, batch_size=2)
        )
        for batch in batches:
            optimizer.zero_grad()
            accelerator.backward(prepared(**batch)["loss"])
            optimizer.step()
    else:
        transformers = importlib.import_module("transformers")
        arguments = transformers.TrainingArguments(
            output_dir=str(Path(file).parent / "trainer"),
            use_cpu=True,
            ddp_backend="gloo",
            max_steps=2,
            per_device_train_batch_size=2,
            report_to="none",
            save_strategy="no",
            dataloader_pin_memory=False,
        )
        transformers.Trainer(model=model, args=arguments, train_dataset=rows).train()
    weights = [value.detach() for value in model.parameters()]
    said = {
        "backend": dist.get_backend(),
        "paths": hostlib.torch.paths(),
        "learnt": not all(map(torch.equal, before, weights)),
        "weights": [value.flatten().tolist() for value in weights],
    }
    Path(f"{file}.{os.environ['RANK']}").write_text(json.dumps(said))
    dist.destroy_process_group()


SCRIPTS = (ends_without_shutdown, models_outlive_groups, rounds, horovod_ends_amid_gradients, trained_by)

if __name__ == "__main__":
    {script.__name__: script for script in SCRIPTS}[sys.argv[1]](*sys.argv[2:])
