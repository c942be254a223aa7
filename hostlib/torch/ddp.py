"""A communication hook for DistributedDataParallel: priorities and names for its buckets.

Without it DDP's buckets are plain sums, which go through the switch all the same. With it each bucket has
the priority of the layer in it that the next forward pass needs first, and errors name its parameters.
"""

# No annotations from the __future__: torch looks at those of the hook, and does not read texts.
from typing import Any

import torch
import torch.distributed as dist

from hostlib.torch.group import InaProcessGroup


class BucketState:
    """What `bucket_hook` needs to know of a model: its parameters from front to back."""

    def __init__(self, model: torch.nn.Module, group: dist.ProcessGroup | None = None) -> None:
        """`model` is the one that is trained, or DDP around it. Raises TypeError for another backend's group.

        Its parameters are taken to be in the order in which they are used, as they are defined.
        """
        group = group or dist.distributed_c10d._get_default_group()
        if not isinstance(group, InaProcessGroup):
            raise TypeError(f'the group is of {type(group).__name__}, must be of backend "ina"')
        self.group = group
        named = list(model.named_parameters())
        self._names = {id(parameter): name.removeprefix("module.") for name, parameter in named}
        self._positions = {id(parameter): position for position, (_, parameter) in enumerate(named)}

    def name(self, parameters: list[torch.Tensor]) -> str:
        """Return what errors call a bucket of these parameters."""
        names = [self._names.get(id(parameter), "?") for parameter in parameters]
        return names[0] if len(names) == 1 else f"{names[0]} … {names[-1]} ({len(names)} tensors)"

    def layer(self, parameters: list[torch.Tensor]) -> tuple[int, int]:
        """Return the position of the front-most of these parameters, and how many there are in all."""
        known = [self._positions[id(each)] for each in parameters if id(each) in self._positions]
        return min(known, default=0), max(len(self._positions), 1)


def bucket_hook(state: BucketState, bucket: dist.GradBucket) -> torch.futures.Future[torch.Tensor]:
    """Average a bucket over all ranks: ``model.register_comm_hook(BucketState(model), bucket_hook)``."""
    parameters = bucket.parameters()
    work = state.group.average(bucket.buffer(), name=state.name(parameters), layer=state.layer(parameters))
    return work.get_future().then(_first)


def _first(done: Any) -> torch.Tensor:
    tensors: list[torch.Tensor] = done.value()
    return tensors[0]
