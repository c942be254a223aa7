"""What ranks of Horovod's interface do in tests; each returns what is to be checked, as JSON has it."""

from __future__ import annotations

import contextlib
import io
import json
import logging
import os
import random
import runpy
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import sharded_scenarios
import torch
import torch.distributed as dist
from torch_scenarios import close, raised, values

import hostlib
import hostlib.horovod as hvd
import hostlib.torch
from hostlib.horovod.negotiation import Announcement
from hostlib.horovod.world import current


@contextlib.contextmanager
def in_world() -> Iterator[None]:
    """Have Horovod's world there before a scenario, and gone after it."""
    hvd.init()
    yield
    hvd.shutdown()


def mine(*shape: int, dtype: torch.dtype = torch.float32, rank: int | None = None) -> torch.Tensor:
    return values(dtype, shape=shape, rank=rank)


def everybodys(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.stack([mine(*shape, dtype=dtype, rank=rank) for rank in range(hvd.size())])


@in_world()
def horovod_reductions() -> Any:
    wrong = []
    reduced: dict[Any, Callable[[torch.Tensor], torch.Tensor]] = {
        hvd.Sum: lambda every: every.sum(0),
        hvd.Min: lambda every: every.amin(0),
        hvd.Max: lambda every: every.amax(0),
        hvd.Product: lambda every: every.prod(0),
        hvd.Average: lambda every: every.mean(0),
    }

    def check(what: str, found: torch.Tensor, expected: torch.Tensor) -> None:
        if not close(found, expected):
            wrong.append(f"{what}: {found}, not {expected}")

    for dtype in (torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.int32, torch.int64):
        every = everybodys(5, 3, dtype=dtype)
        for op, reduce in reduced.items():
            expected = reduce(every.double()).to(dtype)  # rounds towards zero
            own = mine(5, 3, dtype=dtype)
            check(f"{op} {dtype}", hvd.allreduce(own, op=op), expected)
            check("left alone", own, every[hvd.rank()])
            hvd.allreduce_(own, op=op, name="in place")
            check(f"in place {op} {dtype}", own, expected)
            handle = hvd.allreduce_async(mine(5, 3, dtype=dtype), op=op)
            check(f"async {op} {dtype}", hvd.synchronize(handle), expected)
            many = hvd.grouped_allreduce([mine(5, 3, dtype=dtype), mine(5, 3, dtype=dtype)[:2]], op=op)
            check(f"grouped {op} {dtype}", many[1], expected[:2])
            rows = hvd.reducescatter(mine(5, 3, dtype=dtype), op=op)
            check(f"scattered {op} {dtype}", rows, expected[:3] if hvd.rank() == 0 else expected[3:])
    every = everybodys(4)
    check("default", hvd.allreduce(mine(4)), every.mean(0))
    check("of old", hvd.allreduce(mine(4), average=False), every.sum(0))
    scaled = hvd.allreduce(mine(4), op=hvd.Sum, prescale_factor=0.5, postscale_factor=3.0)
    check("scaled", scaled, 1.5 * every.sum(0))
    for op, prescale, expected in (
        (hvd.Sum, 0.3, torch.tensor(14.0) * 0.3),
        (hvd.Average, 0.7, torch.tensor(7.0) * 0.7),
    ):
        exact = hvd.allreduce(torch.tensor([7.0, 0.001]), op=op, prescale_factor=prescale)
        wrong += [] if exact[0] == expected else [f"prescaled {op} {exact}"]
    half = hvd.allreduce(mine(4), compression=hvd.Compression.fp16)
    wrong += [] if (half - every.mean(0)).abs().max() < 2e-3 and half.dtype == torch.float32 else ["fp16"]
    large = hvd.allreduce(mine(4) * 1e6, compression=hvd.Compression.fp16)  # no float16 is so large
    wrong += [] if (large - 1e6 * every.mean(0)).abs().max() < 2e3 else ["fp16 of large numbers"]
    eight = hvd.allreduce(mine(4), compression=hvd.Compression.block8)
    bound = hostlib.error_bound(float(every.abs().max()), hvd.size(), numbers="block8") / hvd.size()
    off = float((eight - every.mean(0)).abs().max())
    wrong += [] if 1e-6 < off <= bound else [f"block8 {off}"]
    least = hvd.allreduce(mine(4), compression=hvd.Compression.fp16, op=hvd.Min)
    wrong += [] if (least - every.min(0).values).abs().max() < 2e-3 else ["fp16 by gloo"]
    whole = [mine(2), mine(3)]
    hvd.grouped_allreduce_(whole, op=hvd.Sum)
    check("grouped in place", whole[1], everybodys(3).sum(0))
    parts = hvd.synchronize(hvd.grouped_reducescatter_async([mine(4)], op=hvd.Sum))
    check("grouped scatter", parts[0], every.sum(0)[2 * hvd.rank() :][:2])
    weight = mine(3).requires_grad_()
    (hvd.allreduce(weight, op=hvd.Sum) * (hvd.rank() + 1)).sum().backward()
    check("gradient", weight.grad, torch.full((3,), 3.0))
    paths = hostlib.torch.paths()
    return [wrong, sorted(paths["allreduce sum float32"]), sorted(paths["allreduce avg float32"])]


def horovod_movements() -> Any:
    hvd.init()
    rank, size = hvd.rank(), hvd.size()
    found: dict[str, Any] = {}
    rows = torch.full((rank + 1, 2), float(rank))
    found["allgather"] = hvd.allgather(rows).tolist()
    found["grouped"] = [each.tolist() for each in hvd.grouped_allgather([rows[:1], torch.tensor(rank)])]
    found["broadcast"] = hvd.broadcast(torch.tensor([rank]), 1).tolist()
    own = torch.tensor([rank, rank])
    hvd.broadcast_(own, 1)
    found["broadcast_"] = own.tolist()
    output, received = hvd.alltoall(torch.arange(3) + 10 * rank, splits=torch.tensor([1, 2]))
    found["alltoall"] = [output.tolist(), received.tolist()]
    found["equal"] = hvd.alltoall(torch.arange(2) + 10 * rank).tolist()
    found["object"] = hvd.broadcast_object({"rank": rank, "tensor": torch.tensor(rank)}, 1)["rank"]
    found["objects"] = [each["rank"] for each in hvd.allgather_object({"rank": rank, "text": "x" * rank})]
    gathered = torch.ones(rank + 1, requires_grad=True)
    (hvd.allgather(gathered) * torch.arange(3)).sum().backward()
    found["gathered gradient"] = gathered.grad.tolist()
    sent = torch.ones(2, requires_grad=True)
    (hvd.broadcast(sent, 0) * (rank + 1)).sum().backward()
    found["broadcast gradient"] = sent.grad.tolist()
    exchanged = torch.ones(2, requires_grad=True)
    (hvd.alltoall(exchanged) * torch.tensor([1.0, 10.0]) * (rank + 1)).sum().backward()
    found["exchanged gradient"] = exchanged.grad.tolist()
    hvd.barrier()
    found["places"] = [
        *(hvd.is_initialized(), rank, size, hvd.local_rank(), hvd.local_size()),
        *(hvd.cross_rank(), hvd.cross_size(), hvd.is_homogeneous()),
    ]
    hvd.shutdown()
    found["after"] = [hvd.is_initialized(), dist.is_initialized()]
    found["threads"] = [thread.name for thread in threading.enumerate() if thread.name.startswith("horovod")]
    return found


@in_world()
def horovod_order() -> Any:
    """Submit in another order on each rank."""
    shuffled = list(range(40))
    random.Random(hvd.rank()).shuffle(shuffled)
    handles = {
        number: hvd.allreduce_async(torch.full((number + 1,), float(number)), name=f"t{number}", op=hvd.Sum)
        for number in shuffled
    }
    sums = {number: hvd.synchronize(handle).tolist() for number, handle in handles.items()}
    polled = hvd.allreduce_async(torch.ones(1), name="polled")
    while not hvd.poll(polled):
        time.sleep(0.001)
    hvd.synchronize(polled)
    return [sums[n] == [2.0 * n] * (n + 1) for n in range(40)], hvd.synchronize(polled)


@in_world()
def horovod_sets() -> Any:
    one, both = hvd.add_process_set([1]), hvd.ProcessSet([0, 2])
    hvd.add_process_set(both)
    found = [[each.rank(), each.size(), each.included()] for each in (one, both, hvd.global_process_set)]
    mine_ = both if both.included() else one
    found += [
        hvd.allreduce(torch.tensor([float(hvd.rank())]), process_set=mine_, op=hvd.Sum).tolist(),
        hvd.allreduce(torch.tensor([float(hvd.rank())]), process_set=mine_).tolist(),
        hvd.allgather(torch.tensor([hvd.rank()]), process_set=mine_).tolist(),
    ]
    found += [
        raised(lambda: hvd.allreduce(torch.ones(1), process_set=one if both.included() else both)),
        raised(lambda: hvd.add_process_set([0, 2])),
        raised(lambda: hvd.add_process_set([7])),
    ]
    found.append([hvd.remove_process_set(one), hvd.remove_process_set(one)])
    return found


@in_world()
def horovod_set_used_before_all_know_it() -> Any:
    """The last rank, which is not in the set, hears of its collectives before it has made it."""
    if hvd.rank() == 2:
        carry_out, seen = current()._carry_out, threading.Event()
        current()._carry_out = lambda announced: (carry_out(announced), seen.set())
        seen.wait(60)
        hvd.add_process_set([0, 1])
        found = []
    else:
        found = hvd.allreduce(torch.ones(1), op=hvd.Sum, process_set=hvd.add_process_set([0, 1])).tolist()
    found += hvd.allreduce(torch.ones(1), op=hvd.Sum).tolist()
    return found


def horovod_sets_in_the_switch() -> Any:
    """Two process sets that overlap; for the job see `sharded_scenarios.begin`."""
    sharded_scenarios.begin()
    hvd.init()
    rank, found = hvd.rank(), []
    for each in [hvd.add_process_set(ranks) for ranks in ([0, 1, 2], [2, 3])]:
        if each.included():
            own = torch.full((300,), rank + 1.0)
            results = [
                hvd.allreduce(own, op=hvd.Sum, process_set=each),
                hvd.allreduce(own, process_set=each, prescale_factor=2.0),
                hvd.allreduce(own, process_set=each, compression=hvd.Compression.fp16),
                hvd.allreduce(own.long(), op=hvd.Sum, process_set=each),
                hvd.broadcast(own, each.members()[1], process_set=each),
                hvd.allgather(own[:1], process_set=each),
            ]
            found.append([[tensor.unique().tolist() for tensor in results], hostlib.torch.paths(each.group)])
    hvd.shutdown()
    dist.destroy_process_group()
    return found


@in_world()
def horovod_set_removed_by_others() -> Any:
    first = hvd.add_process_set([0])
    if hvd.rank():
        hvd.remove_process_set(first)  # rank 0 still uses it: its announcements come here too
    hvd.barrier()
    alone = hvd.allreduce(torch.ones(1), process_set=first).tolist() if hvd.rank() == 0 else []
    if hvd.rank() == 0:
        hvd.remove_process_set(first)
    together = hvd.allreduce(torch.ones(1), op=hvd.Sum).tolist()
    again = hvd.add_process_set([0])
    last = hvd.allreduce(torch.ones(1), process_set=again).tolist() if again.included() else []
    return [alone, together, last]


def horovod_thread_that_fails() -> Any:
    hvd.init()
    if hvd.rank() == 0:
        unknown = Announcement("a", process_set=99, set_removed=True)
        current().link.announced.put(unknown)
        current()._thread.join()
    dist.barrier()
    errors = [raised(lambda: hvd.allreduce(torch.ones(1))) for _ in range(2)]
    dist.barrier()
    return errors


@in_world()
def horovod_gradients() -> Any:
    rank = hvd.rank()

    def gradients(sizes: list[int], call: Callable[[list[torch.Tensor]], list[torch.Tensor]]) -> Any:
        own = [torch.ones(size, requires_grad=True) for size in sizes]
        results = call(own)
        # all that follows is another function of the result on each rank: gradients rank + 1
        sum(((rank + 1) * each).sum() for each in results).backward()
        return [each.grad.tolist() for each in own]

    rows = 1 + rank
    found = {
        "allgather": gradients([rows], lambda own: [hvd.allgather(own[0])]),
        "grouped_allgather": gradients([rows, 2], hvd.grouped_allgather),
        "broadcast": gradients([2], lambda own: [hvd.broadcast(own[0], 1)]),
    }
    for op in (hvd.Sum, hvd.Average):
        found[f"reducescatter {op.value}"] = gradients(
            [3], lambda own, op=op: [hvd.reducescatter(own[0], op=op, postscale_factor=0.5)]
        )
        found[f"grouped_reducescatter {op.value}"] = gradients(
            [2, 3], lambda own, op=op: hvd.grouped_reducescatter(own, op=op)
        )
    return found


@in_world()
def horovod_join() -> Any:
    sums = [
        hvd.allreduce(torch.ones(3), name=f"step {step}", op=hvd.Sum).tolist()
        for step in range(2 + 2 * hvd.rank())
    ]
    error, averages = None, []
    if hvd.rank():
        averages = [
            hvd.allreduce(torch.ones(3), name=f"sum by {way.__name__}", compression=way).tolist()
            for way in (hvd.Compression.none, hvd.Compression.fp16)
        ]
        error = raised(lambda: hvd.allreduce(torch.ones(3), name="greatest", op=hvd.Max))
    last = hvd.join()
    after = hvd.allreduce(torch.ones(1), op=hvd.Sum).tolist()
    return [sums, averages, error, last, after]


@in_world()
def horovod_joins_in_turn() -> Any:
    """Each rank once is the first that has no more data, while the others gather, without a name."""
    errors, last = [], []
    for first in range(hvd.size()):
        if hvd.rank() != first:
            errors.append(raised(lambda: hvd.allgather(torch.ones(1))))
        last.append(hvd.join())
        assert hvd.allgather_object(last[-1]) == [last[-1]] * hvd.size()
    return errors, last


def horovod_inits() -> Any:
    """Begin again and again, while another rank each time is slow to leave."""
    del os.environ["INA_JOB"]  # as under torchrun: jobs of their own
    destroy = dist.destroy_process_group
    sums = []
    for slow in range(2):

        def leave(group: Any = None, late: bool = int(os.environ["RANK"]) == slow) -> None:
            time.sleep(0.5 if late else 0)
            destroy(group)

        dist.destroy_process_group = leave
        hvd.init()
        sums.append(hvd.allreduce(torch.tensor([1.0]), op=hvd.Sum).item())
        assert hvd.allgather_object(hvd.rank()) == [0, 1, 2]
        hvd.shutdown()
        assert not hvd.is_initialized()
    return sums


def horovod_refusals() -> Any:
    hvd.init()
    found: dict[str, Any] = {}
    rank = hvd.rank()
    found["shapes"] = raised(lambda: hvd.allreduce(torch.ones(3 + rank), name="w"))
    found["kinds"] = raised(
        lambda: hvd.broadcast(torch.ones(3), 0, "v") if rank else hvd.allreduce(torch.ones(3), name="v"),
    )
    found["roots"] = raised(lambda: hvd.broadcast(torch.ones(3), rank, "r"))
    found["no rank"] = raised(lambda: hvd.broadcast(torch.ones(3), 5, "n"))
    found["no whole rank"] = raised(lambda: hvd.broadcast(torch.ones(3), 1.0, "n"))
    found["adasum"] = raised(lambda: hvd.allreduce(torch.ones(3), op=hvd.Adasum))
    found["elastic"] = raised(lambda: hvd.elastic)
    found["has elastic"] = hasattr(hvd, "elastic")
    found["sparse"] = raised(lambda: hvd.allreduce(torch.ones(3).to_sparse()))
    found["sparse async"] = raised(lambda: hvd.sparse_allreduce_async(torch.ones(3), "s", hvd.Sum))
    found["device"] = raised(lambda: hvd.allreduce(torch.ones(3, device="meta")))
    found["splits"] = raised(lambda: hvd.alltoall(torch.ones(3)))
    found["no tensor"] = raised(lambda: hvd.allreduce(3.0))
    found["overflow"] = raised(
        lambda: hvd.allreduce(torch.full((1,), 2**31 - 1, dtype=torch.int32), op=hvd.Sum)
    )
    handle = hvd.allreduce_async(torch.ones(1), name="twice") if rank else 0
    found["twice"] = raised(lambda: hvd.allreduce(torch.ones(1), name="twice") if rank else None)
    hvd.barrier()
    handle = handle or hvd.allreduce_async(torch.ones(1), name="twice")
    hvd.synchronize(handle)
    found["poll"] = raised(lambda: hvd.poll(handle))
    found["after"] = hvd.allreduce(torch.ones(1), op=hvd.Sum).tolist()
    hvd.shutdown()
    found["shut down"] = raised(lambda: hvd.allreduce(torch.ones(1)))
    return found


def network(seed: int = 0) -> torch.nn.Module:
    torch.manual_seed(seed)
    return torch.nn.Sequential(torch.nn.Linear(6, 8), torch.nn.Tanh(), torch.nn.Linear(8, 1))


def trained(steps: int, passes: int = 1, **options: Any) -> list[float]:
    """Train; return the weights."""
    model = network(hvd.rank())
    optimizer = torch.optim.SGD(model.parameters(), 0.1 * (1 + hvd.rank()), momentum=0.9)
    hvd.broadcast_parameters(model.state_dict(), root_rank=0)
    hvd.broadcast_optimizer_state(optimizer, root_rank=0)
    if options.get("groups") == "layers":
        options["groups"] = [list(model[0].parameters()), list(model[2].parameters())]
    optimizer = hvd.DistributedOptimizer(
        optimizer, model.named_parameters(), backward_passes_per_step=passes, **options
    )
    for step in range(steps):
        optimizer.zero_grad()
        for number in range(passes):
            data = batch(step * passes + number, hvd.rank())
            (model(data).square().mean() / passes).backward()
        if step % 2:
            optimizer.synchronize()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 10.0)
            with optimizer.skip_synchronize():
                optimizer.step()
        else:
            optimizer.step()
    return torch.cat([each.detach().reshape(-1) for each in model.parameters()]).tolist()


