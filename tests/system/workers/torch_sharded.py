"""Trains a small model in every sharded way, with "ina" and then with gloo; prints what came of it as JSON.

An ordinary script of torch but for the name of the backend and `paths`, which are of the training loop alone.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterator
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

import hostlib.torch

STEPS = 4
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
    return list(dist.distributed_c10d._world.pg_map)


def counts() -> dict[tuple[str, str], int]:
    """The number of calls by call and path, of all groups of this backend together."""
    total: dict[tuple[str, str], int] = {}
    for group in groups():
        if isinstance(group, hostlib.torch.InaProcessGroup):
            for call, taken in group.paths().items():
                for path, number in taken.items():
                    total[call, path] = total.get((call, path), 0) + number
    return total


def run(prepare: Callable[[], Prepared]) -> dict[str, Any]:
    steps = losses(prepare)
    found = [next(steps)]  # the first one sets up
    before = counts()
    found += steps
    changed = {name: number - before.get(name, 0) for name, number in counts().items()}
    taken: dict[str, list[str]] = {}
    for (call, path), number in sorted(changed.items()):
        if number:
            taken.setdefault(path, []).append(call)
    world = dist.group.WORLD
    for group in groups():
        if group is not world:
            dist.destroy_process_group(group)
    return {"losses": found, "paths": taken}


def main() -> None:
    """Train each way in the groups of one backend, then in those of the other."""
    rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    torch.set_num_threads(1)
    wanted = sys.argv[2:]
    ways = [way for way in WAYS if not wanted or way.__name__ in wanted]
    found: dict[str, Any] = {}
    for backend in ("ina", "gloo"):
        store = dist.FileStore(f"{sys.argv[1]}.{backend}", size)
        dist.init_process_group(backend, store=store, rank=rank, world_size=size)
        found[backend] = {way.__name__: run(way) for way in ways}
        dist.destroy_process_group()
    print(json.dumps(found), flush=True)


if __name__ == "__main__":
    main()
