"""What ranks of a torch process group do in tests; each returns what is to be checked, as JSON has it."""

from __future__ import annotations

import contextlib
import os
import runpy
import signal
import time
import warnings
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch._dynamo  # which DDP imports when it is made: once for all ranks
import torch.distributed as dist
import torch.distributed._functional_collectives as functional
from torch.distributed.algorithms.ddp_comm_hooks import powerSGD_hook
from torch.distributed.algorithms.join import Join
from torch.nn.parallel import DistributedDataParallel

import hostlib
import hostlib.torch

OPERATIONS = ("SUM", "AVG", "PRODUCT", "MIN", "MAX", "BAND", "BOR", "BXOR")
DTYPES = (
    *(torch.float32, torch.float64, torch.float16, torch.bfloat16),
    *(torch.int32, torch.int64, torch.int16, torch.int8, torch.uint8, torch.bool),
)
SHAPE = (5, 3)


def begin(timeout_s: float = 60) -> int:
    warnings.simplefilter("ignore", hostlib.PrecisionWarning)
    dist.init_process_group("ina", timeout=timedelta(seconds=timeout_s))
    return dist.get_rank()


@contextlib.contextmanager
def in_group() -> Iterator[None]:
    """Have the group there before a scenario, and gone after it."""
    begin()
    yield
    dist.destroy_process_group()


def raised(call: Callable[[], Any]) -> list[str] | None:
    """Return what a call raises, type and text; None: nothing."""
    try:
        call()
    except Exception as error:
        return [type(error).__name__, str(error)]
    return None


def until_the_first_has_ended() -> None:
    """Wait for what nobody says, at the store of rank 0's process."""
    with contextlib.suppress(RuntimeError):
        dist.distributed_c10d._get_default_store().wait(["never"], timedelta(minutes=5))


def values(
    dtype: torch.dtype, *, seed: int = 0, shape: tuple[int, ...] = SHAPE, rank: int | None = None
) -> torch.Tensor:
    """Values that differ by rank, and that no sum of takes out of the type."""
    generator = torch.Generator().manual_seed(100 * seed + (dist.get_rank() if rank is None else rank))
    if dtype.is_floating_point:
        return (torch.rand(shape, generator=generator) * 2 - 1).to(dtype)
    return torch.randint(0, 2 if dtype is torch.bool else 9, shape, generator=generator).to(dtype)


def close(found: torch.Tensor, expected: torch.Tensor) -> bool:
    """Whether a sum or average of numbers below 1 is as close as the wire promises, and rounding allows."""
    if found.dtype != expected.dtype or found.shape != expected.shape:
        return False
    if not found.dtype.is_floating_point or not found.numel():
        return torch.equal(found, expected)
    size = dist.get_world_size()
    rounding = size * size * max(torch.finfo(found.dtype).eps, torch.finfo(torch.float32).eps)
    bound = hostlib.error_bound(1.0, size) + rounding
    return bool((found.double() - expected.double()).abs().max() <= bound)


def outcome(call: Callable[[Any], Any], group: Any) -> tuple[str, list[torch.Tensor]]:
    """What a call comes to: its tensors, or the type of error that torch raises for it."""
    try:
        return "", [tensor for tensor in call(group) if tensor is not None]
    except (RuntimeError, ValueError, NotImplementedError) as error:
        return type(error).__name__, []


def done(work: Any) -> None:
    """Wait for a call, unless it was a blocking one, which returns no work."""
    if work is not None:
        work.wait()


def reductions(op: str, dtype: torch.dtype, is_async: bool) -> Iterator[tuple[str, Callable[[Any], Any]]]:
    rank, size = dist.get_rank(), dist.get_world_size()
    reduce_op = getattr(dist.ReduceOp, op)

    def all_reduce(group: Any) -> list[torch.Tensor]:
        tensor = values(dtype)
        done(dist.all_reduce(tensor, reduce_op, group=group, async_op=is_async))
        return [tensor]

    def reduce(group: Any) -> list[torch.Tensor]:
        tensor = values(dtype)
        done(dist.reduce(tensor, 1, reduce_op, group=group, async_op=is_async))
        return [tensor] if rank == 1 else []

    def reduce_scatter(group: Any) -> list[torch.Tensor]:
        output = torch.zeros(SHAPE, dtype=dtype)
        inputs = [values(dtype, seed=seed) for seed in range(size)]
        done(dist.reduce_scatter(output, inputs, reduce_op, group=group, async_op=is_async))
        return [output]

    def reduce_scatter_tensor(group: Any) -> list[torch.Tensor]:
        output = torch.zeros(SHAPE, dtype=dtype)
        inputs = torch.cat([values(dtype, seed=seed) for seed in range(size)])
        done(dist.reduce_scatter_tensor(output, inputs, reduce_op, group=group, async_op=is_async))
        return [output]

    for call in (all_reduce, reduce, reduce_scatter, reduce_scatter_tensor):
        yield f"{call.__name__} {op} {dtype} async={is_async}", call