def batch(step: int, rank: int) -> torch.Tensor:
    return torch.randn(4, 6, generator=torch.Generator().manual_seed(1000 * step + rank))


def in_one_process(steps: int, passes: int = 1) -> list[float]:
    """Train as `trained`, with the batches of all ranks in one process."""
    model = network(0)
    optimizer = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9)
    for step in range(steps):
        optimizer.zero_grad()
        for number in range(passes):
            data = torch.cat([batch(step * passes + number, rank) for rank in range(hvd.size())])
            (model(data).square().mean() / passes).backward()
        optimizer.step()
    return torch.cat([each.detach().reshape(-1) for each in model.parameters()]).tolist()


@in_world()
def horovod_training() -> Any:
    """Return how far the weights are from training in one process, for each way to train."""
    ways: dict[str, dict[str, Any]] = {
        "plain": {},
        "two groups": {"groups": 2},
        "layers": {"groups": "layers"},
        "predivided": {"gradient_predivide_factor": 2.0},
        "two passes": {"passes": 2},
        "fp16": {"compression": hvd.Compression.fp16},
        "block8": {"compression": hvd.Compression.block8},
        "block4": {"compression": hvd.Compression.block4, "passes": 2},
    }
    off = {}
    for name, options in ways.items():
        weights = torch.tensor(trained(4, **options))
        off[name] = float((weights - torch.tensor(in_one_process(4, options.get("passes", 1)))).abs().max())
        everybody = hvd.allgather(weights.unsqueeze(0))
        if not torch.equal(everybody[0], everybody[1]):
            off[name] = 1.0
    return off


