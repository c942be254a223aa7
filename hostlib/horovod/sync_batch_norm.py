"""Batch normalisation by the mean and variance of all ranks' batches."""

from __future__ import annotations

import torch
from torch.nn.modules.batchnorm import _BatchNorm

from hostlib.horovod.reductions import Sum, allreduce
from hostlib.horovod.world import current


class SyncBatchNorm(_BatchNorm):
    """As `torch.nn.BatchNorm1d` to `3d`, over the batches of all ranks while training."""

    def _check_input_dim(self, input: torch.Tensor) -> None:
        if input.dim() < 2:
            raise ValueError(f"expected at least 2D input (got {input.dim()}D input)")

    def forward(self, input: torch.Tensor) -> torch.Tensor:
        """Return the input with mean 0 and variance 1 in each channel, over all ranks."""
        self._check_input_dim(input)
        if not self.training or current().size == 1:
            result: torch.Tensor = super().forward(input)
            return result
        others = [place for place in range(input.dim()) if place != 1]
        count = allreduce(torch.tensor([float(input.numel() // input.shape[1])]), op=Sum)
        mean = allreduce(input.sum(others), op=Sum) / count
        shape = [1, -1] + [1] * (input.dim() - 2)
        centred = input - mean.reshape(shape)
        variance = allreduce(centred.square().sum(others), op=Sum) / count
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