def movements(dtype: torch.dtype, is_async: bool) -> Iterator[tuple[str, Callable[[Any], Any]]]:
    rank, size = dist.get_rank(), dist.get_world_size()

    def blank() -> torch.Tensor:
        return torch.zeros(SHAPE, dtype=dtype)

    def broadcast(group: Any) -> list[torch.Tensor]:
        tensor = values(dtype)
        done(dist.broadcast(tensor, 1, group=group, async_op=is_async))
        return [tensor]

    def all_gather(group: Any) -> list[torch.Tensor]:
        outputs = [blank() for _ in range(size)]
        done(dist.all_gather(outputs, values(dtype), group=group, async_op=is_async))
        return outputs

    def all_gather_into_tensor(group: Any) -> list[torch.Tensor]:
        output = torch.zeros((size * SHAPE[0], SHAPE[1]), dtype=dtype)
        done(dist.all_gather_into_tensor(output, values(dtype), group=group, async_op=is_async))
        return [output]

    def gather(group: Any) -> list[torch.Tensor]:
        outputs = [blank() for _ in range(size)] if rank == 0 else None
        done(dist.gather(values(dtype), outputs, 0, group=group, async_op=is_async))
        return outputs or []

    def scatter(group: Any) -> list[torch.Tensor]:
        output = blank()
        inputs = [values(dtype, seed=seed) for seed in range(size)] if rank == 0 else None
        done(dist.scatter(output, inputs, 0, group=group, async_op=is_async))
        return [output]

    def all_to_all_single(group: Any) -> list[torch.Tensor]:
        output = torch.zeros(2 * size, dtype=dtype)
        done(dist.all_to_all_single(output, values(dtype, shape=(2 * size,)), group=group, async_op=is_async))
        return [output]

    def all_to_all(group: Any) -> list[torch.Tensor]:
        outputs = [blank() for _ in range(size)]
        inputs = [values(dtype, seed=seed) for seed in range(size)]
        done(dist.all_to_all(outputs, inputs, group=group, async_op=is_async))
        return outputs

    def to_and_fro(group: Any) -> list[torch.Tensor]:
        output, other = blank(), (rank + 1) % size
        if is_async:
            works = [dist.isend(values(dtype), other, group=group), dist.irecv(output, group=group)]
            for work in works:
                work.wait()
        elif rank == 0:
            dist.send(values(dtype), other, group=group)
            dist.recv(output, other, group=group)
        else:
            dist.recv(output, other, group=group)
            dist.send(values(dtype), other, group=group)
        return [output]

    def batch(group: Any) -> list[torch.Tensor]:
        output, other = blank(), (rank + 1) % size
        operations = [
            dist.P2POp(dist.isend, values(dtype), other, group),
            dist.P2POp(dist.irecv, output, other, group),
        ]
        for work in dist.batch_isend_irecv(operations):
            work.wait()
        return [output]

    calls = (broadcast, all_gather, all_gather_into_tensor, gather, scatter)
    for call in (*calls, all_to_all_single, all_to_all, to_and_fro, batch):
        yield f"{call.__name__} {dtype} async={is_async}", call


