"""Measured profiles and pairs: the CSV files that Lucid's authors publish, or your own in that format.

A profile file has the columns `model`, `dataset`, `batchsize`, `amp`, `gpu_util`, `gmem_util` (percent) and
`gmem` (MB); a column `label` may have the sharing scores that the file's authors give. A pair file has the
columns `model1`, `dataset1`, `batchsize1`, `amp1`, `speed1`, the same columns with 2, and may have more; a
speed is relative to running alone.

`make_usages` and `make_pairs` make synthetic measurements, to try Lucid's policies without real data.
`PairSpeed` is the speed model of two jobs on the same GPUs, by measured pairs.
"""

from __future__ import annotations

import csv
import math
import random
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from controller.policies.scheduling.errors import BadSpec, BadTrace
from controller.policies.scheduling.lucid.usage import BadSample, GpuUsage, Size
from controller.policies.scheduling.model import Submission
from controller.policies.scheduling.policy import Group


class Config(NamedTuple):
    """A training configuration; two jobs of one configuration behave alike."""

    model: str
    dataset: str
    batch: int
    mixed_precision: bool


class Pair(NamedTuple):
    """Two configurations on one GPU, and the speed of each relative to its speed alone."""

    one: Config
    other: Config
    speed_one: float
    speed_other: float


def read_usages(path: Path) -> dict[Config, GpuUsage]:
    """Return the measured usage of each configuration. Raises BadTrace, with line and column."""
    found: dict[Config, GpuUsage] = {}
    for line, row in _rows(path, ("gpu_util", "gmem_util", "gmem")):
        config = _config(path, line, row, "")
        if config in found:
            raise BadTrace(str(path), line, "", f"{config} appears twice")
        try:
            found[config] = GpuUsage(
                _number(path, line, row, "gpu_util"),
                _number(path, line, row, "gmem_util"),
                _number(path, line, row, "gmem"),
                config.mixed_precision,
            )
        except BadSample as error:
            raise BadTrace(str(path), line, "", str(error)) from None
    return found


def read_labels(path: Path) -> dict[Config, Size]:
    """Return each configuration's sharing score; {} if the file has no column `label`. Raises BadTrace."""
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
                raise BadTrace(str(path), 1, column, "there is no such column in the first line")
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


def make_usages(models: int, *, seed: int = 0) -> dict[Config, GpuUsage]:
    """Return synthetic usage of `models` models with three batch sizes, with and without mixed precision.

    Larger batches use more of a GPU; mixed precision uses less of a GPU and of the GPU's memory.
    """
    rng = random.Random(seed)
    found = {}
    for number in range(models):
        base, memory = rng.uniform(5, 85), rng.uniform(1500, 9000)
        for step, batch in enumerate((32, 64, 128)):
            for mixed in (False, True):
                gpu = min(100.0, base * (1 + 0.35 * step) * (0.7 if mixed else 1.0) * rng.uniform(0.95, 1.05))
                found[Config(f"net{number}", "data", batch, mixed)] = GpuUsage(
                    gpu,
                    gpu * rng.uniform(0.4, 0.7),
                    memory * (1 + 0.4 * step) * (0.8 if mixed else 1.0),
                    mixed,
                )
    return found


def pair_speeds(one: GpuUsage, other: GpuUsage) -> tuple[float, float]:
    """Return synthetic speeds of two jobs on one GPU, each relative to the job's speed alone.

    The model: kernels take turns, and memory traffic of both jobs slows both down.
    """

    def speed(mine: GpuUsage, partner: GpuUsage) -> float:
        overload = max(0.0, mine.gpu_util + partner.gpu_util - 100) / 200
        traffic = mine.memory_util * partner.memory_util / 100 / 300
        return max(0.3, 1 - overload * partner.gpu_util / 100 - traffic)

    return speed(one, other), speed(other, one)


def make_pairs(usages: dict[Config, GpuUsage], *, noise: float = 0.02, seed: int = 0) -> list[Pair]:
    """Return synthetic measurements of all pairs of configurations, with some noise."""
    rng = random.Random(seed)
    configs = list(usages)
    pairs = []
    for number, one in enumerate(configs):
        for other in configs[number:]:
            speeds = [max(0.1, v + rng.gauss(0, noise)) for v in pair_speeds(usages[one], usages[other])]
            pairs.append(Pair(one, other, *speeds))
    return pairs


def config_by_columns(spec: Submission) -> Config:
    """Return a job's configuration: model, batch size, and the columns `dataset` and `amp` of the trace.

    Raises BadSpec if a column is missing.
    """
    try:
        return Config(
            spec.model, spec.extra["dataset"], spec.batch, spec.extra["amp"] not in ("0", "False", "")
        )
    except KeyError as error:
        raise BadSpec(f"job {spec.name!r} has no column {error} in its trace") from None


class PairSpeed:
    """Speed model: two jobs on the same GPUs run at the speeds measured for their configurations on one GPU.

    The speeds do not depend on the number of GPUs. Pairs that were not measured run at the fraction
    `unmeasured` of their speeds alone. The first start of a job is free; each restart costs
    ``restart_s(GPUs)`` seconds.
    """

    def __init__(
        self,
        pairs: Iterable[Pair],
        config_of: Callable[[Submission], Config] = config_by_columns,
        *,
        unmeasured: float = 1.0,
        restart_s: Callable[[int], float] = lambda gpus: 0.0,
    ) -> None:
        self._speeds: dict[tuple[Config, Config], tuple[float, float]] = {}
        for pair in pairs:
            self._speeds[pair.one, pair.other] = pair.speed_one, pair.speed_other
            self._speeds[pair.other, pair.one] = pair.speed_other, pair.speed_one
        self._config_of = config_of
        self._unmeasured = unmeasured
        self._restart_s = restart_s

    def alone_s(self, job: Submission) -> float:
        """Return the job's own seconds per iteration."""
        return job.iteration_s

    def iteration_s(self, group: Group) -> Sequence[float]:
        """Return the time of one iteration of each member, in seconds: its time alone divided by its speed.

        Raises BadSpec for more than two jobs.
        """
        if len(group.jobs) == 1:
            return [group.jobs[0].alone_s]
        if len(group.jobs) > 2:
            raise BadSpec(f"{len(group.jobs)} jobs share GPUs; want 2 at most: only pairs were measured")
        one, other = group.jobs
        key = self._config_of(one.spec), self._config_of(other.spec)
        speeds = self._speeds.get(key, (self._unmeasured, self._unmeasured))
        return [one.alone_s / speeds[0], other.alone_s / speeds[1]]

    def restart_s(self, group: Group) -> Sequence[float]:
        """Return the cost of a start for each member, in seconds; 0 for a member that has not run before."""
        return [self._restart_s(job.spec.gpus) if job.starts else 0.0 for job in group.jobs]
