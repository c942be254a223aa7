"""``torch.distributed`` over the switch: ``import hostlib.torch``, then ``init_process_group("ina")``.

::

    import torch.distributed as dist
    import hostlib.torch

    dist.init_process_group("ina")

To import this registers the backend; scripts need no other change. Sums and averages of tensors on the CPU
go through the switch, everything else through gloo; `paths` tells which way the calls took.
"""

from __future__ import annotations

from hostlib.torch.version import check

check()

from hostlib.torch.ddp import BucketState, bucket_hook  # noqa: E402 - what these import may be missing
from hostlib.torch.group import InaProcessGroup, paths, register  # noqa: E402 - the same

register()

__all__ = ["BucketState", "InaProcessGroup", "bucket_hook", "paths"]