def others() -> Iterator[tuple[str, Callable[[Any], Any]]]:
    rank, size = dist.get_rank(), dist.get_world_size()

    def numbers(found: list[Any]) -> list[torch.Tensor]:
        return [torch.tensor(each["n"]) for each in found]

    def all_gather_object(group: Any) -> list[torch.Tensor]:
        found: list[Any] = [None] * size
        dist.all_gather_object(found, {"n": rank * 7, "text": "x" * rank}, group=group)
        return numbers(found)

    def gather_object(group: Any) -> list[torch.Tensor]:
        found: list[Any] | None = [None] * size if rank == 0 else None
        dist.gather_object({"n": rank * 7}, found, 0, group=group)
        return numbers(found or [])

    def broadcast_object_list(group: Any) -> list[torch.Tensor]:
        found: list[Any] = [{"n": 5}, {"n": 6}] if rank == 0 else [None, None]
        dist.broadcast_object_list(found, 0, group=group)
        return numbers(found)

    def scatter_object_list(group: Any) -> list[torch.Tensor]:
        found: list[Any] = [None]
        dist.scatter_object_list(
            found, [{"n": n} for n in range(size)] if rank == 0 else None, 0, group=group
        )
        return numbers(found)

    def barrier(group: Any) -> list[torch.Tensor]:
        dist.barrier(group=group)
        work = dist.barrier(group=group, async_op=True)
        work.wait()
        return []

    def coalesced(group: Any) -> list[torch.Tensor]:
        tensors = [values(torch.float32), values(torch.float32, seed=1, shape=(7,))]
        with dist._coalescing_manager(group=group, async_ops=True) as manager:
            for tensor in tensors:
                dist.all_reduce(tensor, group=group)
        manager.wait()
        return tensors

    def coalesced_shards(group: Any) -> list[torch.Tensor]:
        shapes = ((), (3,), (7, 2))
        gathered = [torch.zeros(size, *shape) for shape in shapes]
        with dist._coalescing_manager(group=group, async_ops=True) as manager:
            for seed, (shape, output) in enumerate(zip(shapes, gathered, strict=True)):
                dist.all_gather_single(output, values(torch.float32, seed=seed, shape=(1, *shape)), group)
        manager.wait()
        scattered = [torch.zeros(1, *shape) for shape in shapes]
        with dist._coalescing_manager(group=group):
            for seed, (shape, output) in enumerate(zip(shapes, scattered, strict=True)):
                whole = values(torch.float32, seed=seed, shape=(size, *shape))
                dist.reduce_scatter_single(output, whole, group=group)
        return [*gathered, *scattered]

    def shards_in_place(group: Any) -> list[torch.Tensor]:
        """As FSDP has them: a rank's shard is part of the whole."""
        whole = values(torch.float32, shape=(size * 5,))
        dist.reduce_scatter_single(whole.narrow(0, 5 * rank, 5), whole, group=group)
        dist.all_gather_single(whole, whole.narrow(0, 5 * rank, 5), group=group)
        return [whole]

    def empty_shards(group: Any) -> list[torch.Tensor]:
        outputs = [torch.zeros(0), torch.zeros(0)]
        dist.all_gather_single(outputs[0], torch.zeros(0), group=group)
        dist.broadcast(outputs[1], 0, group=group)
        scalar = torch.tensor(rank)
        dist.broadcast(scalar, 1, group=group)
        return [*outputs, scalar]

    def future_of_shards(group: Any) -> list[torch.Tensor]:
        output = torch.zeros(size)
        work = dist.all_gather_single(output, torch.ones(1) + rank, group=group, async_op=True)
        work.get_future().wait()
        return [output]

    def future(group: Any) -> list[torch.Tensor]:
        work = dist.all_reduce(values(torch.float32), group=group, async_op=True)
        found = work.get_future().then(lambda done: [2 * tensor for tensor in done.value()]).wait()
        work.wait()
        return list(found)

    def functionally(group: Any) -> list[torch.Tensor]:
        group = group or dist.group.WORLD
        return [
            functional.all_reduce(values(torch.float32), "sum", group) + 0,
            functional.all_gather_tensor(values(torch.float32), 0, group) + 0,
            functional.reduce_scatter_tensor(values(torch.float32, shape=(4 * size,)), "sum", 0, group) + 0,
            functional.broadcast(values(torch.float32), 1, group) + 0,
            *functional.all_gather_into_tensor_coalesced([values(torch.float32)], group),
            *functional.reduce_scatter_tensor_coalesced(
                [values(torch.float32, shape=(2 * size,))], "avg", [0], group
            ),
        ]

    def complex_sum(group: Any) -> list[torch.Tensor]:
        tensor = torch.complex(values(torch.float32), values(torch.float32, seed=1))
        dist.all_reduce(tensor, group=group)
        return [torch.view_as_real(tensor)]

    def wide(group: Any) -> list[torch.Tensor]:
        tensor = torch.tensor([2**62 + rank, -(2**50) - rank, -1, 2**63 - 1])  # the last wraps around
        dist.all_reduce(tensor, group=group)
        return [tensor]

    def from_gradients(group: Any) -> list[torch.Tensor]:
        tensor = values(torch.float32).requires_grad_()
        dist.all_reduce(tensor, group=group)
        return [tensor.detach()]

    def empty_and_scalar(group: Any) -> list[torch.Tensor]:
        tensors = [torch.zeros(0), torch.zeros(3, 0, 2), torch.tensor(rank + 0.5), torch.tensor(rank)]
        for tensor in tensors:
            dist.all_reduce(tensor, group=group)
        return tensors[2:] + [torch.tensor(tensor.shape) for tensor in tensors]

    yield from (
        (call.__name__, call)
        for call in (
            *(all_gather_object, gather_object, broadcast_object_list, scatter_object_list, barrier),
            *(coalesced, coalesced_shards, shards_in_place, empty_shards, future_of_shards),
            *(future, functionally, complex_sum, wide, from_gradients, empty_and_scalar),
        )
    )


