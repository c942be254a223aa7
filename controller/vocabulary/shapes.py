"""Gradient sizes of real networks, layer by layer, counted from their architectures.

Each function returns the parameters of each layer, front layer first; a layer is a unit that frameworks pass
on together: a convolution with its normalisation, an encoder block. Sources: VGG (Simonyan, ICLR'15), ResNet
(He, CVPR'16), BERT (Devlin, NAACL'19), GPT-2 (Radford, 2019), AlexNet (Krizhevsky, NIPS'12). Totals are
equal to torchvision's and Hugging Face's models, as tests check.

`FORWARD_FLOPS` is the arithmetic of one sample's forward pass (images of 224 by 224, texts of 128 tokens for
BERT and 1024 for GPT-2); `compute_s` computes an iteration's time from it for a GPU of given speed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import pairwise

from controller.vocabulary.documents import hint
from controller.vocabulary.errors import BadSpec

FLOAT_BYTES = 4


def alexnet() -> list[int]:
    """Return the number of parameters of each layer of AlexNet: 61,100,840 in total."""
    convolutions = ((3, 64, 11), (64, 192, 5), (192, 384, 3), (384, 256, 3), (256, 256, 3))
    dense = ((256 * 36, 4096), (4096, 4096), (4096, 1000))
    return [i * o * k * k + o for i, o, k in convolutions] + [i * o + o for i, o in dense]


def vgg16() -> list[int]:
    """Return the number of parameters of each layer of VGG-16: 138,357,544 in total."""
    widths = (3, 64, 64, 128, 128, 256, 256, 256, 512, 512, 512, 512, 512, 512)
    convolutions = [i * o * 9 + o for i, o in pairwise(widths)]
    return convolutions + [i * o + o for i, o in ((512 * 49, 4096), (4096, 4096), (4096, 1000))]


def resnet50() -> list[int]:
    """Return the number of parameters of each layer of ResNet-50: 25,557,032 in total."""

    def convolution(i: int, o: int, k: int) -> int:
        return i * o * k * k + 2 * o  # batch normalisation has two parameters per channel

    layers = [convolution(3, 64, 7)]
    width_in = 64
    for blocks, width in ((3, 64), (4, 128), (6, 256), (3, 512)):
        for block in range(blocks):
            layers += [
                convolution(width_in, width, 1),
                convolution(width, width, 3),
                convolution(width, 4 * width, 1),
            ]
            if block == 0:
                layers.append(convolution(width_in, 4 * width, 1))
            width_in = 4 * width
    return [*layers, 2048 * 1000 + 1000]


def _transformer_block(width: int) -> int:
    attention = 4 * (width * width + width)
    feed_forward = 2 * 4 * width * width + 5 * width
    return attention + feed_forward + 2 * 2 * width


def _bert(width: int, blocks: int) -> list[int]:
    embeddings = (30522 + 512 + 2) * width + 2 * width
    return [embeddings, *[_transformer_block(width)] * blocks, width * width + width]


def _gpt2(width: int, blocks: int) -> list[int]:
    return [(50257 + 1024) * width, *[_transformer_block(width)] * blocks, 2 * width]


SHAPES: Mapping[str, Callable[[], Sequence[int]]] = {
    "alexnet": alexnet,
    "vgg16": vgg16,
    "resnet50": resnet50,
    "bert-base": partial(_bert, 768, 12),  # 109,482,240 parameters
    "bert-large": partial(_bert, 1024, 24),  # 335,141,888
    "gpt2": partial(_gpt2, 768, 12),  # 124,439,808
    "gpt2-xl": partial(_gpt2, 1600, 48),  # 1,557,611,200
}

FORWARD_FLOPS: Mapping[str, float] = {
    "alexnet": 1.43e9,
    "vgg16": 30.9e9,
    "resnet50": 8.2e9,
    "bert-base": 2 * 85e6 * 128,
    "bert-large": 2 * 302e6 * 128,
    "gpt2": 2 * 124e6 * 1024,
    "gpt2-xl": 2 * 1.56e9 * 1024,
}
"""Operations of one sample's forward pass; a multiplication with its addition counts as two."""


def layers_bytes(model: str) -> tuple[int, ...]:
    """Return the gradient bytes of each layer in float32, front layer first. Raises BadSpec.

    >>> sum(layers_bytes("resnet50")) // 4
    25557032
    """
    if model not in SHAPES:
        raise BadSpec(f"model {model!r} is unknown; {hint(model, SHAPES)}")
    return tuple(count * FLOAT_BYTES for count in SHAPES[model]())


def compute_s(model: str, *, batch: int = 32, flops_per_s: float = 40e12) -> float:
    """Return the seconds of a forward pass and a backward pass (twice as long) of a batch on one GPU."""
    if model not in FORWARD_FLOPS:
        raise BadSpec(f"model {model!r} is unknown; {hint(model, FORWARD_FLOPS)}")
    return 3 * FORWARD_FLOPS[model] * batch / flops_per_s
