"""Compress tensors to 16, 8 or 4 bits for a collective.

Through the switch tensors are sent in a block format (`hostlib.wire.encodings`), whose sums are exact after
the first rounding; through gloo all compressed tensors are float16.
"""

from __future__ import annotations

from typing import Any

import torch

from hostlib.wire.encodings import Numbers


class Compressor:
    """Compresses and decompresses tensors."""

    numbers: Numbers | None = None
    """Encoding of floats through the switch, used there instead of `compress`; None: use `compress`."""
    feedback: bool = False
    """True if `DistributedOptimizer` adds the rounding error of a gradient to the next one."""

    @staticmethod
    def compress(tensor: torch.Tensor) -> tuple[torch.Tensor, Any]:
        """Return the tensor to send, and the context that `decompress` needs."""
        raise NotImplementedError

    @staticmethod
    def decompress(tensor: torch.Tensor, ctx: Any) -> torch.Tensor:
        """Return the original tensor from a compressed one, with the context that `compress` returned."""
        raise NotImplementedError


class NoneCompressor(Compressor):
    """Leaves tensors unchanged."""

    @staticmethod
    def compress(tensor: torch.Tensor) -> tuple[torch.Tensor, Any]:
        """Return the tensor."""
        return tensor, None

    @staticmethod
    def decompress(tensor: torch.Tensor, ctx: Any) -> torch.Tensor:
        """Return the tensor."""
        return tensor


class FP16Compressor(Compressor):
    """Rounds floating-point numbers to 16 bits."""

    numbers: Numbers | None = "block16"

    @staticmethod
    def compress(tensor: torch.Tensor) -> tuple[torch.Tensor, Any]:
        """Return the tensor as float16 if its type is a floating-point type."""
        return (tensor.half() if tensor.dtype.is_floating_point else tensor), tensor.dtype

    @staticmethod
    def decompress(tensor: torch.Tensor, ctx: Any) -> torch.Tensor:
        """Return the tensor in its original type."""
        return tensor.to(ctx)


class Block8Compressor(FP16Compressor):
    """Rounds floating-point numbers to 8 bits, for at most 127 ranks. Gradients use error feedback."""

    numbers: Numbers | None = "block8"
    feedback = True


class Block4Compressor(FP16Compressor):
    """Rounds floating-point numbers to 4 bits, for at most 7 ranks. Gradients use error feedback."""

    numbers: Numbers | None = "block4"
    feedback = True


class Compression:
    """The compressors, as attributes with the names that Horovod uses."""

    none = NoneCompressor
    fp16 = FP16Compressor
    block8 = Block8Compressor
    block4 = Block4Compressor