@in_group()
def agree_with_gloo() -> dict[str, Any]:
    """Make every call in the default group, in one of all ranks, and in one of gloo, and compare."""
    groups = {"default": None, "sub": dist.new_group(list(range(dist.get_world_size())))}
    gloo = dist.new_group(backend="gloo")
    calls = [
        *(
            each
            for op in OPERATIONS
            for dtype in DTYPES
            for way in (False, True)
            for each in reductions(op, dtype, way)
        ),
        *(each for dtype in DTYPES for way in (False, True) for each in movements(dtype, way)),
        *others(),
    ]
    differ = []
    beyond = set()
    for name, call in calls:
        expected_error, expected = outcome(call, gloo)
        for label, group in groups.items():
            if label == "sub" and "async=True" in name:
                continue
            error, found = outcome(call, group)
            if expected_error and not error:
                beyond.add(name)
                continue
            same = error == expected_error and len(found) == len(expected)
            if not same or not all(map(close, found, expected)):
                differ.append(f"{label}: {name}: {error} {found}, gloo: {expected_error} {expected}")
    sub = hostlib.torch.paths(groups["sub"])
    paths = hostlib.torch.paths()
    return {"calls": len(calls), "differ": differ, "beyond": sorted(beyond), "paths": paths, "sub": sub}


def more_than_gloo() -> Any:
    """Averages of integers, and movements of types that gloo does not know."""
    rank = begin()
    found: dict[str, Any] = {}
    for dtype in (torch.int32, torch.int64):
        many = torch.tensor([2**31 - 1, -7 - rank, 4], dtype=dtype)
        work = dist.all_reduce(many, dist.ReduceOp.AVG, async_op=True)
        work.wait()
        found[f"mean {dtype}"] = many.tolist()
        whole = torch.tensor([[2**31 - 1, -7 - rank], [4, 4]], dtype=dtype)
        shard = torch.empty(1, 2, dtype=dtype)
        dist.reduce_scatter_single(shard, whole, dist.ReduceOp.AVG)
        found[f"shards {dtype}"] = shard.tolist()
    for dtype in (torch.int16, torch.uint16, torch.bool, torch.uint8, torch.complex64):
        own = torch.tensor([[rank, 1], [0, 1 - rank]]).to(dtype)
        sent = own.clone()
        dist.broadcast(sent, 1)
        parts = [torch.zeros_like(own) for _ in range(2)]
        dist.all_gather(parts, own)
        whole = torch.empty(4, 2, dtype=dtype)
        dist.all_gather_into_tensor(whole, own)
        exchanged = torch.empty(2, 2, dtype=dtype)
        dist.all_to_all_single(exchanged, own)
        scattered = torch.empty(2, 2, dtype=dtype)
        dist.scatter(scattered, [own, own] if rank == 0 else None, 0)
        gathered = [torch.empty_like(own) for _ in range(2)] if rank == 1 else None
        dist.gather(own, gathered, 1)
        received = own.clone()
        if rank:
            dist.send(own, 0)
        else:
            dist.recv(received, 1)
        scalar = torch.tensor(rank).to(dtype)
        dist.broadcast(scalar, 1)
        every = [[[0, 1], [0, 1]], [[1, 1], [0, 0]]]
        values_ = [sent, torch.stack(parts), whole, exchanged, scattered, received, scalar]
        right = [every[1], every, every[0] + every[1], [row[rank] for row in every], *every, 1]
        if gathered:
            values_.append(torch.stack(gathered))
            right.append(every)
        found[f"moved {dtype}"] = [
            torch.equal(value, torch.tensor(expected).to(dtype))
            for value, expected in zip(values_, right, strict=True)
        ]
    dist.destroy_process_group()
    return found


