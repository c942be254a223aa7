"""A rank of torchrun that trains by a library which knows only the backends of torch; under ``INA_AS=gloo``.

``libraries.py LIBRARY FILE``: rank r writes to FILE.r, as JSON, the backend of the default group, the paths
of its calls and the weights.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

import hostlib.torch

ROWS = torch.arange(32.0).reshape(8, 4) / 32


class Regression(torch.nn.Module):
    """Predicts the sum of a row."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(4, 1)

    def forward(self, row: torch.Tensor, labels: torch.Tensor) -> dict[str, torch.Tensor]:
        found = self.linear(row)[:, 0]
        return {"loss": torch.nn.functional.mse_loss(found, labels), "logits": found}


def by_accelerate(model: Regression, rows: list[dict[str, Any]]) -> None:
    accelerator = importlib.import_module("accelerate").Accelerator(cpu=True)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    prepared, optimizer, batches = accelerator.prepare(
        model, optimizer, torch.utils.data.DataLoader(rows, batch_size=2)
    )
    for batch in batches:
        optimizer.zero_grad()
        accelerator.backward(prepared(**batch)["loss"])
        optimizer.step()


def by_transformers(model: Regression, rows: list[dict[str, Any]], folder: Path) -> None:
    transformers = importlib.import_module("transformers")
    arguments = transformers.TrainingArguments(
        output_dir=str(folder),
        use_cpu=True,
        ddp_backend="gloo",
        max_steps=2,
        per_device_train_batch_size=2,
        report_to="none",
        save_strategy="no",
        dataloader_pin_memory=False,
    )
    transformers.Trainer(model=model, args=arguments, train_dataset=rows).train()


library, file = sys.argv[1], Path(sys.argv[2])
torch.manual_seed(1)
regression, examples = Regression(), [{"row": row, "labels": row.sum()} for row in ROWS]
before = [value.clone() for value in regression.parameters()]
if library == "accelerate":
    by_accelerate(regression, examples)
else:
    by_transformers(regression, examples, file.parent / "trainer")
weights = [value.detach() for value in regression.parameters()]
said = {
    "backend": dist.get_backend(),
    "paths": hostlib.torch.paths(),
    "learnt": not all(map(torch.equal, before, weights)),
    "weights": [value.flatten().tolist() for value in weights],
}
Path(f"{file}.{os.environ['RANK']}").write_text(json.dumps(said))
dist.destroy_process_group()
