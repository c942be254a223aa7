"""``torchrun`` whose agent forks the ranks: what takes seconds to import, it imports once for all of them."""

from __future__ import annotations

import sys

from torch.distributed.run import main

main(["--run-path", "--start-method", "fork", *sys.argv[1:]])