def inputs() -> dict[str, Any]:
    """Hand in what is unusual, or not to be summed; the group goes on after each."""
    rank = begin()
    found: dict[str, Any] = {}

    def summed(tensor: torch.Tensor, op: Any = dist.ReduceOp.SUM) -> torch.Tensor:
        dist.all_reduce(tensor, op)
        return tensor

    whole = torch.arange(16.0).reshape(4, 4)
    summed(whole[:, ::2])
    found["strided"] = whole.tolist()
    found["transposed"] = summed(torch.arange(6.0).reshape(2, 3).T).tolist()
    sent = torch.tensor([[0.0, 1.0], [8.0, 2.0], [12.0, 3.0], [4.0, 3.0]])
    dist.broadcast(sent[:3].T[0 if rank else 1], 1)  # of rank 1 the first column
    dist.broadcast(sent[3:, 1].add_(rank), 0)  # one element, whose stride is two
    found["strided broadcast"] = sent.tolist()
    gathered = torch.zeros(2, 2, 2)
    dist.all_gather_single(gathered.transpose(1, 2), rank + torch.arange(4.0).view(2, 2))
    found["strided gathered"] = gathered.tolist()
    scattered = torch.zeros(4)
    parts = [rank + torch.arange(8.0).view(4, 2)[2 * part : 2 * part + 2].T[1] for part in (0, 1)]
    dist.reduce_scatter(scattered[::2], parts)
    found["strided scattered"] = scattered[::2].tolist()
    found["uneven"] = raised(lambda: dist.all_gather([torch.zeros(2), torch.zeros(3)], torch.zeros(2)))
    found["strided in gloo"] = [
        summed(torch.arange(6.0).view(3, 2)[:, rank], dist.ReduceOp.MAX).tolist(),
        dist.all_reduce(torch.arange(6).double().view(3, 2)[:, 1], async_op=True)
        .get_future()
        .wait()[0]
        .tolist(),
    ]
    found["negated"] = summed(torch.tensor([1j, 2j]).conj().imag if rank else torch.ones(2)).tolist()
    found["paths"] = hostlib.torch.paths()
    found["empty"] = summed(torch.empty(0, 3)).tolist()
    found["scalar"] = summed(torch.tensor(1.0 + rank)).tolist()
    found["nan"] = summed(torch.tensor([1.0, torch.nan if rank else 1.0])).isnan().tolist()
    found["inf"] = summed(torch.tensor([1.0, torch.inf])).isnan().tolist()
    found["half inf"] = summed(torch.tensor([6e4, 1.0], dtype=torch.float16)).tolist()[0] == float("inf")
    found["overlapping"] = raised(lambda: summed(torch.ones(1).expand(3)))
    found["device"] = raised(lambda: summed(torch.ones(3, device="meta")))
    found["device of gloo"] = raised(lambda: dist.broadcast(torch.ones(3, device="meta"), 0))
    found["overflow"] = raised(lambda: summed(torch.full((3,), 2**31 - 1, dtype=torch.int32)))
    found["options"] = raised(lambda: dist.new_group(backend="ina", pg_options=object()))
    found["twice"] = raised(lambda: dist.init_process_group("ina"))
    work = dist.all_reduce(torch.ones(2), async_op=True)
    reader, writer = os.pipe()
    if os.fork() == 0:
        signal.alarm(20)
        found["forked"] = raised(lambda: summed(torch.ones(3)))
        found["forked barrier"] = raised(dist.barrier)
        dist.destroy_process_group()
        os.write(writer, repr((found["forked"], found["forked barrier"])).encode())
        os._exit(0)
    os.wait()
    found["forked"] = os.read(reader, 4096).decode()
    work.wait()
    found["after"] = summed(torch.ones(2)).tolist()
    found["bucket of gloo"] = raised(
        lambda: hostlib.torch.BucketState(torch.nn.Linear(1, 1), dist.new_group(backend="gloo")),
    )
    group = dist.group.WORLD
    dist.destroy_process_group()
    found["destroyed"] = raised(lambda: group.allreduce([torch.ones(2)]))
    found["destroyed here"] = raised(lambda: summed(torch.ones(2)))
    group.shutdown()  # again: nothing to do
    found["again"] = raised(
        lambda: dist.init_process_group("ina", store=dist.HashStore(), rank=rank, world_size=2)
    )
    return found