@in_world()
def horovod_optimizer_refusals() -> Any:
    parameters = list(network().named_parameters())

    def sgd() -> torch.optim.Optimizer:
        return torch.optim.SGD([parameter for _, parameter in parameters], 0.1)

    embedding = torch.nn.Embedding(3, 2, sparse=True)
    sparse = hvd.DistributedOptimizer(torch.optim.SGD(embedding.parameters(), 0.1))
    dense = torch.nn.Embedding(3, 2, sparse=True)
    hvd.broadcast_parameters(dense.state_dict(), 0)
    densified = hvd.DistributedOptimizer(torch.optim.SGD(dense.parameters(), 0.1), sparse_as_dense=True)
    dense(torch.tensor([hvd.rank()])).sum().backward()
    densified.step()
    calls = (
        lambda: hvd.DistributedOptimizer(sgd(), [*parameters, parameters[0]]),
        lambda: hvd.DistributedOptimizer(sgd(), parameters[:2]),
        lambda: hvd.DistributedOptimizer(sgd(), op=hvd.Adasum),
        lambda: hvd.DistributedOptimizer(sgd(), op=hvd.Sum, gradient_predivide_factor=2.0),
        lambda: hvd.broadcast_optimizer_state(torch.optim.LBFGS([parameters[0][1]]), 0),
        lambda: embedding(torch.tensor([1])).sum().backward(),
    )
    found = [": ".join(raised(call)) for call in calls]
    del sparse
    return found, dense.weight.grad.to_dense().tolist()


