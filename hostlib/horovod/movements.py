"""Allgather, broadcast, alltoall, reducescatter and barrier with Horovod's arguments."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist

from hostlib.horovod.compression import Compressor, NoneCompressor
from hostlib.horovod.handles import check, describe, submit, synchronize
from hostlib.horovod.negotiation import Announcement, Request
from hostlib.horovod.reductions import (
    Average,
    Differentiable,
    How,
    ReduceOp,
    Sum,
    Tensors,
    allreduce,
    grouped,
    grouped_allreduce,
    only,
    operation_of,
    travel,
    waiting,
)
from hostlib.horovod.world import ProcessSet, Started, current, global_process_set


@dataclass(frozen=True, slots=True)
class _Gathered:
    """All ranks' rows of a tensor."""

    tensor: torch.Tensor
    before: int
    """Number of rows of the ranks before this one."""


def _gather(
    kind: str,
    tensors: Tensors,
    name: str | None,
    process_set: ProcessSet,
    finish: Callable[[list[_Gathered]], Any],
) -> int:
    checked = [_with_rows(check(tensor)) for tensor in tensors]

    def start(announcement: Announcement) -> Started:
        members = process_set.members()
        outputs, works = [], []
        for place, tensor in enumerate(checked):
            rows = [announcement.own[rank][place] for rank in members]
            # gloo gathers tensors of one shape only
            padded = tensor.new_zeros([max(rows), *tensor.shape[1:]])
            padded[: len(tensor)] = tensor.detach()
            parts = [torch.empty_like(padded) for _ in members]
            works.append(dist.all_gather(parts, padded, group=process_set.group, async_op=True))
            outputs.append((parts, rows))
        before = slice(process_set.rank())
        return works, lambda: finish(
            [
                _Gathered(
                    torch.cat([part[:n] for part, n in zip(parts, rows, strict=True)]), sum(rows[before])
                )
                for parts, rows in outputs
            ]
        )

    rows = [len(tensor) for tensor in checked]
    return submit(process_set, Request(name or "", kind, describe(checked, rows=False), own=rows), start)


def allgather_async(
    tensor: torch.Tensor, name: str | None = None, process_set: ProcessSet = global_process_set
) -> int:
    """Start `allgather`; return a handle."""
    return _gather("allgather", [tensor], name, process_set, lambda found: found[0].tensor)


def grouped_allgather_async(
    tensors: Tensors, name: str | None = None, process_set: ProcessSet = global_process_set
) -> int:
    """Start `grouped_allgather`; return a handle."""
    return _gather(
        "grouped_allgather", tensors, name, process_set, lambda found: [each.tensor for each in found]
    )


def allgather(
    tensor: torch.Tensor, name: str | None = None, process_set: ProcessSet = global_process_set
) -> torch.Tensor:
    """Return all ranks' tensors, concatenated in the first dimension, whose length may differ by rank.

    The gradient is the average of the ranks' gradients, as in Horovod. For the arguments and errors see
    `allreduce`.
    """
    return grouped_allgather([tensor], name, process_set)[0]


def grouped_allgather(
    tensors: Tensors, name: str | None = None, process_set: ProcessSet = global_process_set
) -> list[torch.Tensor]:
    """Gather several tensors as one collective; see `allgather`."""
    kind = "allgather" if len(tensors) == 1 else "grouped_allgather"
    own: list[slice] = []

    def forth(given: Tensors) -> Tensors:
        found: list[_Gathered] = synchronize(_gather(kind, given, name, process_set, lambda found: found))
        own.extend(
            slice(each.before, each.before + len(_with_rows(tensor)))
            for each, tensor in zip(found, given, strict=True)
        )
        return [each.tensor for each in found]

    def back(gradients: Tensors) -> Tensors:
        means = grouped_allreduce(gradients, op=Average, process_set=process_set)
        return [
            mean[rows].reshape(tensor.shape) for mean, rows, tensor in zip(means, own, tensors, strict=True)
        ]

    return list(Differentiable.apply(forth, back, *tensors))


