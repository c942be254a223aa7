"""Train a network in four stages, each marked by the resource that it uses, so that jobs can take turns.

    ina run -np 2 -- python -m hostlib.demos.four_stages --iterations 20
    ina schedule interleave                                 # groups of jobs: measured and predicted speed

An iteration reads records from a file past the page cache (storage), converts them to images (CPU), computes
the gradient of a perceptron (GPU) and averages it over the workers through the switch (network). It uses no
GPU: `--cores 0,1` binds preprocessing to one core and computing to another, which stands for the machine's
accelerator. Options set the length of each stage. At the end it prints the stages' seconds per iteration.

With `--checkpoint FILE` a stopped job goes on from its last checkpoint.
"""

from __future__ import annotations

import argparse
import contextlib
import mmap
import os
import tempfile
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import numpy.typing as npt

import hostlib as ina
from hostlib import interleave

Floats = npt.NDArray[np.float32]
SIDE = 32
PIXELS = SIDE * SIDE
CLASSES = 8
BLOCK = 4096
"""Alignment in bytes of reads past the page cache."""
MADE_UP = 32 << 20
LEARNING_RATE = np.float32(0.1)
DROPOUT = 0.2
NUMBERS = {
    "iterations": (20, None),
    "batch": (64, "number of records per worker and iteration"),
    "views": (1, "number of shifted and blurred views to average for each image"),
    "threads": (1, "threads that preprocess"),
    "masks": (1, "number of dropout masks per iteration: the gradient is computed once for each"),
    "hidden": (128, "number of hidden units; they determine the size of the gradient"),
}
"""Defaults and help texts of the options with numbers from 1 on."""


class Records:
    """A file of records, read past the page cache, so that every read uses the disk."""

    def __init__(self, path: Path, record: int) -> None:
        if record < PIXELS or record % BLOCK:
            raise SystemExit(f"--record {record}: want a multiple of {BLOCK}, so that reads are aligned")
        self._record = record
        self._count = path.stat().st_size // record
        self._buffer: mmap.mmap | None = None
        self._file = os.open(path, os.O_RDONLY)
        os.posix_fadvise(self._file, 0, 0, os.POSIX_FADV_RANDOM)  # no reading ahead
        try:
            self._direct = os.open(path, os.O_RDONLY | os.O_DIRECT)
        except OSError:  # not every file system supports it
            self._direct = -1

    def read(self, first: int, number: int) -> npt.NDArray[np.uint8]:
        """Return `number` consecutive records, shape (number, record), valid until the next call.

        `first` is the number of the first record, modulo the number of possible places in the file.
        """
        if number > self._count:
            raise SystemExit(f"--batch {number}: the file has {self._count} records")
        first %= self._count - number + 1
        size, offset = number * self._record, first * self._record
        if self._buffer is None or len(self._buffer) != size:  # new pages would cost processor time
            self._buffer = mmap.mmap(-1, size)  # whole pages, as direct reads need
        buffer = self._buffer
        if self._direct >= 0:
            read = os.preadv(self._direct, [buffer], offset)
        else:
            os.posix_fadvise(self._file, offset, size, os.POSIX_FADV_DONTNEED)
            read = os.preadv(self._file, [buffer], offset)
        if read != size:
            raise SystemExit(f"{read} of {size} bytes could be read; the read began at byte {offset}")
        return np.frombuffer(buffer, np.uint8).reshape(number, self._record)


def make(path: Path, size: int, seed: int = 0) -> None:
    """Write a file of random records."""
    with path.open("wb") as file:
        rng = np.random.default_rng(seed)
        for start in range(0, size, 1 << 20):
            file.write(rng.bytes(min(1 << 20, size - start)))
        os.fsync(file.fileno())


def made_up(record: int) -> Records:
    """Return random records in a private file, which is removed when this process ends."""
    with tempfile.NamedTemporaryFile(prefix="ina-records-") as file:
        make(Path(file.name), MADE_UP)
        return Records(Path(file.name), record)