def nonfinite_raised() -> list[Any]:
    """With INA_NONFINITE=raise."""
    rank, tensor = begin(), torch.ones(1)
    said = raised(lambda: dist.all_reduce(torch.tensor([torch.inf if rank else 1.0])))
    dist.all_reduce(tensor)
    return [said, tensor.tolist()]


def sums_of_float64() -> Any:
    rank = begin()
    tensor = torch.tensor([1.0, 1e-12 if rank else 1.0], dtype=torch.float64)
    dist.all_reduce(tensor)
    return [tensor.tolist() == [2.0, 1.0 + 1e-12], hostlib.torch.paths()]


def joined_again() -> Any:
    """Ranks of torchrun, whose store outlives their groups; what they hold after each."""
    del os.environ["INA_JOB"]
    store = dist.TCPStore(
        os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]), 2, os.environ["RANK"] == "0"
    )
    found: list[Any] = []
    left = []
    for number in range(5):
        dist.init_process_group(
            "ina", store=store, rank=int(os.environ["RANK"]), world_size=int(os.environ["WORLD_SIZE"])
        )
        tensor = torch.full((3,), number + 1.0)
        dist.all_reduce(tensor)
        dist.all_reduce(tensor, dist.ReduceOp.MAX)  # by gloo
        if number == 0:
            sub = dist.new_group([0, 1])
            dist.all_reduce(tensor, group=sub)
        paths = hostlib.torch.paths()
        dist.destroy_process_group()
        found.append([tensor.tolist(), sorted(paths["allreduce sum float32"])])
        left.append([len([*Path("/proc/self", each).iterdir()]) for each in ("fd", "task")])
    return [found, left]


def groups_again() -> Any:
    """Make groups again and again; return what is held early and at the end, and what was received."""
    rank = begin()
    left = []
    for _ in range(6):
        first, second = dist.new_group([0, 1]), dist.new_group([1, 0])
        for group in (second, first):
            dist.all_reduce(torch.ones(3), dist.ReduceOp.MAX, group=group)  # by gloo
            (dist.recv if rank else dist.send)(torch.ones(3), 1 - rank, group=group)
            for work in [dist.isend(torch.ones(3), 1 - rank, group), dist.irecv(torch.ones(3), group=group)]:
                work.wait()
        for group in (first, second) if rank else (second, first):
            dist.destroy_process_group(group)
        dist.barrier()
        left.append([len([*Path("/proc/self", each).iterdir()]) for each in ("fd", "task")])
    group = dist.new_group([0, 1])
    if rank == 0:
        dist.isend(torch.tensor([1.0]), 1, group=group)  # never received
    dist.destroy_process_group(group)
    group, received = dist.new_group([0, 1]), torch.tensor([2.0])
    if rank == 0:
        dist.send(received, 1, group=group)
    else:
        dist.recv(received, 0, group=group)
    dist.destroy_process_group(group)
    group = dist.new_group([0, 1], timeout=timedelta(seconds=0.5))
    for late in range(2):  # rank 1 calls it when rank 0 has given up
        if late == rank:
            with contextlib.suppress(RuntimeError):
                dist.all_reduce(received, dist.ReduceOp.MAX, group=group)
        dist.barrier()
    dist.destroy_process_group(group)
    group = dist.new_group([0, 1], timeout=timedelta(seconds=0.5))
    dist.all_reduce(received, dist.ReduceOp.MAX, group=group)
    dist.destroy_process_group()
    return [left[1], left[-1], received.item()]


def bench_model(width: int = 4) -> torch.nn.Module:
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(3, width), torch.nn.ReLU(), torch.nn.Linear(width, 2))