def _broadcast(
    tensor: torch.Tensor, root_rank: int, name: str | None, process_set: ProcessSet, *, in_place: bool
) -> int:
    check(tensor)
    if not hasattr(root_rank, "__index__") or root_rank not in process_set.members():
        ranks = ", ".join(map(str, process_set.members()))
        raise ValueError(f"root_rank is {root_rank!r}, must be a rank of the process set: {ranks}")

    def start(_: Announcement) -> Started:
        data = tensor.detach() if in_place else tensor.detach().clone()
        moved = data if data.is_contiguous() else data.contiguous()
        work = dist.broadcast(moved, root_rank, group=process_set.group, async_op=True)

        def end() -> torch.Tensor:
            if moved is not data:
                data.copy_(moved)
            return tensor if in_place else data

        return [work], end

    what = f"{describe([tensor])} from rank {root_rank}"
    return submit(process_set, Request(name or "", "broadcast", what), start)


def broadcast_async(
    tensor: torch.Tensor,
    root_rank: int,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
) -> int:
    """Start a broadcast; return a handle. For the arguments see `broadcast`."""
    return _broadcast(tensor, root_rank, name, process_set, in_place=False)


def broadcast_async_(
    tensor: torch.Tensor,
    root_rank: int,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
) -> int:
    """Start a broadcast in place; return a handle. For the arguments see `broadcast`."""
    return _broadcast(tensor, root_rank, name, process_set, in_place=True)


def broadcast(
    tensor: torch.Tensor,
    root_rank: int,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
) -> torch.Tensor:
    """Return the tensor of rank `root_rank`; for the errors see `allreduce`.

    The gradient at that rank is the average of the ranks' gradients, as in Horovod; at other ranks it is 0.

    Args:
        tensor: Of the same type and shape on all ranks.
        root_rank: The rank whose tensor is returned.
        name: Name by which the ranks' calls are matched; None: match calls without a name by their order.
        process_set: The ranks that take part.
    """

    def back(gradients: Tensors) -> Tensors:
        mean = allreduce(gradients[0], op=Average, process_set=process_set)
        return [mean if current().rank == root_rank else torch.zeros_like(mean)]

    sent: torch.Tensor = Differentiable.apply(
        lambda given: [synchronize(broadcast_async(given[0], root_rank, name, process_set))], back, tensor
    )[0]
    return sent


broadcast_ = waiting(
    broadcast_async_,
    "Overwrite a tensor with the one of rank `root_rank`, and return it; for the arguments see `broadcast`.",
)


def alltoall_async(
    tensor: torch.Tensor,
    splits: torch.Tensor | Sequence[int] | None = None,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
) -> int:
    """Start an alltoall; return a handle. For the arguments see `alltoall`."""
    rows = _splits(_with_rows(check(tensor)), splits, process_set.size())

    def start(announcement: Announcement) -> Started:
        place = process_set.rank()
        received = [announcement.own[rank][place] for rank in process_set.members()]
        output = tensor.new_empty([sum(received), *tensor.shape[1:]])
        work = dist.all_to_all_single(
            output,
            tensor.detach().contiguous(),
            received,
            rows,
            group=process_set.group,
            async_op=True,
        )
        return [
            work
        ], lambda: output if splits is None else (output, torch.tensor(received, dtype=torch.int32))

    what = describe([tensor], rows=False)
    return submit(process_set, Request(name or "", "alltoall", what, own=rows), start)


def alltoall(
    tensor: torch.Tensor,
    splits: torch.Tensor | Sequence[int] | None = None,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
) -> Any:
    """Send rows of a tensor to each rank; return the received rows, in the order of the ranks.

    The call is differentiable.

    Args:
        tensor: The rows.
        splits: Number of rows for each rank; None: equal numbers.
        name: Name by which the ranks' calls are matched; None: match calls without a name by their order.
        process_set: The ranks that take part.

    Returns:
        The rows; with `splits` also the number of rows from each rank.

    Raises ValueError for splits that do not fit the tensor.
    """
    rows = _splits(_with_rows(check(tensor)), splits, process_set.size())
    received: list[torch.Tensor] = []

    def forth(given: Tensors) -> Tensors:
        output, numbers = synchronize(alltoall_async(given[0], rows, name, process_set))
        received.append(numbers)
        return [output]

    def back(gradients: Tensors) -> Tensors:
        returned = synchronize(alltoall_async(gradients[0], received[0].tolist(), None, process_set))
        return [returned[0]]

    output = Differentiable.apply(forth, back, tensor)[0]
    return output if splits is None else (output, received[0])