def preprocess(raw: npt.NDArray[np.uint8], views: int, seed: int) -> tuple[Floats, npt.NDArray[np.int64]]:
    """Return images, each the mean of randomly shifted and blurred views, and their labels."""
    images = raw[:, :PIXELS].reshape(-1, SIDE, SIDE).astype(np.float32) / np.float32(255)
    rng = np.random.default_rng(seed)
    total = np.zeros_like(images)
    for _ in range(views):
        view = np.roll(images, rng.integers(-2, 3, size=2), axis=(1, 2))
        view = (view + np.roll(view, 1, axis=1) + np.roll(view, 1, axis=2)) / np.float32(3)
        view -= view.mean(axis=(1, 2), keepdims=True)
        total += view / view.std(axis=(1, 2), keepdims=True)
    total /= np.float32(views)
    return total.reshape(-1, PIXELS), (raw[:, 0] // (256 // CLASSES)).astype(np.int64)


def preprocess_all(
    raw: npt.NDArray[np.uint8], views: int, seed: int, threads: ThreadPoolExecutor, number: int
) -> tuple[Floats, npt.NDArray[np.int64]]:
    """Preprocess in several threads, each of which handles a part of the records, with the same shifts.

    Args:
        raw: The records.
        views: Number of views of each record.
        seed: Seed of the shifts.
        threads: Pool that runs the parts.
        number: Number of parts.
    """
    parts = np.array_split(raw, min(len(raw), number))
    done = list(threads.map(lambda part: preprocess(part, views, seed), parts))
    return np.concatenate([images for images, _ in done]), np.concatenate([labels for _, labels in done])


@contextlib.contextmanager
def on_cores(bound: Sequence[set[int]], everywhere: set[int]) -> Iterator[None]:
    """Bind this thread to the cores in `bound`, a list of one set, during the block.

    Afterwards, bind the thread to the cores in `everywhere`. If `bound` is empty, do nothing.
    """
    for cores in bound:
        os.sched_setaffinity(0, cores)
    yield
    if bound:
        os.sched_setaffinity(0, everywhere)


class Network:
    """A perceptron with one hidden layer; its gradient is one flat array."""

    def __init__(self, hidden: int) -> None:
        rng = np.random.default_rng(1)
        self.hidden = hidden
        self.weights = (rng.standard_normal(PIXELS * hidden + hidden * CLASSES) / 32).astype(np.float32)

    def gradient(
        self, images: Floats, labels: npt.NDArray[np.int64], masks: int, seed: int
    ) -> tuple[Floats, float]:
        """Return the mean gradient of the cross-entropy over some dropout masks, and the mean loss.

        Args:
            images: The images, flat, one per row.
            labels: Their classes.
            masks: Number of dropout masks.
            seed: Seed of the masks.
        """
        cut = PIXELS * self.hidden
        first, second = self.weights[:cut].reshape(PIXELS, -1), self.weights[cut:].reshape(-1, CLASSES)
        rng = np.random.default_rng(seed)
        total = np.zeros_like(self.weights)
        loss = 0.0
        rows = np.arange(len(labels))
        for _ in range(masks):
            kept = (rng.random(self.hidden, dtype=np.float32) > DROPOUT).astype(np.float32)
            hidden = np.maximum(images @ first, 0) * kept
            logits = hidden @ second
            error = np.exp(logits - logits.max(axis=1, keepdims=True))
            error /= error.sum(axis=1, keepdims=True)
            loss -= float(np.log(error[rows, labels]).mean())
            error[rows, labels] -= 1
            error /= len(labels)
            back = (error @ second.T) * (hidden > 0)
            total[:cut] += (images.T @ back).ravel()
            total[cut:] += (hidden.T @ error).ravel()
        return total / np.float32(masks), loss / masks


def load_checkpoint(path: Path | None, network: Network) -> int:
    """Load the saved weights; return the number of the next iteration, 0 if there is no file."""
    if path is None or not path.exists():
        return 0
    with np.load(path) as saved:
        network.weights[:] = saved["weights"]
        return int(saved["iteration"])


def save_checkpoint(path: Path, network: Network, iteration: int) -> None:
    """Write the weights atomically: a job stopped meanwhile keeps the old file."""
    draft = path.with_suffix(".draft.npz")
    np.savez(draft, weights=network.weights, iteration=iteration)
    draft.replace(path)


def main() -> None:
    """Train as one worker of a job, which takes turns with other jobs if it is in a group."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument(
        "--data", type=Path, help="file of records; by default, a temporary file of random records"
    )
    parser.add_argument(
        "--record", type=int, default=4096, help="bytes to read per record; only the first 1024 are used"
    )
    for name, (default, text) in NUMBERS.items():
        parser.add_argument(f"--{name}", type=int, default=default, help=text)
    parser.add_argument("--cores", help="two cores A,B: preprocess on core A, compute on core B")
    parser.add_argument(
        "--checkpoint",
        type=Path,
        metavar="FILE.npz",
        help="begin from this checkpoint if the file exists; rank 0 writes it after every iteration",
    )
    options = parser.parse_args()
    for name in NUMBERS:
        if getattr(options, name) < 1:
            parser.error(f"--{name} {getattr(options, name)}: want 1 or more")
    everywhere = os.sched_getaffinity(0)
    bound = [{int(core)} for core in options.cores.split(",")] if options.cores else []
    if bound and (len(bound) != 2 or not all(cores <= everywhere for cores in bound)):
        parser.error(f"--cores {options.cores}: want two of {sorted(everywhere)}")

    ina.init()
    rank, size = ina.rank(), ina.size()
    records = Records(options.data, options.record) if options.data else made_up(options.record)
    network = Network(options.hidden)
    average = np.zeros_like(network.weights)
    begin = load_checkpoint(options.checkpoint, network)
    loss = float("nan")
    with interleave.join(rank) as timer, ThreadPoolExecutor(options.threads) as threads:
        for iteration in range(begin, options.iterations):
            ina.progress(iteration, options.iterations)
            seed = iteration * size + rank
            with timer.iteration():
                with timer.stage("storage"):
                    raw = records.read(seed * options.batch, options.batch)
                with timer.stage("cpu"), on_cores(bound[:1], everywhere):
                    images, labels = preprocess_all(raw, options.views, seed, threads, options.threads)
                with timer.stage("gpu"), on_cores(bound[1:], everywhere):
                    gradient, loss = network.gradient(images, labels, options.masks, seed)
                with timer.stage("network"):
                    ina.allreduce(gradient, op="average", out=average)
                network.weights -= LEARNING_RATE * average
            if options.checkpoint and rank == 0:
                save_checkpoint(options.checkpoint, network, iteration + 1)
    if begin < options.iterations and rank == 0:
        profile = timer.profile()
        parts = ", ".join(
            f"{stage} {s:.4f}" for stage, s in zip(interleave.STAGES, profile.stages_s, strict=True)
        )
        print(f"loss {loss:.3f}; seconds per iteration: {parts}; in all {profile.iteration_s:.4f}")
    ina.shutdown()


if __name__ == "__main__":
    main()