def hook() -> dict[str, Any]:
    """Train with the communication hook, in buckets of one tensor or so, without, and in fewer bits."""
    rank = begin()
    weights = []
    ways: list[tuple[bool, bool, Any]] = [(True, False, None), (False, False, None)]
    ways += [(True, True, None), (True, True, "block8"), (True, True, "block4")]
    for hooked, feedback, numbers in ways:
        network = DistributedDataParallel(bench_model(), bucket_cap_mb=1e-5)
        if hooked:
            state = hostlib.torch.BucketState(network, numbers=numbers, error_feedback=feedback)
            network.register_comm_hook(state, hostlib.torch.bucket_hook)
        optimizer = torch.optim.SGD(network.parameters(), 0.1)
        for step in range(3):
            optimizer.zero_grad()
            torch.manual_seed(10 * step + rank)
            network(torch.randn(5, 3)).square().sum().backward()
            optimizer.step()
        weights.append(torch.cat([parameter.detach().reshape(-1) for parameter in network.parameters()]))
    largest = float((weights[0] - weights[1]).abs().max())
    coarse = [float((each - weights[1]).abs().max()) for each in weights[2:]]
    refused = raised(lambda: hostlib.torch.BucketState(network, numbers="exponent", error_feedback=True))
    paths = hostlib.torch.paths()
    names = hostlib.torch.BucketState(network)
    parameters = list(network.parameters())
    dist.destroy_process_group()
    return {
        "largest": largest,
        "coarse": coarse,
        "refused": refused,
        "weights": [weights[0].tolist(), *(each.tolist() for each in weights[2:])],
        "paths": paths,
        "name": [names.name(parameters[:1]), names.name(parameters[1:])],
        "layer": [names.layer(parameters[:1]), names.layer(parameters[2:])],
    }


def example_with_gloo() -> list[float]:
    dist.init_process_group("gloo")
    script = Path(__file__).parents[3] / "examples" / "torch_ddp.py"
    losses: list[float] = runpy.run_path(str(script))["train"](2)
    return losses


# Each of these breaks its group.


def other_shapes() -> None:
    rank = begin()
    dist.all_reduce(torch.ones(2))
    dist.all_reduce(torch.ones(3 + rank))


def other_ways() -> None:
    """One rank waits in the switch, the other in gloo."""
    rank = begin()
    dist.barrier()
    dist.all_reduce(torch.ones(3), dist.ReduceOp.MAX if rank else dist.ReduceOp.SUM)


def other_calls() -> None:
    """Both wait in gloo, in different calls."""
    rank = begin()
    if rank:
        dist.barrier()
    else:
        dist.all_reduce(torch.ones(3), dist.ReduceOp.MAX)


def other_buckets() -> None:
    """Two models alike, of which one rank trains the other first."""
    rank = begin()
    networks = []
    for name in ("encoder", "decoder"):
        network = DistributedDataParallel(torch.nn.ModuleDict({name: bench_model()}))
        network.register_comm_hook(hostlib.torch.BucketState(network), hostlib.torch.bucket_hook)
        network.module.forward = network.module[name].forward
        networks.append(network)
    networks[rank](torch.ones(1, 3)).sum().backward()


def hook_that_fails() -> None:
    rank = begin()
    network = DistributedDataParallel(bench_model())
    state = hostlib.torch.BucketState(network)

    def hook(state: hostlib.torch.BucketState, bucket: dist.GradBucket) -> torch.futures.Future[torch.Tensor]:
        if rank:
            raise ValueError("a mistake in a hook")
        return hostlib.torch.bucket_hook(state, bucket)

    hook.__annotations__ = {"bucket": dist.GradBucket, "return": torch.futures.Future[torch.Tensor]}
    network.register_comm_hook(state, hook)
    network(torch.ones(1, 3)).sum().backward()


def terminated() -> None:
    rank = begin()
    dist.all_reduce(torch.ones(3))
    if rank:
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(60)
    dist.all_reduce(torch.ones(3))


def too_late() -> Any:
    """A wait that ends before the call does; then the group's own time-out."""
    rank = begin(timeout_s=8)  # within which the ranks have to meet as well
    if rank:
        until_the_first_has_ended()
        return None
    work = dist.all_reduce(torch.ones(3), async_op=True)
    early = raised(lambda: work.wait(timedelta(seconds=0.2)))
    return [early, raised(work.wait), work.is_completed(), work.is_success()]


