"""``ray_jobs.py train ADDRESS WORKERS`` has Ray's TorchTrainer train as ``ddp.py`` does.

``ray_jobs.py view`` prints Ray's own view: the nodes of each placement group that is created, by its name.
"""

from __future__ import annotations

import json
import os
import runpy
import sys
from pathlib import Path

import ray
from ray.train import RunConfig, ScalingConfig
from ray.train.torch import TorchConfig, TorchTrainer
from ray.util import placement_group_table


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


def view() -> None:
    """Print number and nodes of each placement group."""
    ray.init(address="auto", log_to_driver=False, logging_level="ERROR")
    names = {node["NodeID"]: node["NodeName"] for node in ray.nodes()}
    found = {
        group["name"]: [number, sorted(names[node] for node in group["bundles_to_node_id"].values())]
        for number, group in placement_group_table().items()
        if group["state"] == "CREATED"
    }
    print(json.dumps(found))


if __name__ == "__main__":
    {"train": train, "view": view}[sys.argv[1]](*sys.argv[2:])
