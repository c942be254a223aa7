"""Send models, optimizers and objects to all ranks."""

from __future__ import annotations

import io
import pickle
from collections.abc import Iterable, Mapping
from typing import Any

import torch
from torch.nn.modules.batchnorm import _BatchNorm

from hostlib.horovod.handles import synchronize
from hostlib.horovod.movements import allgather, broadcast_, broadcast_async_
from hostlib.horovod.reductions import Sum, allreduce
from hostlib.horovod.world import ProcessSet, current, global_process_set


def broadcast_parameters(
    params: Mapping[str, Any] | Iterable[Any],
    root_rank: int,
    process_set: ProcessSet = global_process_set,
) -> None:
    """Overwrite tensors with the tensors of rank `root_rank`.

    Args:
        params: ``model.state_dict()``, ``model.named_parameters()``, or tensors.
        root_rank: the rank that sends its tensors.
        process_set: the ranks that receive them.

    Raises:
        ValueError: `params` is neither a mapping nor a sequence.
        HorovodInternalError: the ranks' tensors differ in name, type or shape.
    """
    if isinstance(params, Mapping):
        named = sorted(params.items())
    elif isinstance(params, Iterable) and not isinstance(params, torch.Tensor):
        named = [each if isinstance(each, tuple) else (None, each) for each in params]
    else:
        raise ValueError(f"params are a {type(params).__name__}, must be a mapping or a list")
    handles = [
        broadcast_async_(tensor, root_rank, name and f"parameter.{name}", process_set)
        for name, tensor in named
        if isinstance(tensor, torch.Tensor)
    ]
    for handle in handles:
        synchronize(handle)


def broadcast_optimizer_state(
    optimizer: torch.optim.Optimizer, root_rank: int, model: torch.nn.Module | None = None
) -> None:
    """Send the state of rank `root_rank`'s optimizer, with its learning rate, to all ranks.

    An optimizer without a state gets the root's state; its parameters then have gradients of zeros, as in
    Horovod. `model` is Horovod's argument, and not used. Raises ValueError for LBFGS, as Horovod does.
    """
    if isinstance(optimizer, torch.optim.LBFGS):
        raise ValueError("the state of torch.optim.LBFGS cannot be sent: it is no mapping of tensors")
    own = optimizer.state_dict()
    if not own["state"]:
        for parameter in (each for group in optimizer.param_groups for each in group["params"]):
            if parameter.requires_grad and parameter.grad is None:
                parameter.grad = torch.zeros_like(parameter)
    state = broadcast_object(own, root_rank, name="optimizer.state")
    if current().rank != root_rank:
        optimizer.load_state_dict(state)


def broadcast_object(
    obj: Any, root_rank: int = 0, name: str | None = None, process_set: ProcessSet = global_process_set
) -> Any:
    """Return the object of rank `root_rank`.

    Objects are pickled: the ranks of a job must trust each other.

    Args:
        obj: Any object that `torch.save` supports, also tensors.
        root_rank: The rank whose object is returned.
        name: Name by which the ranks' calls are matched; None: match calls without a name by their order.
        process_set: The ranks that take part.
    """
    is_root = current().rank == root_rank
    data = _packed(obj) if is_root else torch.empty(0, dtype=torch.uint8)
    length = broadcast_(torch.tensor([len(data)]), root_rank, name and f"{name}.length", process_set)
    if not is_root:
        data = torch.empty(int(length), dtype=torch.uint8)
    broadcast_(data, root_rank, name and f"{name}.bytes", process_set)
    return obj if is_root else _unpacked(data)


def allgather_object(
    obj: Any, name: str | None = None, process_set: ProcessSet = global_process_set
) -> list[Any]:
    """Return the object of each rank, in a list; for the arguments see `broadcast_object`."""
    data = _packed(obj)
    lengths = allgather(torch.tensor([len(data)]), name and f"{name}.length", process_set).tolist()
    gathered = allgather(data, name and f"{name}.bytes", process_set)
    return [_unpacked(part) for part in gathered.split(lengths)]


def _packed(obj: Any) -> torch.Tensor:
    buffer = io.BytesIO()
    torch.save(obj, buffer, pickle_protocol=pickle.HIGHEST_PROTOCOL)
    return torch.frombuffer(bytearray(buffer.getvalue()), dtype=torch.uint8)


def _unpacked(data: torch.Tensor) -> Any:
    return torch.load(io.BytesIO(data.numpy().tobytes()), weights_only=False)


class SyncBatchNorm(_BatchNorm):
    """Batch normalization like torch's `BatchNorm1d` to `BatchNorm3d`.

    In training, mean and variance are over the batches of all ranks.
    """

    def _check_input_dim(self, input: torch.Tensor) -> None:
        if input.dim() < 2:
            raise ValueError(f"expected at least 2D input (got {input.dim()}D input)")

    def forward(self, input: torch.Tensor) -> torch.Tensor:
        """Return the normalized input, scaled and shifted by the learned parameters, if `affine` is True."""
        self._check_input_dim(input)
        if not self.training or current().size == 1:
            result: torch.Tensor = super().forward(input)
            return result
        axes = [axis for axis in range(input.dim()) if axis != 1]
        count = allreduce(torch.tensor([float(input.numel() // input.shape[1])]), op=Sum)
        mean = allreduce(input.sum(axes), op=Sum) / count
        shape = [1, -1] + [1] * (input.dim() - 2)
        centred = input - mean.reshape(shape)
        variance = allreduce(centred.square().sum(axes), op=Sum) / count
        self._follow(mean.detach(), variance.detach(), float(count))
        normal = centred * (variance + self.eps).rsqrt().reshape(shape)
        if self.affine:
            normal = normal * self.weight.reshape(shape) + self.bias.reshape(shape)
        return normal

    def _follow(self, mean: torch.Tensor, variance: torch.Tensor, count: float) -> None:
        if not self.track_running_stats or self.running_mean is None or self.running_var is None:
            return
        assert self.num_batches_tracked is not None
        self.num_batches_tracked.add_(1)
        share = 1 / float(self.num_batches_tracked) if self.momentum is None else self.momentum
        unbiased = variance * count / max(1.0, count - 1)
        self.running_mean.lerp_(mean, share)
        self.running_var.lerp_(unbiased, share)
