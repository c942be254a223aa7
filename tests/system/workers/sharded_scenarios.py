"""Groups of some ranks, and what trains in them: FSDP, HSDP, ZeRO, tensor parallel.

The ranks have their job admitted themselves, as under torchrun: whoever has admitted it admits groups, too.
"""

from __future__ import annotations

import contextlib
import os
import runpy
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import (
    FullyShardedDataParallel,
    MixedPrecisionPolicy,
    ShardingStrategy,
    fully_shard,
)
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
from torch.nn.parallel import DistributedDataParallel
from torch_scenarios import raised

import hostlib
import hostlib.torch
import hostlib.torch.group

STEPS = 3
Prepared = tuple[torch.nn.Module, torch.optim.Optimizer, bool]
"""Model, optimizer, and whether each rank has other inputs."""


def model() -> torch.nn.Sequential:
    torch.manual_seed(0)
    layers = [torch.nn.Linear(12, 32), torch.nn.ReLU(), torch.nn.Linear(32, 32), torch.nn.ReLU()]
    return torch.nn.Sequential(*layers, torch.nn.Linear(32, 4))


def adam(module: torch.nn.Module) -> torch.optim.Optimizer:
    return torch.optim.Adam(module.parameters(), 0.01)


def fsdp1() -> Prepared:
    module = FullyShardedDataParallel(model(), device_id=torch.device("cpu"))
    return module, adam(module), True


def hybrid_fsdp1() -> Prepared:
    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("replicate", "shard"))
    strategy = ShardingStrategy.HYBRID_SHARD
    module = FullyShardedDataParallel(
        model(), device_id=torch.device("cpu"), device_mesh=mesh, sharding_strategy=strategy
    )
    return module, adam(module), True


def fsdp2(mesh: Any = None, **options: Any) -> Prepared:
    module = model()
    mesh = mesh or init_device_mesh("cpu", (dist.get_world_size(),))
    for layer in module:
        if isinstance(layer, torch.nn.Linear):
            fully_shard(layer, mesh=mesh, **options)
    fully_shard(module, mesh=mesh, **options)
    return module, adam(module), True


def fsdp2_in_bfloat16() -> Prepared:
    return fsdp2(mp_policy=MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.bfloat16))


def hsdp() -> Prepared:
    return fsdp2(init_device_mesh("cpu", (2, 2), mesh_dim_names=("replicate", "shard")))


def zero() -> Prepared:
    module = DistributedDataParallel(model())
    return module, ZeroRedundancyOptimizer(module.parameters(), torch.optim.Adam, lr=0.01), True


def tensor_parallel() -> Prepared:
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    plan = {"0": ColwiseParallel(), "2": RowwiseParallel()}
    module = parallelize_module(model(), mesh, plan)
    return module, adam(module), False


def tensor_parallel_and_fsdp2() -> Prepared:
    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("data", "tensor"))
    module = parallelize_module(model(), mesh["tensor"], {"0": ColwiseParallel(), "2": RowwiseParallel()})
    fully_shard(module, mesh=mesh["data"])
    return module, adam(module), False


WAYS: tuple[Callable[[], Prepared], ...] = (
    *(fsdp1, hybrid_fsdp1, fsdp2, fsdp2_in_bfloat16, hsdp, zero, tensor_parallel),
    tensor_parallel_and_fsdp2,
)


def losses(prepare: Callable[[], Prepared]) -> Iterator[float]:
    """Train; yield the loss of each step, averaged over ranks."""
    module, optimizer, differ = prepare()
    generator = torch.Generator().manual_seed(dist.get_rank() if differ else 0)
    for _ in range(STEPS):
        inputs = torch.rand(8, 12, generator=generator)
        optimizer.zero_grad()
        loss = (module(inputs).float() - inputs[:, :4]).square().mean()
        loss.backward()
        optimizer.step()
        yield loss.item()


def groups() -> list[dist.ProcessGroup]:
    return [group for group in dist.distributed_c10d._world.pg_map if group is not dist.group.WORLD]


def counts() -> dict[tuple[str, str], int]:
    """The number of calls by call and path, of all groups of this backend together."""
    total: dict[tuple[str, str], int] = {}
    for group in (dist.group.WORLD, *groups()):
        if isinstance(group, hostlib.torch.InaProcessGroup):
            for call, taken in group.paths().items():
                for path, number in taken.items():
                    total[call, path] = total.get((call, path), 0) + number
    return total


def trained(prepare: Callable[[], Prepared]) -> dict[str, Any]:
    """What a way of training comes to: losses, and the calls of its loop by path."""
    steps = losses(prepare)
    found = [next(steps)]  # the first one sets up
    before = counts()
    found += steps
    taken: dict[str, list[str]] = {}
    for (call, path), number in sorted(counts().items()):
        if number > before.get((call, path), 0):
            taken.setdefault(path, []).append(call)
    for group in groups():
        dist.destroy_process_group(group)
    return {"losses": found, "paths": taken}


