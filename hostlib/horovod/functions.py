"""Models, optimizers and objects sent to all ranks."""

from __future__ import annotations

import io
import pickle
from collections.abc import Iterable, Mapping
from typing import Any

import torch

from hostlib.horovod.handles import synchronize
from hostlib.horovod.movements import allgather, broadcast_, broadcast_async_
from hostlib.horovod.world import ProcessSet, current, global_process_set


def broadcast_parameters(
    params: Mapping[str, Any] | Iterable[Any],
    root_rank: int,
    process_set: ProcessSet = global_process_set,
) -> None:
    """Overwrite tensors with those of rank `root_rank`.

    Args:
        params: ``model.state_dict()``, ``model.named_parameters()``, or tensors.
        root_rank: who has them.
        process_set: who gets them.

    Raises:
        ValueError: neither a mapping nor a sequence.
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
    """Give all ranks the state of rank `root_rank`'s optimizer, learning rate and all.

    A rank whose optimizer has no state yet gets it. Without a state the parameters have a gradient of zeros
    afterwards, as in Horovod. `model` is as in Horovod, and not needed. Raises ValueError for LBFGS, as
    Horovod does.
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
    """Return rank `root_rank`'s object.

    Objects are pickled: the ranks of a job must trust each other.

    Args:
        obj: Any object that `torch.save` takes, also tensors.
        root_rank: The rank whose object is returned.
        name: Matches the calls of the ranks; None: by the order of calls without a name.
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
    """Return the object of each rank; as `broadcast_object`."""
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
