"""``torch.distributed`` over the switch: ``init_process_group("ina")``.

::

    import torch.distributed as dist

    dist.init_process_group("ina")

torch finds the backend by itself (`hostlib.torch_autoload`); if that is turned off, an import of this module
registers it. Sums, averages, reduce-scatter, all-gather and broadcast of tensors on the CPU go through the
switch, all other calls through gloo; `paths` counts the calls by path.
"""

from __future__ import annotations

from hostlib.torch_autoload import check

check()

from hostlib.torch.ddp import BucketState, bucket_hook  # noqa: E402 - what these import may be missing
from hostlib.torch.group import InaProcessGroup, paths  # noqa: E402 - the same
from hostlib.torch_autoload import register  # noqa: E402 - the same

register()

__all__ = ["BucketState", "InaProcessGroup", "bucket_hook", "paths"]