@in_world()
def horovod_optimizer_attributes() -> Any:
    """Return what programs for Horovod read of optimizers and parameters."""
    model = network()
    fixed = next(model.parameters()).requires_grad_(False)
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD(model.parameters(), 0.1), model.named_parameters())
    hvd.broadcast_optimizer_state(optimizer, 0)
    gradients = [parameter.grad for parameter in model.parameters() if parameter is not fixed]
    names = sorted(optimizer._parameter_names.values())
    return [fixed.grad is None, [int(gradient.count_nonzero()) for gradient in gradients], names]


@in_world()
def horovod_batch_norm() -> Any:
    """Return how far output, gradient and running mean are from those of the whole batch in one process."""
    inputs = [torch.randn(3, 2, 4, generator=torch.Generator().manual_seed(rank)) for rank in range(2)]
    weights = [torch.randn(3, 2, 4, generator=torch.Generator().manual_seed(9 + rank)) for rank in range(2)]
    whole = torch.cat(inputs).requires_grad_()
    plain = torch.nn.BatchNorm1d(2)
    expected = plain(whole)
    (expected * torch.cat(weights)).sum().backward()
    layer = hvd.SyncBatchNorm(2)
    own = inputs[hvd.rank()].clone().requires_grad_()
    output = layer(own)
    (output * weights[hvd.rank()]).sum().backward()
    part = slice(3 * hvd.rank(), 3 * hvd.rank() + 3)
    off = [
        float((output - expected[part]).abs().max()),
        float((own.grad - whole.grad[part]).abs().max()),
        float((layer.running_mean - plain.running_mean).abs().max()),
        float((layer.running_var - plain.running_var).abs().max()),
    ]
    layer.eval()
    off.append(float((layer(own) - plain.eval()(own)).abs().max()))
    return off


