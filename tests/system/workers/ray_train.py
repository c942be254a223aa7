"""Trains by Ray's TorchTrainer, with a backend of torch: ADDRESS BACKEND WORKERS FOLDER.

Each rank writes its machine and its losses into the folder.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import ray
from ray.train import RunConfig, ScalingConfig
from ray.train.torch import TorchConfig, TorchTrainer


def train(config: dict[str, Any]) -> None:
    """Be a rank."""
    import torch
    import torch.distributed as dist
    from torch.nn.parallel import DistributedDataParallel

    torch.manual_seed(7)
    model = DistributedDataParallel(torch.nn.Linear(20, 2))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    torch.manual_seed(dist.get_rank())
    losses = []
    for _ in range(5):
        optimizer.zero_grad()
        loss = model(torch.randn(8, 20)).square().mean()
        loss.backward()
        optimizer.step()
        losses.append(round(loss.item(), 4))
    answer = Path(config["folder"]) / f"{config['backend']}-{dist.get_rank()}"
    answer.write_text(json.dumps([os.uname().nodename, losses]))
    del model


def main() -> None:
    """Train."""
    address, backend, workers, folder = sys.argv[1:]
    inherited = {name: text for name, text in os.environ.items() if name.startswith(("INA_", "OMP_"))}
    ray.init(address=address, _node_ip_address=address.partition(":")[0], runtime_env={"env_vars": inherited})
    TorchTrainer(
        train,
        train_loop_config={"folder": folder, "backend": backend},
        torch_config=TorchConfig(backend=backend),
        scaling_config=ScalingConfig(num_workers=int(workers), placement_strategy="SPREAD"),
        run_config=RunConfig(storage_path=folder),
    ).fit()


if __name__ == "__main__":
    main()
