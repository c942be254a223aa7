"""Collectives that move tensors without adding, and the barrier."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist

from hostlib.horovod.handles import check, describe, submit, synchronize
from hostlib.horovod.negotiation import Announcement
from hostlib.horovod.reductions import Average, allreduce, grouped_allreduce
from hostlib.horovod.world import ProcessSet, Started, current, global_process_set

Tensors = Sequence[torch.Tensor]


@dataclass(frozen=True, slots=True)
class _Gathered:
    """All ranks' rows of a tensor."""

    tensor: torch.Tensor
    before: int
    """Rows of the ranks before this one."""


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
            # gloo gathers what is of one shape
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

    what = describe(checked, rows=False)
    return submit(kind, name, what, process_set, start, own=[len(tensor) for tensor in checked])


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


class _Allgather(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, name: str | None, process_set: ProcessSet, *tensors: torch.Tensor) -> Any:
        kind = "allgather" if len(tensors) == 1 else "grouped_allgather"
        found = synchronize(_gather(kind, tensors, name, process_set, lambda found: found))
        ctx.process_set, ctx.shapes = process_set, [tensor.shape for tensor in tensors]
        ctx.own = [
            slice(each.before, each.before + len(_with_rows(tensor)))
            for each, tensor in zip(found, tensors, strict=True)
        ]
        return tuple(each.tensor for each in found)

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> Any:
        means = grouped_allreduce(gradients, op=Average, process_set=ctx.process_set)
        own = [
            mean[rows].reshape(shape) for mean, rows, shape in zip(means, ctx.own, ctx.shapes, strict=True)
        ]
        return None, None, *own


def allgather(
    tensor: torch.Tensor, name: str | None = None, process_set: ProcessSet = global_process_set
) -> torch.Tensor:
    """Return all ranks' tensors one after the other; they may differ in the first dimension.

    The gradient is the average of the ranks' gradients, as in Horovod. Raises HorovodInternalError as
    `allreduce` does.
    """
    return grouped_allgather([tensor], name, process_set)[0]


def grouped_allgather(
    tensors: Tensors, name: str | None = None, process_set: ProcessSet = global_process_set
) -> list[torch.Tensor]:
    """Gather several tensors as one collective; see `allgather`."""
    return list(_Allgather.apply(name, process_set, *tensors))


def _broadcast(
    tensor: torch.Tensor, root_rank: int, name: str | None, process_set: ProcessSet, *, in_place: bool
) -> int:
    check(tensor)
    if root_rank not in process_set.members():
        ranks = ", ".join(map(str, process_set.members()))
        raise ValueError(f"root_rank is {root_rank}, must be a rank of the process set: {ranks}")

    def start(_: Announcement) -> Started:
        data = tensor.detach() if in_place else tensor.detach().clone()
        moved = data if data.is_contiguous() else data.contiguous()
        work = dist.broadcast(moved, root_rank, group=process_set.group, async_op=True)

        def end() -> torch.Tensor:
            if moved is not data:
                data.copy_(moved)
            return tensor if in_place else data

        return [work], end

    return submit("broadcast", name, f"{describe([tensor])} from rank {root_rank}", process_set, start)


def broadcast_async(
    tensor: torch.Tensor,
    root_rank: int,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
) -> int:
    """Start a broadcast, for the arguments see `broadcast`; return a handle."""
    return _broadcast(tensor, root_rank, name, process_set, in_place=False)


def broadcast_async_(
    tensor: torch.Tensor,
    root_rank: int,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
) -> int:
    """Start a broadcast in place, for the arguments see `broadcast`; return a handle."""
    return _broadcast(tensor, root_rank, name, process_set, in_place=True)


class _Broadcast(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, tensor: torch.Tensor, root_rank: int, name: str | None, process_set: ProcessSet
    ) -> Any:
        ctx.root_rank, ctx.process_set = root_rank, process_set
        return synchronize(broadcast_async(tensor, root_rank, name, process_set))

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> Any:
        mean = allreduce(gradient, op=Average, process_set=ctx.process_set)
        is_root = current().rank == ctx.root_rank
        return (mean if is_root else torch.zeros_like(mean)), None, None, None


def broadcast(
    tensor: torch.Tensor,
    root_rank: int,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
) -> torch.Tensor:
    """Return rank `root_rank`'s tensor; errors as `allreduce`.

    That rank's gradient is the average of the ranks' gradients, as in Horovod; the others' is zero.

    Args:
        tensor: Of the same type and shape on all ranks.
        root_rank: The rank whose tensor is returned.
        name: Matches the calls of the ranks; None: by the order of calls without a name.
        process_set: The ranks that take part.
    """
    sent: torch.Tensor = _Broadcast.apply(tensor, root_rank, name, process_set)
    return sent


def broadcast_(
    tensor: torch.Tensor,
    root_rank: int,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
) -> torch.Tensor:
    """Overwrite a tensor with rank `root_rank`'s and return it; for the arguments see `broadcast`."""
    sent: torch.Tensor = synchronize(broadcast_async_(tensor, root_rank, name, process_set))
    return sent


def alltoall_async(
    tensor: torch.Tensor,
    splits: torch.Tensor | Sequence[int] | None = None,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
) -> int:
    """Start an alltoall, for the arguments see `alltoall`; return a handle."""
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
    return submit("alltoall", name, what, process_set, start, own=rows)


class _Alltoall(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, tensor: torch.Tensor, rows: list[int], name: str | None, process_set: ProcessSet
    ) -> Any:
        output, received = synchronize(alltoall_async(tensor, rows, name, process_set))
        ctx.received, ctx.process_set = received.tolist(), process_set
        ctx.mark_non_differentiable(received)
        return output, received

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor, _: Any) -> Any:
        returned = synchronize(alltoall_async(gradient, ctx.received, None, ctx.process_set))
        return returned[0], None, None, None


def alltoall(
    tensor: torch.Tensor,
    splits: torch.Tensor | Sequence[int] | None = None,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
) -> Any:
    """Send rows of a tensor to each rank; return the received rows, in the order of the ranks.

    Gradients flow through it.

    Args:
        tensor: The rows.
        splits: Number of rows for each rank; None: equal numbers.
        name: Matches the calls of the ranks; None: by the order of calls without a name.
        process_set: The ranks that take part.

    Returns:
        The rows; with `splits` also the number of rows from each rank.

    Raises ValueError for splits that do not fit the tensor.
    """
    rows = _splits(_with_rows(check(tensor)), splits, process_set.size())
    output, received = _Alltoall.apply(tensor, rows, name, process_set)
    return output if splits is None else (output, received)


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
    """Return a tensor that has rows; one without dimensions is one row."""
    return tensor.reshape(1) if tensor.dim() == 0 else tensor


def barrier(process_set: ProcessSet = global_process_set) -> None:
    """Return when all ranks have called it. Raises HorovodInternalError."""
    synchronize(submit("barrier", None, "", process_set, lambda _: ((), lambda: None)))