def horovod_timeline() -> Any:
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "timeline.json"
        os.environ["HOROVOD_TIMELINE"] = str(file)
        hvd.init()
        hvd.stop_timeline()
        hvd.start_timeline(str(file), mark_cycles=True)
        hvd.allreduce(torch.ones(3), name="w")
        hvd.stop_timeline()
        hvd.shutdown()
        name = "timeline.json" if int(os.environ["RANK"]) == 0 else "timeline.1.json"
        events = json.loads((Path(folder) / name).read_text())
    return [[event.get("ph"), event.get("name"), event.get("args")] for event in events]


def horovod_stall() -> Any:
    said: list[str] = []

    class Keep(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            said.append(record.getMessage())

    logging.getLogger("hostlib.horovod").addHandler(Keep())
    hvd.init()
    if hvd.rank() == 0:
        handle = hvd.allreduce_async(torch.ones(3), name="w")
        while not any("'w'" in line for line in said):  # "go on" may be late, too
            time.sleep(0.01)
        hvd.broadcast_object("go on", name="go on")
    else:
        hvd.broadcast_object(None, name="go on")
        handle = hvd.allreduce_async(torch.ones(3), name="w")
    total = hvd.synchronize(handle).tolist()
    hvd.shutdown()
    return said, total


def horovod_rank_that_ends(how: str) -> Any:
    """Rank 1 does; return what the other hears of it."""
    hvd.init()
    hvd.allreduce(torch.ones(1))
    if hvd.rank():
        ends = {"dies": lambda: os._exit(3), "leaves": hvd.shutdown}
        ends["is_terminated"] = lambda: os.kill(os.getpid(), signal.SIGTERM)
        ends[how]()
        return None
    said = raised(lambda: hvd.allreduce(torch.ones(1), name="w"))
    hvd.shutdown()
    return said


def horovod_alone() -> Any:
    for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "INA_JOB"):
        os.environ.pop(name, None)
    hvd.init()
    found = [hvd.size(), hvd.allreduce(torch.full((2,), 3.0)).tolist(), hvd.allgather(torch.ones(1)).tolist()]
    found += [hvd.broadcast_object("text"), hvd.join()]
    found.append(len(trained(2)))
    hvd.shutdown()
    return found