def begin() -> tuple[int, dist.Store]:
    """Join as a rank of torchrun does, which has its job admitted; return the rank, and a store of all."""
    del os.environ["INA_JOB"]
    rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    store = dist.TCPStore(os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]), size, rank == 0)
    dist.init_process_group("ina", store=dist.PrefixStore("ina", store), rank=rank, world_size=size)
    return rank, store


def change_to_gloo(rank: int, store: dist.Store) -> None:
    """Leave the default group of this backend, and make one of gloo."""
    size = dist.get_world_size()
    dist.destroy_process_group()
    dist.init_process_group("gloo", store=dist.PrefixStore("gloo", store), rank=rank, world_size=size)


def sharded() -> Any:
    """Train each way with this backend, and with gloo."""
    rank, store = begin()
    found = {"ina": {way.__name__: trained(way) for way in WAYS}}
    change_to_gloo(rank, store)
    found["gloo"] = {way.__name__: trained(way) for way in WAYS}
    dist.destroy_process_group()
    return found


def sharded_example() -> Any:
    """Run an example, two replicas of two shards, with this backend and with gloo."""
    rank, store = begin()
    train = runpy.run_path(str(Path(__file__).parents[3] / "examples" / "torch_fsdp.py"))["train"]
    losses = train(1, 2)
    paths = sorted({path for _, path in counts()})
    change_to_gloo(rank, store)
    expected = train(1, 2)
    dist.destroy_process_group()
    return [losses, expected, paths]


def connections_to_store() -> int:
    """Return the number of this process's connections to the store of ``MASTER_PORT``."""
    remote = f":{int(os.environ['MASTER_PORT']):04X}"
    own = {str(each.readlink()) for each in Path("/proc/self/fd").iterdir() if each.is_symlink()}
    tables = [Path("/proc/net", kind).read_text().splitlines() for kind in ("tcp", "tcp6")]
    lines = [line.split() for table in tables for line in table]
    return sum(line[2].endswith(remote) and f"socket:[{line[9]}]" in own for line in lines)


def grouped() -> Any:
    """As many groups at once as there is room for, and one more; then again."""
    rank, _ = begin()
    found, connections = [], connections_to_store()
    for _ in range(2):
        opened = [dist.new_group([3, 1, 0]) for _ in range(5)]
        assert connections_to_store() == connections > 0
        works = []
        for number, group in enumerate(opened):
            if rank != 2:
                tensor = torch.full((5000,), rank + 10.0 * number)
                works.append((tensor, dist.all_reduce(tensor, group=group, async_op=True)))
        for _, work in reversed(works):
            work.wait()
        paths = [hostlib.torch.paths(group)["allreduce sum float32"] for group in opened if rank != 2]
        found.append([[tensor.unique().tolist() for tensor, _ in works], paths])
        tensor = torch.full((5,), float(rank))
        dist.all_reduce(tensor)
        found[-1].append(tensor.unique().tolist())
        for group in opened:
            dist.destroy_process_group(group)
    dist.destroy_process_group()
    return found


def restarted() -> list[bool]:
    """Whether ranks find in a store what another rank, and earlier groups and processes, have left.

    The last has another size: a store's file is there for later jobs, too, which once waited without end.
    """
    store = dist.HashStore()
    found = []
    for rank, size, attempt in ((0, 2, "0"), (1, 2, "0"), (1, 2, "0"), (0, 2, "1"), (1, 3, "1")):
        os.environ["TORCHELASTIC_RESTART_COUNT"] = attempt
        fresh = hostlib.torch.group._fresh(store, rank, size)
        found.append(fresh.check(["key"]))
        fresh.set("key", "value")
    return found


def group_of_a_dead_rank() -> Any:
    """Rank 3 dies; its group ends, another goes on, and later ones get the slots that it had."""
    rank, store = begin()
    pairs = [dist.new_group([0, 1]), dist.new_group([2, 3])]
    tensor = torch.ones(3)
    dist.all_reduce(tensor, group=pairs[rank // 2])
    if rank == 3:
        os._exit(3)
    if rank == 2:
        store.set("error", ": ".join(raised(lambda: dist.all_reduce(tensor, group=pairs[1]))))
        return None
    said = store.get("error").decode()
    dist.all_reduce(tensor, group=pairs[0])
    opened: list[Any] = []
    deadline = time.monotonic() + 120
    while len(opened) < 3 and time.monotonic() < deadline:  # one is what the dead rank's had
        with contextlib.suppress(hostlib.RendezvousError):
            opened.append(hostlib.current().group([1, 0], f"{len(opened)}"))
    refused = raised(lambda: hostlib.current().group([1, 0], "more"))
    sums = [group.allreduce([group.rank + 1.0]).tolist() for group in opened]
    ranks = [group.rank for group in opened]
    for group in opened:
        group.close()
    return [said, tensor.tolist(), sums, ranks, refused]
