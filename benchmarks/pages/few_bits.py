"""What gradients in 16, 8 and 4 bits cost a training, with and without error feedback, and what they save."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from importlib.util import find_spec
from pathlib import Path
from statistics import fmean, median, stdev
from typing import Final

import numpy as np
from numpy.typing import NDArray

from benchmarks.pages import real
from bmv2_topos.harness import (
    Call,
    Experiment,
    ResultRow,
    Run,
    column,
    markdown,
    number,
    selected,
    spread,
)
from bmv2_topos.plots import draw_lines
from bmv2_topos.testbeds.virtual import Report
from hostlib.demos import digits
from hostlib.wire import encodings
from tests.twins import quantize

EXACT: Final = "float32"
FEEDBACK = " with feedback"
WAYS: Final = (
    EXACT,
    f"block16{FEEDBACK}",
    *(f"{block}{kept}" for block in ("block8", "block4") for kept in ("", FEEDBACK)),
)
WORKERS: Final = (2, 4, 7, 32)
RANKS: Final = 4
"""Of the transformer, and of the allreduces."""
SEEDS: Final = (1, 2, 3, 4, 5)
EPOCHS, BATCH = 20, 224
"""Of the digits; the batch can be divided among all numbers of workers."""
STEPS, WIDTH, EVERY = 100, 32, 10
"""Of the transformer; its loss is noted after every so many steps."""
LANES: Final = real.LANES
RATE_BPS: Final = 1e8
SIZES: Final = (4096, 65536, 1 << 20, 16 << 20)
"""Bytes of the arrays that are summed, as float32."""
DIGITS, TRANSFORMER, VIRTUAL, NETNS = "digits", "transformer", "virtual time", "namespaces"

ITERATIONS: Final = 5

Floats = NDArray[np.float32]


def block_of(way: str) -> encodings.Block | None:
    """Return the encoding of a way; None: it has no fields."""
    return next((block for block in encodings.BLOCKS if block == way.removesuffix(FEEDBACK)), None)


class Sums:
    """Averages gradients as the switch would, and keeps what each worker's rounding leaves out."""

    def __init__(self, way: str) -> None:
        self._numbers = block_of(way)
        self._feedback = way.endswith(FEEDBACK)
        self._rest: dict[str, Floats] = {}

    def average(self, name: str, stack: Floats) -> Floats:
        """Return the average of the workers' tensors of a name, one per row of `stack`."""
        if self._numbers is None:
            mean: Floats = stack.mean(axis=0, dtype=np.float64).astype(np.float32)
            return mean
        workers, size, fields = len(stack), stack[0].size, encodings.per_lane(self._numbers)
        rows = np.zeros((workers, -(-size // (LANES * fields)) * LANES * fields), np.float32)
        rows[:, :size] = stack.reshape(workers, size)
        if self._feedback:
            rows += self._rest.get(name, np.float32(0))
        packets = rows.reshape(workers, -1, LANES * fields)
        exponent = np.max([quantize.exponents(of) for of in packets], axis=0)
        lanes = [quantize.pack(of, exponent, workers, fields) for of in packets]
        if self._feedback:
            left = [quantize.rest(of, exponent, workers, fields) for of in packets]
            self._rest[name] = np.stack(left).reshape(rows.shape)
        total = np.stack(lanes).sum(axis=0, dtype=np.int32)
        sums = quantize.unpack(total, exponent, workers, fields, average=True)
        return sums.reshape(-1)[:size].reshape(stack[0].shape)


def train_digits(way: str, seed: int, workers: int, epochs: int) -> ResultRow:
    """Train the perceptron; return loss and accuracy on the test images."""
    images, labels = digits.load()
    generator = np.random.default_rng(seed)
    parameters = [
        np.asarray(generator.permuted(parameter), np.float32) if parameter.any() else parameter
        for parameter in digits.initial_parameters()
    ]
    sums = Sums(way)
    for chosen in digits.batches(epochs, BATCH):
        pieces = np.array_split(chosen, workers)
        gradients = [digits.gradient(parameters, images[piece], labels[piece]) for piece in pieces]
        for name, parameter, tensors in zip(
            digits.NAMES, parameters, zip(*gradients, strict=True), strict=True
        ):
            parameter -= digits.LEARNING_RATE * sums.average(name, np.stack(tensors))
    test = slice(digits.TRAINING_IMAGES, None)
    odds = digits.predict(parameters, images[test])[1][np.arange(len(labels[test])), labels[test]]
    score = digits.accuracy(parameters, images[test], labels[test])
    return {"loss": round(float(-np.log(odds.clip(1e-12)).mean()), 4), "accuracy": round(score, 4)}


@dataclass(frozen=True, slots=True)
class TransformerTraining:
    """One training of the transformer in this process."""

    way: str
    seed: int
    steps: int

    @property
    def labels(self) -> ResultRow:
        """What it is."""
        return {"part": TRANSFORMER, "way": self.way, "workers": RANKS, "seed": self.seed}

    @property
    def real(self) -> bool:
        """True: torch rounds otherwise on another processor."""
        return True

    @property
    def missing(self) -> str:
        """What it lacks: torch."""
        return "" if find_spec("torch") else "the transformer needs torch: pip install 'ina[bench]'"

    @property
    def elements(self) -> int:
        """Elements that all workers send, about."""
        return 40_000 * RANKS * self.steps

    def run(self) -> ResultRow:
        """Train; return the last loss, of all workers, and the losses on the way."""
        import torch
        from torch.nn.functional import cross_entropy

        from examples import char_transformer

        torch.set_num_threads(1)
        text, symbols = char_transformer.corpus()
        torch.manual_seed(self.seed)
        model = char_transformer.Transformer(len(symbols), width=WIDTH)
        parameters = list(model.parameters())[::-1]  # as they become ready in the backward pass
        optimizer = torch.optim.AdamW(parameters, char_transformer.LEARNING_RATE)
        draws = [torch.Generator().manual_seed(1000 * self.seed + rank) for rank in range(RANKS)]
        sums, losses = Sums(self.way), []
        for step in range(1, self.steps + 1):
            flat, total = [], 0.0
            for draw in draws:
                inputs, targets = char_transformer.batch(text, draw)
                optimizer.zero_grad()
                loss = cross_entropy(model(inputs).flatten(0, 1), targets.flatten())
                loss.backward()
                total += loss.item() / RANKS
                flat.append(torch.cat([each.grad.reshape(-1) for each in parameters]).numpy())
            mean = torch.from_numpy(sums.average("bucket", np.stack(flat)))
            for parameter, part in zip(
                parameters, mean.split([each.numel() for each in parameters]), strict=True
            ):
                parameter.grad = part.view_as(parameter).clone()
            optimizer.step()
            if step % EVERY == 0:
                losses.append(total)
        rounded = [round(loss, 4) for loss in losses]
        by_step = {f"loss_{EVERY * (at + 1)}": loss for at, loss in enumerate(rounded)}
        return {"loss": rounded[-1], **by_step}


def scenarios(quick: bool) -> list[Run]:
    """Return the allreduces, then both trainings with all encodings and seeds."""
    return list(_scenarios(quick))


def _scenarios(quick: bool) -> Iterator[Run]:
    for size in SIZES[1:2] if quick else SIZES:
        allreduce = real.RealAllreduce(
            labels={"part": NETNS, "size_bytes": size, "workers": RANKS, "seed": SEEDS[0]},
            workers=RANKS,
            rate_bps=RATE_BPS,
            size_bytes=size,
            iterations=2 if quick else ITERATIONS,
            gloo=False,
            blocks=encodings.BLOCKS,
        )
        for numbers in encodings.NUMBERS:
            labels = {**allreduce.labels, "part": VIRTUAL, "way": numbers}
            simulated = real.in_virtual_time(allreduce, labels)
            (job,) = simulated.jobs
            yield replace(simulated, jobs=(replace(job, numbers=numbers),))
        yield allreduce
    for workers in WORKERS[1:2] if quick else WORKERS:
        for way in WAYS[::2] if quick else WAYS:
            if _has_room(way, workers):
                for seed in SEEDS[:1] if quick else SEEDS:
                    yield _digits(way, seed, workers, 1 if quick else EPOCHS)
    for way in WAYS[::5] if quick else WAYS:
        for seed in SEEDS[:1] if quick else SEEDS:
            yield TransformerTraining(way, seed, EVERY if quick else STEPS)


def _has_room(way: str, workers: int) -> bool:
    block = block_of(way)
    return block is None or workers <= encodings.most_ranks(block)


def _digits(way: str, seed: int, workers: int, epochs: int) -> Call:
    labels: ResultRow = {"part": DIGITS, "way": way, "workers": workers, "seed": seed}
    weights = sum(parameter.size for parameter in digits.initial_parameters())
    return Call(
        labels=labels,
        call=lambda: train_digits(way, seed, workers, epochs),
        elements=weights * workers * epochs * (digits.TRAINING_IMAGES // BATCH),
    )


def measure(found: Report | real.Times | ResultRow) -> ResultRow:
    """Return the time of an allreduce, by encoding where one run has all; a training's result as it is."""
    if isinstance(found, Report):
        return {"time_s": found.jobs[0].mean_iteration_s}
    if isinstance(found, real.Times):
        others = {f"{block}_s": median(times) for block, times in found.blocks_s.items()}
        return {"time_s": median(found.ina_s), "load": found.load, **others}
    return found


def gains(rows: Sequence[ResultRow], part: str, size: int) -> list[float]:
    """Return the goodput of the blocks relative to float32's with exponents, for an array of that size."""
    of_size = selected(rows, part=part, size_bytes=size)
    if part == NETNS:
        return [number(row, "time_s") / number(row, f"{b}_s") for row in of_size for b in encodings.BLOCKS]
    (whole,) = column(of_size, "time_s", way="exponent")
    return [whole / time for block in encodings.BLOCKS for time in column(of_size, "time_s", way=block)]


def _sizes(rows: Sequence[ResultRow], part: str) -> list[int]:
    return [int(size) for size in dict.fromkeys(column(rows, "size_bytes", part=part))]


def tables(rows: Sequence[ResultRow]) -> str:
    """Return goodput by size, accuracy by number of workers, and losses of the transformer."""
    heads = [f"{block} ÷ float32" for block in encodings.BLOCKS]
    lines = [
        [part, f"{size:,} B", *(f"{gain:.2f}" for gain in gains(rows, part, size))]
        for part in (VIRTUAL, NETNS)
        for size in _sizes(rows, part)
    ]
    speed = markdown(["goodput", "array", *heads], lines)
    found = selected(rows, part=DIGITS)
    counts = sorted({int(number(row, "workers")) for row in found})
    lines = [[way, *(_digits_cell(found, way, count) for count in counts)] for way in _ways(found)]
    accuracy = markdown(["digits: loss, accuracy", *(f"{count} workers" for count in counts)], lines)
    return "\n\n".join([speed, accuracy, *_transformer_table(rows)])


def _ways(rows: Sequence[ResultRow]) -> list[str]:
    return list(dict.fromkeys(str(row["way"]) for row in rows))


def _digits_cell(rows: Sequence[ResultRow], way: str, workers: int) -> str:
    losses, scores = (column(rows, name, way=way, workers=workers) for name in ("loss", "accuracy"))
    return f"{spread(losses, '.3f')}, {fmean(scores):.3f}" if losses else "no room"


def _transformer_table(rows: Sequence[ResultRow]) -> list[str]:
    found = selected(rows, part=TRANSFORMER)
    if not found:
        return []
    noise = _noise(found)
    lines = [
        [way, spread(column(found, "loss", way=way), ".3f"), _above(found, way), f"{noise:.3f}"]
        for way in _ways(found)
    ]
    return [markdown(["transformer", "last loss", f"above {EXACT}, by seed", "noise"], lines)]


def _noise(rows: Sequence[ResultRow]) -> float:
    losses = column(rows, "loss", way=EXACT)
    return stdev(losses) if len(losses) > 1 else 0.0


def _differences(rows: Sequence[ResultRow], way: str) -> list[float]:
    """Return how far each seed's loss is above that without rounding."""
    pairs = zip(column(rows, "loss", way=way), column(rows, "loss", way=EXACT), strict=True)
    return [mine - exact for mine, exact in pairs]


def _above(rows: Sequence[ResultRow], way: str) -> str:
    return spread(_differences(rows, way), "+.3f").replace("-0.000", "+0.000")


def plots(rows: Sequence[ResultRow], directory: Path) -> list[Path]:
    """Draw the transformer's loss over steps."""
    found = selected(rows, part=TRANSFORMER)
    steps = [int(name.removeprefix("loss_")) for name in (found[0] if found else {}) if "loss_" in name]
    if not steps:
        return []
    lines = {
        way: [(float(step), fmean(column(found, f"loss_{step}", way=way))) for step in steps]
        for way in _ways(found)
    }
    path = directory / "few-bits.svg"
    draw_lines(lines, path, x="step", y="loss, mean of the seeds", title=TRANSFORMER)
    return [path]


EXPERIMENT = Experiment(
    name="few-bits",
    title="Gradients in 16, 8 and 4 bits",
    scenarios=scenarios,
    measure=measure,
    tables=tables,
    plots=plots,
)
