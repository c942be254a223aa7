"""``ray_jobs.py train ADDRESS WORKERS`` has Ray's TorchTrainer train as ``ddp.py`` does."""

from __future__ import annotations

import os
import runpy
import sys
from pathlib import Path

import ray
from ray.train import RunConfig, ScalingConfig
from ray.train.torch import TorchConfig, TorchTrainer


def train(address: str, workers: str) -> None:
    """Train; each rank writes its process, its machine and its losses into the folder ``ANSWERS``."""
    script = str(Path(__file__).with_name("ddp.py"))
    inherited = ("INA_", "OMP_", "ANSWERS", "UNTIL", "XDG_")
    variables = {name: text for name, text in os.environ.items() if name.startswith(inherited)}
    ray.init(address=address, _node_ip_address=address.partition(":")[0], runtime_env={"env_vars": variables})
    TorchTrainer(
        lambda: runpy.run_path(script)["train"](),
        torch_config=TorchConfig(backend="ina"),
        scaling_config=ScalingConfig(num_workers=int(workers), placement_strategy="SPREAD"),
        run_config=RunConfig(storage_path=os.environ["ANSWERS"]),
    ).fit()


if __name__ == "__main__":
    train(*sys.argv[2:])
