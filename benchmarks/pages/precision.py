"""Accuracy of a trained model against the scaling factor of its gradients, which go as integers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean

import numpy as np
from numpy.typing import NDArray

from bmv2_topos.harness import (
    Experiment,
    ResultRow,
    Value,
    column,
    markdown,
    spread,
)
from bmv2_topos.plots import draw_lines
from hostlib.demos import digits
from tests.twins import quantize as numbers

WORKERS = 4
EPOCHS, BATCH = 20, 300
LANES = 64
SEEDS = (1, 2, 3, 4, 5)
EXACT, EXPONENT = "float32", "exponent"
BITS = (2, 4, 6, 8, 10, 14, 20, 26, 30, 34, 38)
"""Gradients times 2 to the power of this: the fixed scales."""

Floats = NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class Training:
    """One training in this process."""

    scale: str
    seed: int
    epochs: int

    @property
    def labels(self) -> ResultRow:
        """Scale and seed."""
        return {"scale": self.scale, "seed": self.seed}

    @property
    def real(self) -> bool:
        """False: nothing is timed."""
        return False

    @property
    def missing(self) -> str:
        """Nothing."""
        return ""

    @property
    def elements(self) -> int:
        """Elements that all workers send."""
        weights = sum(parameter.size for parameter in digits.initial_parameters())
        return weights * WORKERS * self.epochs * (digits.TRAINING_IMAGES // BATCH)

    def run(self) -> ResultRow:
        """Train, and return what came of it."""
        images, labels = digits.load()
        parameters = _initial(self.seed)
        sums = Sums(self.scale)
        for chosen in digits.batches(self.epochs, BATCH):
            pieces = np.array_split(chosen, WORKERS)
            gradients = [digits.gradient(parameters, images[piece], labels[piece]) for piece in pieces]
            for parameter, tensors in zip(parameters, zip(*gradients, strict=True), strict=True):
                parameter -= digits.LEARNING_RATE * sums.average(np.stack(tensors))
        test = slice(digits.TRAINING_IMAGES, None)
        score = digits.accuracy(parameters, images[test], labels[test])
        return {"accuracy": round(score, 4), "zeros": sums.zeros, "too_large": sums.too_large}


def _initial(seed: int) -> digits.Parameters:
    rng = np.random.default_rng(seed)
    return [
        np.asarray(rng.permuted(parameter), np.float32) if parameter.any() else parameter
        for parameter in digits.initial_parameters()
    ]


class Sums:
    """Averages gradients as the switch would, and counts what is lost."""

    def __init__(self, scale: str) -> None:
        self._scale = scale
        self._packets = self._large = self._values = self._zeros = 0

    @property
    def zeros(self) -> float:
        """Share of gradients that were not zero, and became so."""
        return round(self._zeros / max(1, self._values), 4)

    @property
    def too_large(self) -> float:
        """Share of packets that did not fit."""
        return round(self._large / max(1, self._packets), 4)

    def average(self, stack: Floats) -> Floats:
        """Return the average of the workers' tensors, one per row of `stack`."""
        if self._scale == EXACT:
            return _exact(stack)
        size = stack[0].size
        rows = np.zeros((WORKERS, -(-size // LANES) * LANES), np.float32)
        rows[:, :size] = stack.reshape(WORKERS, size)
        packets = rows.reshape(WORKERS, -1, LANES)
        of = self._by_exponent(packets) if self._scale == EXPONENT else self._fixed(packets)
        return of.reshape(-1)[:size].reshape(stack[0].shape)

    def _by_exponent(self, packets: Floats) -> Floats:
        exponent = np.max([numbers.exponents(of) for of in packets], axis=0)
        integers = [numbers.quantize(of, exponent, WORKERS) for of in packets]
        self._count(packets, np.stack(integers))
        total = np.stack(integers).sum(axis=0, dtype=np.int32)
        return numbers.dequantize(total, exponent, WORKERS, average=True)

    def _fixed(self, packets: Floats) -> Floats:
        bits = int(self._scale)
        pairs = [numbers.quantize_fixed(of, bits, WORKERS) for of in packets]
        fits = np.logical_and.reduce([fit for _, fit in pairs])
        integers = np.stack([values for values, _ in pairs])
        self._count(packets[:, fits], integers[:, fits])
        self._packets += fits.size
        self._large += int((~fits).sum())
        total = integers.sum(axis=0, dtype=np.int32)
        fixed = numbers.dequantize_fixed(total, bits, WORKERS, average=True)
        return np.where(fits[:, None], fixed, _exact(packets))

    def _count(self, values: Floats, integers: NDArray[np.int32]) -> None:
        self._values += int(np.count_nonzero(values))
        self._zeros += int(np.count_nonzero((values != 0) & (integers == 0)))


def _exact(stack: Floats) -> Floats:
    average: Floats = stack.mean(axis=0, dtype=np.float64).astype(np.float32)
    return average


def scenarios(quick: bool) -> list[Training]:
    """Return all scales with all seeds."""
    return list(_scenarios(quick))


def _scenarios(quick: bool) -> Iterator[Training]:
    for scale in (EXACT, EXPONENT, *map(str, BITS[::3] if quick else BITS)):
        for seed in SEEDS[:1] if quick else SEEDS:
            yield Training(scale, seed, epochs=1 if quick else EPOCHS)


def measure(row: ResultRow) -> ResultRow:
    """Return the training's results."""
    return row


def _scales(rows: Sequence[ResultRow]) -> list[Value]:
    return list(dict.fromkeys(row["scale"] for row in rows))


def _mean(rows: Sequence[ResultRow], scale: Value) -> float:
    return fmean(column(rows, "accuracy", scale=scale))


def tables(rows: Sequence[ResultRow]) -> str:
    """Return one table."""
    lines = []
    for scale in _scales(rows):
        shares = (spread(column(rows, name, scale=scale), ".1%") for name in ("zeros", "too_large"))
        lines.append([str(scale), spread(column(rows, "accuracy", scale=scale), ".3f"), *shares])
    return markdown(["scale", "accuracy", "zeros", "too large"], lines)


def plots(rows: Sequence[ResultRow], directory: Path) -> list[Path]:
    """Draw accuracy over the scale."""
    fixed = [scale for scale in _scales(rows) if str(scale).isdigit()]
    lines = {"fixed scale": [(float(str(scale)), _mean(rows, scale)) for scale in fixed]}
    for name in (EXACT, EXPONENT):
        lines[name] = [(float(str(scale)), _mean(rows, name)) for scale in (fixed[0], fixed[-1])]
    path = directory / "precision.svg"
    draw_lines(lines, path, x="fixed scale, power of 2", y="accuracy")
    return [path]


EXPERIMENT = Experiment(
    name="precision",
    title="Accuracy against the scaling factor",
    scenarios=scenarios,
    measure=measure,
    tables=tables,
    plots=plots,
)
