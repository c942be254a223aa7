"""Train a multilayer perceptron on handwritten digits, every gradient summed inside the switch.

    ina run -np 4 -- python -m hostlib.demos.digits     # four workers
    python -m hostlib.demos.digits --shards 4           # the same batches in one process

The images are the 1,797 digits that ship with scikit-learn (8x8 pixels, UCI ML repository). Without
scikit-learn, 1,797 images are drawn: glyphs of 5x7 pixels, at one of four places, brighter or darker, with
noise. Each batch is cut into one shard per worker; a step follows the average of the shards' gradients.
"""

from __future__ import annotations

import argparse
import importlib.util
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import numpy.typing as npt

import hostlib as ina

Floats = npt.NDArray[np.float32]
Parameters = list[Floats]
NAMES = ("hidden weights", "hidden bias", "output weights", "output bias")
LAYERS = ((0, 2), (0, 2), (1, 2), (1, 2))  # position from the front, number of layers
HIDDEN = 128
LEARNING_RATE = 0.2
TRAINING_IMAGES = 1500
# Elements that share one exponent on the wire: the lanes of a packet.
LANES = 256
PICTURES = 1797

_GLYPHS = (
    ".###. #...# #...# #...# #...# #...# .###.",
    "..#.. .##.. ..#.. ..#.. ..#.. ..#.. .###.",
    ".###. #...# ....# ...#. ..#.. .#... #####",
    "####. ....# ....# .###. ....# ....# ####.",
    "...#. ..##. .#.#. #..#. ##### ...#. ...#.",
    "##### #.... ####. ....# ....# #...# .###.",
    ".###. #.... #.... ####. #...# #...# .###.",
    "##### ....# ...#. ..#.. ..#.. .#... .#...",
    ".###. #...# #...# .###. #...# #...# .###.",
    ".###. #...# #...# .#### ....# ....# .###.",
)
_NOISE = 0.2


def load() -> tuple[Floats, npt.NDArray[np.int64]]:
    """Return the images (n, 64) scaled to 0..1 and their labels (n,)."""
    package = importlib.util.find_spec("sklearn")
    if package is None or package.origin is None:
        return draw()
    # As sklearn.datasets.load_digits does; its import would take each worker longer than the training.
    rows = np.loadtxt(Path(package.origin).parent / "datasets" / "data" / "digits.csv.gz", delimiter=",")
    rows = np.random.default_rng(0).permutation(rows)
    return (rows[:, :-1] / 16).astype(np.float32), rows[:, -1].astype(np.int64)


def draw() -> tuple[Floats, npt.NDArray[np.int64]]:
    """Return drawn pictures (n, 64), scaled to 0..1, and their labels (n,); the same at every call."""
    random = np.random.default_rng(0)
    glyphs = np.array(
        [[[dot == "#" for dot in row] for row in glyph.split()] for glyph in _GLYPHS], np.float64
    )
    labels = random.integers(0, 10, PICTURES)
    pictures = np.zeros((PICTURES, 8, 8))
    for picture, label in zip(pictures, labels, strict=True):
        down, right = random.integers(0, 2), random.integers(1, 3)
        picture[down : down + 7, right : right + 5] = glyphs[label] * random.uniform(0.6, 1.0)
    pictures += random.normal(0.0, _NOISE, pictures.shape)
    return pictures.clip(0, 1).reshape(PICTURES, 64).astype(np.float32), labels


def initial_parameters() -> Parameters:
    """Return the same small random weights on every rank."""
    rng = np.random.default_rng(1)
    return [
        (rng.standard_normal((64, HIDDEN)) / 8).astype(np.float32),
        np.zeros(HIDDEN, np.float32),
        (rng.standard_normal((HIDDEN, 10)) / np.sqrt(HIDDEN)).astype(np.float32),
        np.zeros(10, np.float32),
    ]


def predict(parameters: Parameters, images: Floats) -> tuple[Floats, Floats]:
    """Return the hidden activations and the class probabilities."""
    w1, b1, w2, b2 = parameters
    hidden = np.maximum(images @ w1 + b1, 0)
    logits = hidden @ w2 + b2
    exponentials = np.exp(logits - logits.max(axis=1, keepdims=True))
    return hidden, exponentials / exponentials.sum(axis=1, keepdims=True)


def gradient(parameters: Parameters, images: Floats, labels: npt.NDArray[np.int64]) -> Parameters:
    """Return the mean gradient of the cross-entropy loss."""
    hidden, error = predict(parameters, images)
    error[np.arange(len(labels)), labels] -= 1
    error /= len(labels)
    back = (error @ parameters[2].T) * (hidden > 0)
    return [images.T @ back, back.sum(axis=0), hidden.T @ error, error.sum(axis=0)]


def accuracy(parameters: Parameters, images: Floats, labels: npt.NDArray[np.int64]) -> float:
    """Return the share of images classified correctly."""
    return float((predict(parameters, images)[1].argmax(axis=1) == labels).mean())


def batches(epochs: int, batch: int) -> Iterator[npt.NDArray[np.int64]]:
    """Yield image numbers in an order that all ranks share."""
    rng = np.random.default_rng(2)
    for _ in range(epochs):
        order = rng.permutation(TRAINING_IMAGES)
        for start in range(0, TRAINING_IMAGES - batch + 1, batch):
            yield order[start : start + batch]


