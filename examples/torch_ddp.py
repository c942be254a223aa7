"""Train on handwritten digits with DistributedDataParallel, gradients summed inside the switch.

    torchrun --nproc-per-node 4 examples/torch_ddp.py                  # starts a switch by itself
    torchrun --nproc-per-node 4 examples/torch_ddp.py --backend gloo   # the same without
    ina run -np 4 -- python examples/torch_ddp.py

Apart from the import of `hostlib.torch` this is an ordinary DistributedDataParallel script. The images are
the same as in examples/digits.py.
"""

import argparse
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

import hostlib.torch  # noqa: F401 - registers the backend
from hostlib.demos.digits import TRAINING_IMAGES, load

LEARNING_RATE = 0.2
HIDDEN = 128
BATCH = 75
"""Images per step and rank."""


def model() -> torch.nn.Module:
    """Return a multilayer perceptron for images of 64 pixels."""
    return torch.nn.Sequential(torch.nn.Linear(64, HIDDEN), torch.nn.ReLU(), torch.nn.Linear(HIDDEN, 10))


def train(epochs: int, seed: int = 0, wrap: Callable[..., Any] = DistributedDataParallel) -> list[float]:
    """Train in the default process group; return the loss of each epoch, averaged over ranks and steps.

    `wrap` makes of the model one whose gradients are averaged.
    """
    torch.manual_seed(seed)
    images, labels = (torch.from_numpy(array) for array in load())
    data = TensorDataset(images[:TRAINING_IMAGES], labels[:TRAINING_IMAGES])
    sampler = DistributedSampler(data, seed=seed)
    batches = DataLoader(data, BATCH, sampler=sampler)
    network = wrap(model())
    optimizer = torch.optim.SGD(network.parameters(), LEARNING_RATE)
    losses = []
    for epoch in range(epochs):
        sampler.set_epoch(epoch)
        total = torch.zeros(1)
        for inputs, targets in batches:
            optimizer.zero_grad()
            loss = torch.nn.functional.cross_entropy(network(inputs), targets)
            loss.backward()
            optimizer.step()
            total += loss.detach()
        dist.all_reduce(total)
        losses.append(total.item() / len(batches) / dist.get_world_size())
        if dist.get_rank() == 0:
            print(f"epoch {epoch + 1:3}/{epochs}  loss {losses[-1]:.6f}", flush=True)
    if dist.get_rank() == 0:
        with torch.no_grad():
            right = network.module(images[TRAINING_IMAGES:]).argmax(1) == labels[TRAINING_IMAGES:]
        print(f"test accuracy {right.float().mean().item():.4f}")
    return losses


def main() -> None:
    """Train as one rank of a group."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--backend", default="ina", help="of torch.distributed: ina, gloo, …")
    parser.add_argument("--epochs", type=int, default=20)
    parser.add_argument("--losses", type=Path, metavar="FILE", help="write the losses as JSON (rank 0)")
    options = parser.parse_args()
    dist.init_process_group(options.backend)
    losses = train(options.epochs)
    if options.losses and dist.get_rank() == 0:
        options.losses.write_text(json.dumps(losses))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
