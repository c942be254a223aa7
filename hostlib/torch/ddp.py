"""A communication hook for DistributedDataParallel: priorities and names for its buckets.

Without the hook DDP's buckets are plain sums, which also go through the switch. With the hook a bucket gets
the priority of its front-most layer, which the next forward pass needs first, and errors name the bucket's
parameters.
"""

# No annotations from the __future__: torch checks the hook's annotations, and does not resolve texts.

import numpy as np
import torch
import torch.distributed as dist
from numpy.typing import NDArray

from hostlib.torch.group import of_ina
from hostlib.wire.encodings import BLOCKS, Numbers


class BucketState:
    """The state of `bucket_hook`: a model's parameters from front to back."""

    def __init__(
        self,
        model: torch.nn.Module,
        group: dist.ProcessGroup | None = None,
        *,
        numbers: Numbers | None = None,
        error_feedback: bool = False,
    ) -> None:
        """Set the trained `model`, or DDP around it. Raises TypeError for another backend's group.

        The model's parameters are assumed to be used in the order of their definition.

        `numbers` is the encoding of gradients (`hostlib.allreduce`). With `error_feedback` a gradient's
        rounding error is added to the next gradient; then `numbers` must be "block16" (the default), "block8"
        or "block4". Raises ValueError if it is "exponent", which has no error feedback.
        """
        group = of_ina(group)
        if error_feedback and numbers not in (None, *BLOCKS):
            raise ValueError(f"error_feedback needs numbers to be one of {BLOCKS}, not {numbers!r}")
        self.group = group
        self.numbers: Numbers | None = (numbers or "block16") if error_feedback else numbers
        self._residuals: dict[tuple[int, ...], NDArray[np.float32]] | None = {} if error_feedback else None
        named = list(model.named_parameters())
        self._names = {id(parameter): name.removeprefix("module.") for name, parameter in named}
        self._positions = {id(parameter): position for position, (_, parameter) in enumerate(named)}

    def name(self, parameters: list[torch.Tensor]) -> str:
        """Return a name for a bucket of these parameters, for error messages."""
        names = [self._names.get(id(parameter), "?") for parameter in parameters]
        return names[0] if len(names) == 1 else f"{names[0]} … {names[-1]} ({len(names)} tensors)"

    def residual(self, parameters: list[torch.Tensor], elements: int) -> NDArray[np.float32] | None:
        """Return the stored rounding errors of these parameters' gradients; None without error feedback.

        They are zero for new combinations of parameters, such as DDP's after the first iteration.
        """
        if self._residuals is None:
            return None
        key = tuple(map(id, parameters))
        if key not in self._residuals:
            self._residuals = {
                other: kept for other, kept in self._residuals.items() if set(key).isdisjoint(other)
            }
            self._residuals[key] = np.zeros(elements, np.float32)
        return self._residuals[key]

    def layer(self, parameters: list[torch.Tensor]) -> tuple[int, int]:
        """Return the position of the front-most of these parameters, and the number of all parameters."""
        known = [self._positions[id(each)] for each in parameters if id(each) in self._positions]
        return min(known, default=0), max(len(self._positions), 1)


def bucket_hook(state: BucketState, bucket: dist.GradBucket) -> torch.futures.Future[torch.Tensor]:
    """Average a bucket over all ranks: ``model.register_comm_hook(BucketState(model), bucket_hook)``."""
    parameters = bucket.parameters()
    buffer = bucket.buffer()
    work = state.group.allreduce_as(
        buffer,
        name=state.name(parameters),
        layer=state.layer(parameters),
        numbers=state.numbers,
        residual=state.residual(parameters, buffer.numel()),
    )
    return work.get_future().then(lambda done: done.value()[0])
