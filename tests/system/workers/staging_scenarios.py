"""A device whose copies are done later, by threads of their own, as a GPU's are: its tensors are the host's.

What is read before it has come down, or used before it has gone up, shows: the host's memory holds NaN until
then, and the copies take their time.
"""

from __future__ import annotations

import contextlib
import queue
import threading
import warnings
from collections.abc import Callable, Iterator
from typing import Any, ClassVar

import torch
import torch.distributed as dist
import torch_scenarios as plain
from torch.nn.parallel import DistributedDataParallel

import hostlib
import hostlib.torch
from hostlib.torch import staging

SLOW_S = 0.002


class Stream:
    """Does what it is given, in order, later."""

    def __init__(self) -> None:
        self._todo: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        threading.Thread(target=self._serve, daemon=True).start()

    def add(self, work: Callable[[], None]) -> Callable[[], None]:
        """Return what waits for the end of it."""
        done = threading.Event()

        def do() -> None:
            work()
            done.set()

        self._todo.put(do)
        return lambda: _wait(done)

    def _serve(self) -> None:
        while True:
            threading.Event().wait(SLOW_S)
            self._todo.get()()


def _wait(done: threading.Event) -> None:
    if not done.wait(60):
        raise TimeoutError("a copy of the test's device has not been done")


class LaterCopies:
    """Implements `hostlib.torch.staging.Copies`."""

    log: ClassVar[list[str]] = []
    broken: ClassVar[bool] = False
    held: ClassVar[int] = 0
    """The copy down that waits for the first one up: however slow a peer is, what overlaps is seen."""
    went_up: ClassVar[threading.Event] = threading.Event()

    def __init__(self, device: torch.device) -> None:
        self._down, self._up = Stream(), Stream()

    def follow(self, tensor: torch.Tensor) -> None:
        """Do nothing: what the caller does is done at once."""

    @contextlib.contextmanager
    def going_down(self) -> Iterator[None]:
        self._down.add(_nothing)()
        yield

    @contextlib.contextmanager
    def going_up(self) -> Iterator[None]:
        self._up.add(_nothing)()
        yield

    def host(self, elements: int, dtype: torch.dtype) -> torch.Tensor:
        return torch.full((elements,), float("nan") if dtype.is_floating_point else -(2**31) + 5, dtype=dtype)

    def down(self, source: torch.Tensor, target: torch.Tensor) -> Callable[[], None]:
        def copy() -> None:
            target.copy_(source)
            if self.held == self.log.count("down") + 1:
                self.went_up.wait(30)
            self.log.append("down")

        wait = self._down.add(copy)
        return _fail if self.broken else wait

    def up(self, source: torch.Tensor, target: torch.Tensor) -> None:
        def copy() -> None:
            target.copy_(source)
            self.log.append("up")
            self.went_up.set()

        self._up.add(copy)

    def join(self) -> Callable[[], None]:
        return self._up.add(_nothing)


def _fail() -> None:
    raise RuntimeError("CUDA error: an illegal memory access was encountered")


def _nothing() -> None:
    pass


def begin() -> int:
    warnings.simplefilter("ignore", hostlib.PrecisionWarning)
    staging.COPIES["cpu"] = LaterCopies
    staging.CHUNK_BYTES = 4000  # type: ignore[misc]
    return plain.begin()


def staged() -> dict[str, Any]:
    """Return what differs from the sums, and in which order chunks of a large tensor went down and up."""
    begin()
    size = dist.get_world_size()
    wrong = []
    for dtype in (torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.int32, torch.int64):
        for shape in ((3000,), (0,), (), (40, 50)):
            mine = plain.values(dtype, shape=shape)
            gathered = [torch.empty_like(mine) for _ in range(size)]
            dist.all_gather(gathered, mine)
            expected = torch.stack(gathered).double().sum(0).to(dtype)
            turned = mine.t().clone().t() if len(shape) == 2 else mine.clone()
            works = [dist.all_reduce(tensor, async_op=True) for tensor in (mine, turned)]
            for work in works:
                work.wait()
            wrong += [f"{dtype} {shape}"] * (not plain.close(mine, expected))
            wrong += [f"{dtype} {shape} strided"] * (not plain.close(turned, expected))
    mean = torch.full((3000,), 7 * (dist.get_rank() + 1), dtype=torch.int32)  # of several chunks
    dist.all_reduce(mean, dist.ReduceOp.AVG)
    wrong += ["average of int32"] * (mean.unique().tolist() != [7 * sum(range(1, size + 1)) // size])
    root = torch.full((2000,), float(dist.get_rank() + 1))
    dist.reduce(root, 1)
    LaterCopies.log.clear()
    LaterCopies.went_up.clear()
    LaterCopies.held = 100  # the last
    large = torch.ones(100_000)
    dist.all_reduce(large)
    order = list(LaterCopies.log)
    LaterCopies.held = 0
    future = dist.all_reduce(torch.ones(5000), async_op=True).get_future().wait()
    overflow = plain.raised(lambda: dist.all_reduce(torch.tensor([2**30] * 2000, dtype=torch.int32)))
    network = DistributedDataParallel(plain.bench_model(), bucket_cap_mb=1e-5)
    network(torch.full((5, 3), float(dist.get_rank()))).square().sum().backward()
    gradients = torch.cat([parameter.grad.reshape(-1) for parameter in network.parameters()])  # type: ignore[union-attr]
    paths = hostlib.torch.paths()
    dist.destroy_process_group()
    return {
        "wrong": wrong,
        "root": root.unique().tolist(),
        "large": large.unique().tolist(),
        "overlap": order.index("up") < len(order) - 1 - order[::-1].index("down"),
        "chunks": [order.count("down"), order.count("up")],
        "future": bool((future[0] == size).all()) if size == 1 else len(future),
        "overflow": overflow,
        "gradients": gradients.tolist(),
        "paths": paths["allreduce sum bfloat16"],
    }


def staged_with_residual() -> None:
    begin()
    network = DistributedDataParallel(plain.bench_model())
    network.register_comm_hook(
        hostlib.torch.BucketState(network, error_feedback=True), hostlib.torch.bucket_hook
    )
    network(torch.ones(1, 3)).sum().backward()


def staged_copy_that_fails() -> None:
    rank = begin()
    dist.all_reduce(torch.ones(2000))
    LaterCopies.broken = rank == 1
    dist.all_reduce(torch.ones(2000))
