"""Loss and accuracy of a trained model by how its gradients become integers: scales, exponents, few bits."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from itertools import product
from statistics import fmean
from typing import Final

import numpy as np
from numpy.typing import NDArray

from bmv2_topos.harness import Call, Experiment, ResultRow, column, columns, grouped, markdown, spread
from hostlib.demos import digits
from hostlib.wire import encodings
from tests.twins import quantize

EXACT, EXPONENT = "float32", "exponent"
BITS: Final = (2, 4, 6, 8, 10, 14, 20, 26, 30, 34, 38)
"""Gradients times 2 to the power of this: the fixed scales."""
FEEDBACK: Final = " with feedback"
SCALES: Final = (EXPONENT, *map(str, BITS))
"""Ways to try with four workers."""
FEW: Final = (
    EXACT,
    f"block16{FEEDBACK}",
    *(f"{b}{kept}" for b in ("block8", "block4") for kept in ("", FEEDBACK)),
)
"""Ways to try with each number of workers."""
WORKERS: Final = (2, 4, 7, 32)
USUAL: Final = 4
SEEDS: Final = (1, 2, 3, 4, 5)
EPOCHS, BATCH = 20, 224
"""The batch can be divided among all numbers of workers."""
LANES: Final = 256

Floats = NDArray[np.float32]


def block_of(way: str) -> encodings.Block | None:
    """Return the encoding of a way; None: it has no fields."""
    return next((block for block in encodings.BLOCKS if block == way.removesuffix(FEEDBACK)), None)


class Sums:
    """Averages gradients as the switch would, keeps the errors of rounding, and counts losses."""

    def __init__(self, way: str) -> None:
        self._way, self._block = way, block_of(way)
        self._rest: dict[str, Floats] = {}
        self._packets = self._large = self._values = self._zeros = 0

    @property
    def zeros(self) -> float:
        """Share of gradients that became zero by rounding."""
        return round(self._zeros / max(1, self._values), 4)

    @property
    def too_large(self) -> float:
        """Share of packets that did not fit."""
        return round(self._large / max(1, self._packets), 4)

    def average(self, name: str, stack: Floats) -> Floats:
        """Return the average of the workers' tensors of a name, one per row of `stack`."""
        if self._way == EXACT:
            return _exact(stack)
        workers, size = len(stack), stack[0].size
        values = LANES * (encodings.per_lane(self._block) if self._block else 1)
        rows = np.zeros((workers, -(-size // values), values), np.float32)
        rows.reshape(workers, -1)[:, :size] = stack.reshape(workers, size)
        if self._way.endswith(FEEDBACK):
            rows += self._rest.get(name, np.float32(0))
        if self._way.isdigit():
            found = self._fixed(rows)
        elif self._block:
            found = self._in_fields(name, rows, encodings.per_lane(self._block))
        else:
            exponent = np.max([quantize.exponents(row) for row in rows], axis=0)
            integers = np.stack([quantize.quantize(row, exponent, workers) for row in rows])
            self._count(rows, integers)
            found = quantize.dequantize(integers.sum(axis=0, dtype=np.int32), exponent, workers, average=True)
        return found.reshape(-1)[:size].reshape(stack[0].shape)

    def _in_fields(self, name: str, rows: Floats, fields: int) -> Floats:
        workers = len(rows)
        exponent = np.max([quantize.exponents(row) for row in rows], axis=0)
        lanes = np.stack([quantize.pack(row, exponent, workers, fields) for row in rows])
        self._rest[name] = np.stack([quantize.rest(row, exponent, workers, fields) for row in rows])
        return quantize.unpack(lanes.sum(axis=0, dtype=np.int32), exponent, workers, fields, average=True)

    def _fixed(self, rows: Floats) -> Floats:
        workers, bits = len(rows), int(self._way)
        pairs = [quantize.quantize_fixed(row, bits, workers) for row in rows]
        fits = np.logical_and.reduce([fit for _, fit in pairs])
        integers = np.stack([values for values, _ in pairs])
        self._count(rows[:, fits], integers[:, fits])
        self._packets += fits.size
        self._large += int((~fits).sum())
        fixed = quantize.dequantize_fixed(integers.sum(axis=0, dtype=np.int32), bits, workers, average=True)
        return np.where(fits[:, None], fixed, _exact(rows))

    def _count(self, values: Floats, integers: NDArray[np.int32]) -> None:
        self._values += int(np.count_nonzero(values))
        self._zeros += int(np.count_nonzero((values != 0) & (integers == 0)))


def _exact(stack: Floats) -> Floats:
    average: Floats = stack.mean(axis=0, dtype=np.float64).astype(np.float32)
    return average


def trained(way: str, workers: int, seed: int, epochs: int) -> ResultRow:
    """Train the perceptron on digits in this process; return its results on the test images, and losses."""
    images, labels = digits.load()
    rng = np.random.default_rng(seed)
    parameters = [
        np.asarray(rng.permuted(parameter), np.float32) if parameter.any() else parameter
        for parameter in digits.initial_parameters()
    ]
    sums = Sums(way)
    for chosen in digits.batches(epochs, BATCH):
        pieces = np.array_split(chosen, workers)
        gradients = [digits.gradient(parameters, images[piece], labels[piece]) for piece in pieces]
        for name, parameter, *tensors in zip(digits.NAMES, parameters, *gradients, strict=True):
            parameter -= digits.LEARNING_RATE * sums.average(name, np.stack(tensors))
    test = slice(digits.TRAINING_IMAGES, None)
    odds = digits.predict(parameters, images[test])[1][np.arange(len(labels[test])), labels[test]]
    return {
        "loss": round(float(-np.log(odds.clip(1e-12)).mean()), 4),
        "accuracy": round(digits.accuracy(parameters, images[test], labels[test]), 4),
        "zeros": sums.zeros,
        "too_large": sums.too_large,
    }


def scenarios(quick: bool) -> Iterator[Call]:
    """Return all ways with all seeds."""
    wanted = [*product(SCALES, (USUAL,)), *product(FEW, WORKERS)]
    for (way, workers), seed in product(wanted[::4] if quick else wanted, SEEDS[:1] if quick else SEEDS):
        block = block_of(way)
        if block is None or workers <= encodings.most_ranks(block):
            epochs = 1 if quick else EPOCHS
            yield Call(
                labels={"way": way, "workers": workers, "seed": seed},
                call=partial(trained, way, workers, seed, epochs),
                elements=10**4 * workers * epochs,
            )


def tables(rows: Sequence[ResultRow]) -> str:
    """Return a table of all ways with four workers, and one of few bits by number of workers."""
    lines = []
    found = grouped(rows, "way", "workers")
    for (way, workers), group in found.items():
        if workers == USUAL and (way == EXACT or way in SCALES):
            shares = (spread(column(group, name), ".1%") for name in ("zeros", "too_large"))
            lines.append([way, spread(column(group, "accuracy"), ".3f"), *shares])
    counts = [workers for (workers,) in grouped(rows, "workers")]
    few = [[way, *(_cell(found.get((way, count), [])) for count in sorted(counts))] for way in FEW]
    heads = ["loss, accuracy", *(f"{count} workers" for count in sorted(counts))]
    scales = markdown(["scale", "accuracy", "zeros", "too large"], lines)
    return f"### Scales, {USUAL} workers\n\n{scales}\n\n### Few bits\n\n{markdown(heads, few)}"


def _cell(rows: Sequence[ResultRow]) -> str:
    if not rows:
        return "no room"
    return f"{spread(column(rows, 'loss'), '.3f')}, {fmean(column(rows, 'accuracy')):.3f}"


EXPERIMENT = Experiment(
    name="precision",
    title="Accuracy of gradients as integers",
    scenarios=scenarios,
    measure=columns,
    tables=tables,
)
