"""Read measured profiles and pairs: the CSV files that Lucid's authors publish, or your own in that format.

A profile file has the columns `model`, `dataset`, `batchsize`, `amp`, `gpu_util`, `gmem_util` (percent) and
`gmem` (MB); a column `label` has the sharing scores that its authors give. A pair file has `model1`,
`dataset1`, `batchsize1`, `amp1`, `speed1`, the same with 2, and may have more; a speed is relative to running
alone.
"""

from __future__ import annotations

import csv
import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from controller.policies.scheduling.errors import BadTrace
from controller.policies.scheduling.lucid.errors import BadSample
from controller.policies.scheduling.lucid.usage import Size, Usage


class Config(NamedTuple):
    """A training configuration; two jobs of one configuration behave alike."""

    model: str
    dataset: str
    batch: int
    mixed_precision: bool


class Pair(NamedTuple):
    """Two configurations on one GPU and their speeds."""

    one: Config
    other: Config
    speed_one: float
    speed_other: float


def read_usages(path: Path) -> dict[Config, Usage]:
    """Return the measured usage of each configuration. Raises BadTrace, with line and column."""
    found: dict[Config, Usage] = {}
    for line, row in _rows(path, ("gpu_util", "gmem_util", "gmem")):
        config = _config(path, line, row, "")
        if config in found:
            raise BadTrace(str(path), line, "", f"{config} appears twice")
        try:
            found[config] = Usage(
                _number(path, line, row, "gpu_util"),
                _number(path, line, row, "gmem_util"),
                _number(path, line, row, "gmem"),
                config.mixed_precision,
            )
        except BadSample as error:
            raise BadTrace(str(path), line, "", str(error)) from None
    return found


def read_labels(path: Path) -> dict[Config, Size]:
    """Return the sharing scores of a profile file; empty if it has no column `label`. Raises BadTrace."""
    found: dict[Config, Size] = {}
    for line, row in _rows(path, ()):
        if "label" in row:
            label = _number(path, line, row, "label")
            if label not in list(Size):
                raise BadTrace(str(path), line, "label", f"{row['label']}; a sharing score is 0, 1 or 2")
            found[_config(path, line, row, "")] = Size(int(label))
    return found


def read_pairs(path: Path) -> list[Pair]:
    """Return the measured pairs. Raises BadTrace, with line and column."""
    pairs = []
    for line, row in _rows(path, ("speed1", "speed2")):
        speeds = []
        for column in ("speed1", "speed2"):
            speeds.append(_number(path, line, row, column))
            if speeds[-1] <= 0:
                raise BadTrace(str(path), line, column, f"a speed of {speeds[-1]}; want a positive number")
        pairs.append(Pair(_config(path, line, row, "1"), _config(path, line, row, "2"), *speeds))
    return pairs


def _rows(path: Path, columns: tuple[str, ...]) -> Iterator[tuple[int, Mapping[str, str | None]]]:
    with path.open(newline="") as file:
        reader = csv.DictReader(file)
        for column in columns:
            if column not in (reader.fieldnames or ()):
                raise BadTrace(str(path), 1, column, "there is no such column")
        for row in reader:
            yield reader.line_num, row


def _config(path: Path, line: int, row: Mapping[str, str | None], which: str) -> Config:
    texts = []
    for column in ("model", "dataset"):
        text = row.get(column + which)
        if not text:
            raise BadTrace(str(path), line, column + which, "it is missing")
        texts.append(text)
    batch = _number(path, line, row, "batchsize" + which)
    return Config(texts[0], texts[1], int(batch), bool(_number(path, line, row, "amp" + which)))


def _number(path: Path, line: int, row: Mapping[str, str | None], column: str) -> float:
    text = row.get(column)
    try:
        value = float(text or "")
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise BadTrace(str(path), line, column, f"{(text or '')[:60]!r} is not a number")
    return value