class SwitchAverage:
    """Averages gradients with the other workers, through the switch."""

    def __init__(self) -> None:
        self.shards = range(ina.rank(), ina.rank() + 1)
        self.total = ina.size()

    def __call__(self, gradients: list[Parameters]) -> Parameters:
        """Average this worker's gradients with all other workers', all tensors in flight at once."""
        (mine,) = gradients
        handles = [
            ina.allreduce_async(tensor, op="average", name=name, layer=layer)
            for name, layer, tensor in zip(NAMES, LAYERS, mine, strict=True)
        ]
        return [handle.wait() for handle in handles]

    def progress(self, done: int, total: int) -> None:
        """Report the progress of training: where jobs share a switch, jobs that end soon get priority."""
        ina.progress(done, total)


@dataclass
class LocalAverage:
    """Averages all shards in this process, as a reference for a run through the switch.

    `bound` is the largest possible difference between the weights of the two runs. Each step may differ by
    the errors of quantisation and rounding. The bound assumes that earlier differences do not grow by
    themselves, which holds for gradient descent with a step this small.
    """

    total: int
    shards: range = field(init=False)
    bound: float = 0.0

    def __post_init__(self) -> None:
        self.shards = range(self.total)

    def __call__(self, gradients: list[Parameters]) -> Parameters:
        """Average the shards in double precision."""
        stacks = [np.stack(tensors) for tensors in zip(*gradients, strict=True)]
        self.bound += LEARNING_RATE * max(self._step_bound(stack) for stack in stacks)
        return [stack.mean(axis=0, dtype=np.float64).astype(np.float32) for stack in stacks]

    def progress(self, done: int, total: int) -> None:
        """Do nothing."""

    def note_rounding(self, parameters: Parameters) -> None:
        """Add to the bound the error of rounding the updated weights to float32, in each of the two runs."""
        self.bound += max(float(np.spacing(np.abs(parameter).max())) for parameter in parameters)

    def _step_bound(self, stack: Floats) -> float:
        """Bound |switch average - exact average| of one tensor (docs/reference/protocol/numbers.md)."""
        flat = np.abs(stack).max(axis=0).ravel()
        peaks = np.maximum.reduceat(flat, np.arange(0, flat.size, LANES))
        return max(ina.error_bound(float(peak), self.total, named=True) for peak in peaks) / self.total


def train(average: SwitchAverage | LocalAverage, epochs: int, batch: int, *, talk: bool) -> Parameters:
    """Run all steps of the training.

    Args:
        average: Averages gradients.
        epochs: Number of passes over the data.
        batch: Images per step.
        talk: Whether to print one line per epoch.
    """
    images, labels = load()
    test = slice(TRAINING_IMAGES, None)
    parameters = initial_parameters()
    started = time.perf_counter()
    steps = TRAINING_IMAGES // batch  # of an epoch

    def report(when: str) -> None:
        score = accuracy(parameters, images[test], labels[test])
        print(f"{when:15}test accuracy {score:.4f}  {time.perf_counter() - started:5.1f} s")

    for step, chosen in enumerate(batches(epochs, batch)):
        average.progress(step, epochs * steps)
        if talk and step % steps == 0:
            report(f"epoch {step // steps:3d}/{epochs}")
        pieces = np.array_split(chosen, average.total)
        gradients = [gradient(parameters, images[pieces[s]], labels[pieces[s]]) for s in average.shards]
        for parameter, change in zip(parameters, average(gradients), strict=True):
            parameter -= LEARNING_RATE * change
        if isinstance(average, LocalAverage):
            average.note_rounding(parameters)
    if talk:
        report("done")
    return parameters


def save(path: Path, parameters: Parameters, bound: float) -> None:
    """Write weights, accuracy and bound for a comparison (`ina demo`)."""
    images, labels = load()
    score = accuracy(parameters, images[TRAINING_IMAGES:], labels[TRAINING_IMAGES:])
    np.savez(path, *parameters, accuracy=score, bound=bound)


def main() -> None:
    """Train as one worker of a job, or alone with ``--shards``."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--epochs", type=int, default=30)
    parser.add_argument("--batch", type=int, default=300, help="images per step, over all workers")
    parser.add_argument("--shards", type=int, help="train without workers: compute N shards in this process")
    parser.add_argument("--save", type=Path, metavar="FILE.npz", help="write the trained weights (rank 0)")
    options = parser.parse_args()
    if not 1 <= options.batch <= TRAINING_IMAGES:
        parser.error(f"--batch {options.batch}: must be 1 to {TRAINING_IMAGES} images per step")

    average: SwitchAverage | LocalAverage
    if options.shards:
        average = LocalAverage(options.shards)
        parameters = train(average, options.epochs, options.batch, talk=True)
        bound = average.bound
    else:
        ina.init()
        average = SwitchAverage()
        parameters = train(average, options.epochs, options.batch, talk=ina.rank() == 0)
        bound = 0.0
    if options.save and (options.shards or ina.rank() == 0):
        save(options.save, parameters, bound)
    ina.shutdown()


if __name__ == "__main__":
    main()
