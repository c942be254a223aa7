"""Trains by DDP, the same under every launcher; each rank writes its process and its losses into a folder.

With ``UNTIL`` in the environment it goes on after that, until that file is there.
"""

from __future__ import annotations

import json
import os
from pathlib import Path

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

FOLDER = Path(os.environ["ANSWERS"])
STEPS = 5


def step(model: DistributedDataParallel, optimizer: torch.optim.Optimizer) -> float:
    """Train one step; return its loss."""
    optimizer.zero_grad()
    loss = model(torch.randn(8, 20)).square().mean()
    loss.backward()
    optimizer.step()
    return float(loss.item())


def train() -> None:
    """Be a rank of a group that there is; write down what goes wrong: launchers may end ranks silently."""
    rank = dist.get_rank()
    try:
        _train(rank)
    except Exception as error:
        (FOLDER / f"{rank}.error").write_text(f"{type(error).__name__}: {error}")
        raise


def _train(rank: int) -> None:
    (FOLDER / f"{rank}.pid").write_text(f"{os.getpid()} {os.uname().nodename}")
    torch.manual_seed(7)
    model = DistributedDataParallel(torch.nn.Linear(20, 2))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    torch.manual_seed(rank)
    losses = [round(step(model, optimizer), 4) for _ in range(STEPS)]
    (FOLDER / f"{rank}.losses").write_text(json.dumps(losses))
    until = os.environ.get("UNTIL")
    more = torch.ones(1)
    while until and more.item():
        step(model, optimizer)
        more.fill_(rank == 0 and not Path(until).exists())
        dist.all_reduce(more)  # all go on for as long as rank 0 says
        (FOLDER / f"{rank}.steps").touch()
    del model


def main() -> None:
    """Train in a group of the backend "ina"."""
    dist.init_process_group("ina")
    train()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
