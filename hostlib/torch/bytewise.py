"""Tensors of types that gloo does not move, as bytes: to move them it need not know what they are."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

import torch

from hostlib.torch import describe

MOVED: Final = (
    *(torch.float32, torch.float64, torch.float16, torch.bfloat16),
    *(torch.int8, torch.uint8, torch.int32, torch.int64),
)
"""Types that gloo moves."""


def strange(values: Iterable[Any]) -> torch.dtype | None:
    """Return the type of the tensors among values, if all are of one that only bytes can stand for."""
    tensors = describe.tensors(values)
    dtypes = {tensor.dtype for tensor in tensors}
    whole = all(tensor.layout is torch.strided and tensor.is_contiguous() for tensor in tensors)
    return dtypes.pop() if whole and len(dtypes) == 1 and not dtypes <= {*MOVED} else None


def as_bytes(value: Any) -> Any:
    """Return a value with each tensor, also in lists, as the bytes of its memory, in one more dimension."""
    if isinstance(value, torch.Tensor):
        return value.detach().unsqueeze(-1).view(torch.uint8)
    return [as_bytes(each) for each in value] if isinstance(value, list | tuple) else value


def typed(value: Any, dtype: torch.dtype) -> Any:
    """Return the value as it was before `as_bytes`: tensors of `dtype`, without the last dimension."""
    if isinstance(value, torch.Tensor):
        return value.view(dtype).squeeze(-1)
    return [typed(each, dtype) for each in value] if isinstance(value, list | tuple) else value
