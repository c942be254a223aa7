"""Train on handwritten digits with sharded parameters (FSDP2), all of its traffic through the switch.

    torchrun --nproc-per-node 4 examples/torch_fsdp.py                  # starts a switch by itself
    torchrun --nproc-per-node 4 examples/torch_fsdp.py --replicas 2     # HSDP: two replicas of two shards
    torchrun --nproc-per-node 4 examples/torch_fsdp.py --backend gloo   # the same without
    ina run -np 4 -- python examples/torch_fsdp.py

This is an ordinary script of torch but for the name of the backend. The images are the same as in
examples/digits.py.
"""

import argparse

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

from hostlib.demos.digits import TRAINING_IMAGES, load

HIDDEN = 128
BATCH = 75
"""Images per step and rank."""


def model(replicas: int) -> torch.nn.Module:
    """Return a multilayer perceptron, its parameters in shards; `replicas` times over all ranks."""
    layers = [torch.nn.Linear(64, HIDDEN), torch.nn.ReLU(), torch.nn.Linear(HIDDEN, HIDDEN), torch.nn.ReLU()]
    network = torch.nn.Sequential(*layers, torch.nn.Linear(HIDDEN, 10))
    shards = dist.get_world_size() // replicas
    if replicas > 1:
        mesh = init_device_mesh("cpu", (replicas, shards), mesh_dim_names=("replicate", "shard"))
    else:
        mesh = init_device_mesh("cpu", (shards,), mesh_dim_names=("shard",))
    for layer in network:
        if isinstance(layer, torch.nn.Linear):
            fully_shard(layer, mesh=mesh)
    fully_shard(network, mesh=mesh)
    return network


def train(epochs: int, replicas: int = 1) -> list[float]:
    """Train in the default process group; return the loss of each epoch, averaged over ranks and steps."""
    torch.manual_seed(0)
    images, labels = (torch.from_numpy(array)[:TRAINING_IMAGES] for array in load())
    network = model(replicas)
    optimizer = torch.optim.Adam(network.parameters(), 2e-3)
    rank, size = dist.get_rank(), dist.get_world_size()
    losses = []
    for epoch in range(epochs):
        order = torch.randperm(TRAINING_IMAGES, generator=torch.Generator().manual_seed(epoch))
        batches = order[rank::size][: TRAINING_IMAGES // size].split(BATCH)
        total = torch.zeros(1)
        for batch in batches:
            optimizer.zero_grad()
            loss = torch.nn.functional.cross_entropy(network(images[batch]), labels[batch])
            loss.backward()
            optimizer.step()
            total += loss.detach()
        dist.all_reduce(total)
        losses.append(total.item() / len(batches) / size)
        if rank == 0:
            print(f"epoch {epoch + 1:3}/{epochs}  loss {losses[-1]:.6f}", flush=True)
    return losses


def main() -> None:
    """Train as one rank of a group."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--backend", default="ina", help="of torch.distributed: ina, gloo, …")
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--replicas", type=int, default=1, help="number of copies of the parameters (HSDP)")
    options = parser.parse_args()
    dist.init_process_group(options.backend)
    train(options.epochs, options.replicas)
    if options.backend == "ina" and dist.get_rank() == 0:
        import hostlib.torch

        print("calls of the default group:", hostlib.torch.paths())
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
