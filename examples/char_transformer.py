"""Train a small character-level transformer with DistributedDataParallel, gradients summed inside the switch.

    torchrun --nproc-per-node 4 examples/char_transformer.py                  # starts a switch by itself
    torchrun --nproc-per-node 4 examples/char_transformer.py --backend gloo   # the same without
    ina run -np 4 -- python examples/char_transformer.py

The text ships with Python: pydoc's topics, some 460,000 characters of its reference. At the end the model
writes a few lines. Small gradients are fused, and front layers' gradients go first (`bucket_hook`).
"""

import argparse
import time
from collections.abc import Callable
from pydoc_data.topics import topics

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.functional import cross_entropy
from torch.nn.parallel import DistributedDataParallel

import hostlib.torch

CONTEXT = 64
"""Characters that the model looks back at."""
BATCH = 8
"""Pieces of text per step and rank."""
LEARNING_RATE = 3e-3


class Transformer(nn.Module):
    """Predicts each next character from those before."""

    def __init__(self, symbols: int, *, width: int, heads: int = 4, layers: int = 2) -> None:
        """`symbols`: number of different characters."""
        super().__init__()
        self.characters = nn.Embedding(symbols, width)
        self.places = nn.Embedding(CONTEXT, width)
        self.blocks = nn.ModuleList(
            nn.TransformerEncoderLayer(width, heads, 4 * width, 0.0, batch_first=True, norm_first=True)
            for _ in range(layers)
        )
        self.out = nn.Linear(width, symbols)
        self.register_buffer("mask", nn.Transformer.generate_square_subsequent_mask(CONTEXT))

    def forward(self, text: torch.Tensor) -> torch.Tensor:
        """Return scores of the next character, after each of the text's."""
        length = text.shape[1]
        hidden = self.characters(text) + self.places(torch.arange(length))
        for block in self.blocks:
            hidden = block(hidden, self.mask[:length, :length], is_causal=True)
        return self.out(hidden)


def batch(text: torch.Tensor, generator: torch.Generator) -> tuple[torch.Tensor, torch.Tensor]:
    """Return pieces of the text, and the same one character on."""
    starts = torch.randint(len(text) - CONTEXT - 1, (BATCH,), generator=generator)
    pieces = torch.stack([text[start : start + CONTEXT + 1] for start in starts])
    return pieces[:, :-1], pieces[:, 1:]


def write(model: Transformer, text: torch.Tensor, length: int) -> torch.Tensor:
    """Return a text with as many more characters as the model makes of it."""
    with torch.no_grad():
        for _ in range(length):
            odds = model(text[None, -CONTEXT:])[0, -1].softmax(0)
            text = torch.cat([text, torch.multinomial(odds, 1)])
    return text


def train(
    text: torch.Tensor, model: nn.Module, steps: int, seed: int, on_loss: Callable[[int, float, float], None]
) -> None:
    """Train on batches of a text; `on_loss` gets step, loss over all ranks, and samples/s, ten times."""
    rank, size = dist.get_rank(), dist.get_world_size()
    optimizer = torch.optim.AdamW(model.parameters(), LEARNING_RATE)
    generator = torch.Generator().manual_seed(1000 * seed + rank)
    began = time.monotonic()
    for step in range(1, steps + 1):
        inputs, targets = batch(text, generator)
        optimizer.zero_grad()
        loss = cross_entropy(model(inputs).flatten(0, 1), targets.flatten())
        loss.backward()
        optimizer.step()
        if step % max(1, steps // 10) == 0:
            mean = loss.detach().clone()
            dist.all_reduce(mean)
            on_loss(step, mean.item() / size, step * size * BATCH / (time.monotonic() - began))


def corpus() -> tuple[torch.Tensor, list[str]]:
    """Return a text as numbers, and the symbol of each."""
    written = "".join(topics[name] for name in sorted(topics))
    symbols = sorted(set(written))
    number = {symbol: place for place, symbol in enumerate(symbols)}
    return torch.tensor([number[symbol] for symbol in written]), symbols


def main() -> None:
    """Train as one rank of a group."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--backend", default="ina", help="of torch.distributed: ina, gloo, …")
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--width", type=int, default=64, help="size of the model; a multiple of 4")
    parser.add_argument("--write", type=int, default=200, help="characters that the model writes at the end")
    options = parser.parse_args()
    dist.init_process_group(options.backend)
    learn(options)
    # The model, which holds the group, is gone by now: where it goes last, gloo alone may wait for ever.
    dist.destroy_process_group()


def learn(options: argparse.Namespace) -> None:
    """Train a model, and have it write something."""
    rank = dist.get_rank()
    text, symbols = corpus()

    def say(step: int, loss: float, speed: float) -> None:
        if rank == 0:
            print(f"step {step:4}  loss {loss:.4f}  {speed:.0f} samples/s", flush=True)

    torch.manual_seed(0)
    model = DistributedDataParallel(Transformer(len(symbols), width=options.width))
    if options.backend == "ina":
        model.register_comm_hook(hostlib.torch.BucketState(model), hostlib.torch.bucket_hook)
    train(text, model, options.steps, 0, say)
    if rank == 0:
        start = torch.tensor([symbols.index(symbol) for symbol in "The "])
        print("".join(symbols[place] for place in write(model.module, start, options.write)))


if __name__ == "__main__":
    main()