def example(name: str, *arguments: str) -> str:
    """Run one of the examples as it is; return what it prints."""
    del os.environ["INA_JOB"]  # a job of its own, on the switch itself
    script = Path(__file__).parents[3] / "examples" / f"{name}.py"
    sys.argv = [str(script), *arguments]
    with contextlib.redirect_stdout(io.StringIO()) as output:
        runpy.run_path(str(script), run_name="__main__")
    return output.getvalue()


def example_horovod_digits() -> str:
    return example("horovod_digits", "--epochs", "2")


def example_char_transformer(backend: str) -> str:
    return example("char_transformer", "--steps", "10", "--width", "16", "--write", "9", "--backend", backend)


@in_world()
def horovod_inputs() -> Any:
    """Hand in what is unusual; the others are not held up, and all goes on after each."""
    found: dict[str, Any] = {}
    whole = torch.tensor([[0.0, 1, 2], [4, 5, 6]])
    found["strided"] = hvd.allreduce(whole[:, ::2], op=hvd.Sum).tolist()
    found["left alone"] = whole.tolist()
    hvd.allreduce_(whole[:, ::2], op=hvd.Sum)
    found["in place"] = whole.tolist()
    found["empty"] = hvd.allreduce(torch.empty(0)).tolist()
    found["scalar"] = hvd.allreduce(torch.tensor(1.0 + hvd.rank()), op=hvd.Sum).tolist()
    found["nan"] = hvd.allreduce(torch.tensor([1.0, torch.nan if hvd.rank() else 1.0])).isnan().tolist()
    found["complex"] = raised(lambda: hvd.allreduce(torch.ones(2, dtype=torch.complex64), op=hvd.Max))
    weight = torch.ones(2, requires_grad=True)
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD([weight], 0.1), [("w", weight)])

    def hook(gradient: torch.Tensor) -> None:
        raise ValueError("a mistake in a hook")

    handle = weight.register_hook(hook)
    found["hook"] = raised(lambda: weight.sum().backward())
    handle.remove()
    optimizer.zero_grad()
    weight.sum().backward()
    optimizer.step()
    found["twice"] = raised(hvd.init)
    reader, writer = os.pipe()
    if os.fork() == 0:
        found["forked"] = raised(lambda: hvd.allreduce(torch.ones(2)))
        os.write(writer, json.dumps(found["forked"]).encode())
        os._exit(0)
    os.wait()
    found["forked"] = json.loads(os.read(reader, 4096))
    found["after"] = hvd.allreduce(torch.ones(2), op=hvd.Sum).tolist()
    return found


