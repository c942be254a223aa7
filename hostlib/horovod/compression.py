"""How tensors travel: as they are, or in 16 bits.

In the switch 16 bits are those of the block format (`hostlib.quantize.pack`), which adds up without a further
rounding; on the way through gloo they are float16.
"""

from __future__ import annotations

from typing import Any

import torch

from hostlib.quantize import Numbers


class Compressor:
    """Turns a tensor into what travels, and back."""

    numbers: Numbers | None = None
    """How floats travel through the switch, instead of what `compress` makes of them."""

    @staticmethod
    def compress(tensor: torch.Tensor) -> tuple[torch.Tensor, Any]:
        """Return the tensor to send, and the context that `decompress` needs."""
        raise NotImplementedError

    @staticmethod
    def decompress(tensor: torch.Tensor, ctx: Any) -> torch.Tensor:
        """Return a tensor as it was before `compress`."""
        raise NotImplementedError


class NoneCompressor(Compressor):
    """Leaves tensors as they are."""

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

    numbers = "block16"

    @staticmethod
    def compress(tensor: torch.Tensor) -> tuple[torch.Tensor, Any]:
        """Return the tensor as float16 if it is of floating-point numbers."""
        return (tensor.half() if tensor.dtype.is_floating_point else tensor), tensor.dtype

    @staticmethod
    def decompress(tensor: torch.Tensor, ctx: Any) -> torch.Tensor:
        """Return the tensor in its own type again."""
        return tensor.to(ctx)


class Compression:
    """The ways to travel."""

    none = NoneCompressor
    fp16 = FP16Compressor