def _splits(tensor: torch.Tensor, splits: Any, size: int) -> list[int]:
    if splits is None:
        if len(tensor) % size:
            raise ValueError(f"{len(tensor)} rows cannot be split equally among {size} ranks: give splits")
        return [len(tensor) // size] * size
    rows = [int(each) for each in splits]
    if len(rows) != size or sum(rows) != len(tensor) or min(rows) < 0:
        raise ValueError(f"splits are {rows}, must be {size} numbers of rows, {len(tensor)} in all")
    return rows


def _with_rows(tensor: torch.Tensor) -> torch.Tensor:
    """Return the tensor; a tensor without dimensions as one row."""
    return tensor.reshape(1) if tensor.dim() == 0 else tensor


def barrier(process_set: ProcessSet = global_process_set) -> None:
    """Wait until all ranks have called this function. Raises HorovodInternalError."""
    synchronize(submit(process_set, Request("", "barrier", ""), lambda _: ((), lambda: None)))


def grouped_reducescatter_async(
    tensors: Tensors,
    name: str | None = None,
    op: ReduceOp | None = None,
    process_set: ProcessSet = global_process_set,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
) -> int:
    """Start a reducescatter of several tensors; return a handle. For the arguments see `allreduce`."""
    how = How(operation_of(op), process_set, prescale_factor, postscale_factor)
    return _scatter("grouped_reducescatter", tensors, name, how)


def reducescatter_async(
    tensor: torch.Tensor,
    name: str | None = None,
    op: ReduceOp | None = None,
    process_set: ProcessSet = global_process_set,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
) -> int:
    """Start a reducescatter; return a handle. For the arguments see `allreduce`."""
    how = How(operation_of(op), process_set, prescale_factor, postscale_factor)
    return _scatter("reducescatter", [tensor], name, how, only)


def reducescatter(
    tensor: torch.Tensor,
    name: str | None = None,
    compression: type[Compressor] = NoneCompressor,
    op: ReduceOp | None = None,
    process_set: ProcessSet = global_process_set,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
) -> torch.Tensor:
    """Return this rank's rows of the average (or of the result of `op`); for the arguments see `allreduce`.

    If the rows cannot be divided equally, the first ranks get one row more. The switch sends sums to all
    ranks, so this is an `allreduce` that drops the rows of other ranks.

    The gradient is the concatenation of the ranks' gradients, multiplied by both factors. For a sum it is
    also multiplied by the number of ranks, as in Horovod.
    """
    return grouped_reducescatter(
        [tensor], name, compression, op, process_set, prescale_factor, postscale_factor
    )[0]


def grouped_reducescatter(
    tensors: Tensors,
    name: str | None = None,
    compression: type[Compressor] = NoneCompressor,
    op: ReduceOp | None = None,
    process_set: ProcessSet = global_process_set,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
) -> list[torch.Tensor]:
    """Return this rank's rows of several tensors; see `reducescatter`."""
    how = How(operation_of(op), process_set, prescale_factor, postscale_factor)
    compression, how = how.compressed(compression)
    kind = "reducescatter" if len(tensors) == 1 else "grouped_reducescatter"
    scale = prescale_factor * postscale_factor * (process_set.size() if how.op is Sum else 1)
    return travel(
        tensors,
        compression,
        lambda given: synchronize(_scatter(kind, given, name, how)),
        lambda gradients: grouped_allgather([each * scale for each in gradients], process_set=process_set),
    )


def _scatter(
    kind: str,
    tensors: Tensors,
    name: str | None,
    how: How,
    finish: Callable[[list[torch.Tensor]], Any] = list,
) -> int:
    for tensor in tensors:
        if check(tensor).dim() == 0:
            raise ValueError("a tensor without dimensions has no rows to scatter")

    def own(whole: list[torch.Tensor]) -> Any:
        return finish([each[_own_rows(each, how.process_set)].clone() for each in whole])

    return grouped(kind, tensors, name, how, own)


def _own_rows(tensor: torch.Tensor, process_set: ProcessSet) -> slice:
    rank, size = process_set.rank(), process_set.size()
    least, more = divmod(tensor.shape[0], size)
    first = rank * least + min(rank, more)
    return slice(first, first + least + (rank < more))