def horovod_nan_raised() -> Any:
    """With INA_NONFINITE=raise."""
    hvd.init()
    return raised(lambda: hvd.allreduce(torch.tensor([torch.nan])))


@in_world()
def horovod_parameters_that_come_later() -> Any:
    """Add parameters to an optimizer, and unfreeze one; return the gradients, which are averages."""
    model = torch.nn.ParameterDict({name: torch.zeros(2) for name in ("first", "frozen", "added", "unnamed")})
    model["frozen"].requires_grad_(False)
    optimizer = hvd.DistributedOptimizer(
        torch.optim.SGD([model["first"], model["frozen"]], 1.0),
        [(name, parameter) for name, parameter in model.items() if name != "unnamed"],
    )
    optimizer.add_param_group({"params": [model["added"], model["unnamed"]]})
    model["frozen"].requires_grad_(True)
    for _ in range(2):  # once without, and once with a hook of the one that was frozen
        optimizer.zero_grad()
        sum((hvd.rank() + 1) * parameter.sum() for parameter in model.values()).backward()
        optimizer.step()
    weights = [parameter.tolist() for parameter in model.values()]
    names = sorted(optimizer._parameter_names.values())
    return [weights, names]


@in_world()
def horovod_objects_of_other_types() -> Any:
    rank = hvd.rank()
    return [
        hvd.broadcast_object({"a": 1} if rank == 0 else None),
        hvd.broadcast_object([2] if rank == 1 else 3, root_rank=1),
        hvd.allgather_object("text" if rank else 4),
    ]