def late_in_a_group() -> Any:
    """Rank 1 comes to a group when rank 0 has given up; return what each saw, after how long, and a sum."""
    rank, store = begin(), dist.distributed_c10d._get_default_store()
    dist.destroy_process_group(dist.new_group([0, 1], use_local_synchronization=True))  # of the same name
    if rank:
        store.wait(["given up"], timedelta(minutes=1))
    began_s = time.monotonic()
    late = {"timeout": timedelta(seconds=1), "use_local_synchronization": True}
    said, waited_s = raised(lambda: dist.new_group([0, 1], **late)), time.monotonic() - began_s
    store.set("given up", "")
    tensor = torch.ones(1)
    dist.all_reduce(tensor)
    dist.destroy_process_group()
    return [said, waited_s, tensor.item()]


def aborted() -> Any:
    rank = begin()
    if rank:
        until_the_first_has_ended()
        return None
    works = [dist.all_reduce(torch.ones(3), async_op=True), dist.barrier(async_op=True)]
    dist.group.WORLD.abort()
    return [raised(call) for call in (works[0].wait, works[1].wait, lambda: dist.all_reduce(torch.ones(3)))]


@in_group()
def powersgd() -> Any:
    """Its hook waits in callbacks of futures for further collectives."""
    torch.manual_seed(0)
    model = DistributedDataParallel(torch.nn.Sequential(torch.nn.Linear(20, 20), torch.nn.Linear(20, 1)))
    state = powerSGD_hook.PowerSGDState(None, start_powerSGD_iter=2, min_compression_rate=1)
    model.register_comm_hook(state, powerSGD_hook.powerSGD_hook)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for step in range(6):
        optimizer.zero_grad()
        model(values(torch.float32, seed=step, shape=(4, 20))).square().mean().backward()
        optimizer.step()
    weights = [parameter.sum().item() for parameter in model.parameters()]
    paths = sorted(hostlib.torch.paths()["allreduce sum float32"])
    return [weights, paths]


@in_group()
def compiled() -> Any:
    """A compiled DDP model, and the same without compiler; how far their gradients are apart."""
    found = []
    for change in (lambda model: model, lambda model: torch.compile(model, backend="eager")):
        torch.manual_seed(0)
        layers = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.ReLU(), torch.nn.Linear(8, 1))
        model = change(DistributedDataParallel(layers))
        for step in range(2):
            model(values(torch.float32, seed=step, shape=(4, 8))).sum().backward()
        found.append(torch.cat([each.grad.reshape(-1) for each in layers.parameters()]))
    paths = sorted(hostlib.torch.paths()["allreduce sum float32"])
    return [float((found[0] - found[1]).abs().max()), float(found[0].abs().max()) > 0.1, paths]


def uneven_inputs() -> Any:
    """Ranks with fewer batches wait for counts that the others add asynchronously."""
    rank = begin()
    torch.manual_seed(0)
    model = DistributedDataParallel(torch.nn.Linear(3, 1))
    steps = 0
    with Join([model]):
        for step in range(2 + 3 * rank):
            model(values(torch.float32, seed=step, shape=(2, 3))).sum().backward()
            steps += 1
    blocking, waited = torch.full((300_000,), 1.0), torch.full((300_000,), 1.0)
    for tensor, is_async in ((blocking, bool(rank)), (waited, not rank)):
        work = dist.all_reduce(tensor, async_op=is_async)
        if work:
            work.wait()
    gradient = model.module.weight.grad.tolist()
    dist.destroy_process_group()
    return [steps, gradient, blocking.unique().tolist(), waited.unique().tolist()]


@in_group()
def resized() -> Any:
    """Reduced tensors belong to the caller again."""
    found = []
    for dtype in (torch.float32, torch.float16, torch.float64, torch.int32, torch.int64):
        tensor = torch.ones(4, dtype=dtype)
        dist.all_reduce(tensor)
        part = torch.ones(3, 4, dtype=dtype)
        dist.all_reduce(part.t()[1:3])
        tensor.resize_(10_000)
        tensor.untyped_storage().resize_(0)
        part.untyped_storage().resize_(0)
        found.append(tensor.untyped_storage().nbytes())
    return found


@in_group()
def alone() -> Any:
    """One rank: no switch."""
    tensor = torch.ones(2)
    dist.all_reduce(tensor)
    network = DistributedDataParallel(bench_model())
    network(torch.ones(1, 3)).sum().backward()
    paths = hostlib.torch.paths()
    return [tensor.tolist(), paths]
