"""Train on handwritten digits with Horovod's interface, gradients summed inside the switch.

    torchrun --nproc-per-node 4 examples/horovod_digits.py
    ina run -np 4 -- python examples/horovod_digits.py

Apart from the import this is an ordinary Horovod script. The images are the same as in examples/digits.py.
"""

import argparse

import torch
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

import hostlib.horovod as hvd
from hostlib.demos.digits import TRAINING_IMAGES, load

LEARNING_RATE = 0.05
BATCH = 25
"""Images per step and rank."""


def model() -> torch.nn.Module:
    """Return a multilayer perceptron for images of 64 pixels, with batch normalisation over all ranks."""
    return torch.nn.Sequential(
        torch.nn.Linear(64, 64), hvd.SyncBatchNorm(64), torch.nn.ReLU(), torch.nn.Linear(64, 10)
    )


def train(epochs: int) -> float:
    """Train; return the accuracy on the test images, averaged over the ranks' parts of them."""
    torch.manual_seed(hvd.rank())
    images, labels = (torch.from_numpy(array) for array in load())
    data = TensorDataset(images[:TRAINING_IMAGES], labels[:TRAINING_IMAGES])
    sampler = DistributedSampler(data, hvd.size(), hvd.rank())
    batches = DataLoader(data, BATCH, sampler=sampler)
    network = model()
    optimizer = torch.optim.SGD(network.parameters(), LEARNING_RATE * hvd.size(), momentum=0.5)
    hvd.broadcast_parameters(network.state_dict(), root_rank=0)
    hvd.broadcast_optimizer_state(optimizer, root_rank=0)
    optimizer = hvd.DistributedOptimizer(optimizer, named_parameters=network.named_parameters())
    for epoch in range(epochs):
        sampler.set_epoch(epoch)
        network.train()
        for inputs, targets in batches:
            optimizer.zero_grad()
            loss = torch.nn.functional.cross_entropy(network(inputs), targets)
            loss.backward()
            optimizer.step()
        mean = hvd.allreduce(loss.detach(), name="loss").item()
        if hvd.rank() == 0:
            print(f"epoch {epoch + 1:3}/{epochs}  loss {mean:.6f}", flush=True)
    network.eval()
    with torch.no_grad():
        own = slice(TRAINING_IMAGES + hvd.rank(), None, hvd.size())
        right = network(images[own]).argmax(1) == labels[own]
    return hvd.allreduce(right.float().mean(), name="accuracy").item()


def main() -> None:
    """Train as one rank."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--epochs", type=int, default=10)
    options = parser.parse_args()
    hvd.init()
    accuracy = train(options.epochs)
    if hvd.rank() == 0:
        print(f"test accuracy {accuracy:.4f}")
    hvd.shutdown()


if __name__ == "__main__":
    main()