@in_world()
def horovod_closures() -> Any:
    """Return how far weights and losses are from those of one process with all batches, by optimizer."""
    off = {}
    for cls, options in (
        (torch.optim.SGD, {"lr": 0.1, "momentum": 0.9}),
        (torch.optim.LBFGS, {"lr": 0.5, "max_iter": 4, "line_search_fn": "strong_wolfe"}),
    ):
        ranks = {"own": [hvd.rank()], "whole": list(range(hvd.size()))}
        found = {}
        for what, batches in ranks.items():
            model = network()
            optimizer = cls(model.parameters(), **options)
            if what == "own":
                optimizer = hvd.DistributedOptimizer(optimizer, model.named_parameters())
            losses = []
            for step in range(3):

                def closure(
                    model: Any = model, optimizer: Any = optimizer, step: int = step, batches: Any = batches
                ) -> torch.Tensor:
                    optimizer.zero_grad()
                    loss = sum(model(batch(step, rank)).square().mean() for rank in batches) / len(batches)
                    loss.backward()
                    return loss

                losses.append(float(optimizer.step(closure)))
            weights = torch.cat([each.detach().reshape(-1) for each in model.parameters()])
            found[what] = torch.cat([weights, torch.tensor(losses)])
        every = hvd.allgather(found["own"].unsqueeze(0))
        off[cls.__name__] = [
            float((found["own"] - found["whole"]).abs().max()),
            float((every[0] - every[1]).abs().max()),
        ]
    return off


@in_world()
def horovod_two_optimizers() -> Any:
    """Train two models whose parameters have the same names, one through the other; return their weights."""
    scale = torch.nn.ParameterList([torch.ones(1)])
    judge = torch.nn.ParameterList([torch.ones(1)])
    optimizers = [
        hvd.DistributedOptimizer(torch.optim.SGD(each.parameters(), 0.5), each.named_parameters())
        for each in (scale, judge)
    ]
    said, weights = [], []
    for step in range(2):
        own = torch.tensor([hvd.rank() + 1.0])
        if step:
            said.append(raised(optimizers[1].zero_grad))
            optimizers[1].synchronize()
        for optimizer in optimizers:
            optimizer.zero_grad()
        (own * scale[0] * judge[0]).sum().backward()
        optimizers[0].step()
        weights.append([scale[0].item(), judge[0].grad.item()])
    again = hvd.DistributedOptimizer(torch.optim.SGD(scale.parameters(), 0.5), scale.named_parameters())
    again.zero_grad()
    scale[0].sum().backward()
    again.step()
    weights.append(scale[0].item())
    said.append(raised(optimizers[0].step))
    return [weights, said]


def horovod_after_the_first() -> Any:
    """Return what rank 1 meets, and all that is said there, once rank 0 has ended with torch's store."""
    hvd.init()
    dist.new_group([0, 1])
    store = dist.distributed_c10d._get_default_store()
    if hvd.rank() == 0:
        store.wait(["made"])
        return []
    with tempfile.TemporaryFile() as said:
        os.dup2(said.fileno(), 2)
        store.set("made", "")
        for thread in threading.enumerate():
            if thread.name == "watch":
                thread.join(60)
        hvd.shutdown()
        found = raised(hvd.init)
        said.seek(0)
        return [*found, said.read().decode()]


@in_world()
def horovod_stall_that_ends() -> Any:
    """Rank 1 calls something else; with HOROVOD_STALL_SHUTDOWN_TIME_SECONDS."""
    return [
        raised(lambda name=name: hvd.allreduce(torch.ones(3), name=name))
        for name in (f"only {hvd.rank()}", "all")
    ]


@in_world()
def horovod_names_foresee() -> Any:
    """Return the packets sent in later rounds by sums of one shape, whose values differ by name."""
    communicator = dist.distributed_c10d._get_default_group()._calls.communicator
    before, sent = 0.0, []
    for _ in range(3):
        for name, scale in ("large", 1e6), ("small", 1e-6), ("tiny", 1e-30):
            hvd.allreduce_(torch.full((5000,), scale), name=name, op=hvd.Sum)
        now = communicator.statistics()["packets_sent"]
        sent.append(now - before)
        before = now
    return sent[1:]
