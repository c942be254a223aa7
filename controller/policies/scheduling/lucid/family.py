"""The family lucid:POLICY: jobs that share GPUs run at the speeds measured for pairs of jobs.

`tune_settings` is the system tuner: it finds better settings by replaying past jobs (Lucid, 3.6).

Profiles and pairs are measured: in CSV files that Lucid's authors publish, or your own in that format.

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
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

from controller.policies.family import (
    Family,
    Setup,
    SimulationConfig,
    declared_settings,
    raising_bad_trace,
    resolve_options,
)
from controller.policies.scheduling import baselines
from controller.policies.scheduling.errors import BadSpec, BadTrace
from controller.policies.scheduling.lucid.estimates import OnlineLucid
from controller.policies.scheduling.lucid.policy import LucidOptions, LucidPolicy, Sharing
from controller.policies.scheduling.lucid.usage import (
    BadSample,
    GpuUsage,
    PackingTree,
    Size,
    grow,
    sizes_from_pairs,
)
from controller.policies.scheduling.policy import Group, JobState, Policy, SpeedModel, Submission
from controller.policies.scheduling.ranked import Preemption, RankedPolicy
from controller.policies.scheduling.speed import USUAL_COST

Settings = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Trial:
    """Settings and the cost of their replay."""

    settings: Settings
    cost: float


@dataclass(frozen=True, slots=True)
class TuningResult:
    """The best trial, and all trials in order."""

    best: Trial
    trials: tuple[Trial, ...]


def tune_settings(
    choices: Mapping[str, Sequence[Any]],
    start: Settings,
    replay: Callable[[Settings], float],
    *,
    rounds: int = 3,
    min_gain: float = 0.0,
) -> TuningResult:
    """Search for the settings of lowest cost, one setting after the other.

    Each round tries every choice of every setting, with the best values so far of all other settings. A round
    without a gain ends the search. No combination of settings is simulated twice. The search needs at most
    rounds · Σ choices simulations; all combinations would need Π choices. Like any descent, the search can
    miss a combination that is better only as a whole.

    Args:
        choices: The values to try for each setting.
        start: The present settings. Settings that are not in `choices` do not change.
        replay: Function that simulates with the given settings and returns their cost, such as the mean
            completion time.
        rounds: Maximum number of rounds.
        min_gain: Minimum gain, as a fraction of the cost, for which a setting is changed.

    Raises BadSpec for a minimum gain out of range.
    """
    if not 0 <= min_gain < 1:
        raise BadSpec(f"a minimal gain of {min_gain}; want a fraction of the cost, from 0 to below 1")
    trials: list[Trial] = []

    def attempt(settings: Settings) -> Trial:
        for trial in trials:
            if trial.settings == settings:
                return trial
        trial = Trial(dict(settings), replay(settings))
        trials.append(trial)
        return trial

    best = attempt(start)
    for _ in range(rounds):
        before = best
        for name, values in choices.items():
            for value in values:
                trial = attempt({**best.settings, name: value})
                if trial.cost < best.cost * (1 - min_gain):
                    best = trial
        if best is before:
            break
    return TuningResult(best, tuple(trials))


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


class PairSpeed(SpeedModel):
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

    def iteration_s(self, group: Group) -> Sequence[float]:
        """Return the time of one iteration of each member, in seconds: its time alone divided by its speed.

        Raises BadSpec for more than two jobs.
        """
        if len(group.jobs) == 1:
            return [group.jobs[0].alone_s]
        if len(group.jobs) > 2:
            raise BadSpec(f"{len(group.jobs)} jobs share GPUs; want 2 at most: only pairs were measured")
        one, other = group.jobs
        speeds = self._pair(one.spec, other.spec)
        return [one.alone_s / speeds[0], other.alone_s / speeds[1]]

    def _pair(self, one: Submission, other: Submission) -> tuple[float, float]:
        """Return the speeds of two jobs on the same GPUs, relative to their speeds alone."""
        key = self._config_of(one), self._config_of(other)
        return self._speeds.get(key, (self._unmeasured, self._unmeasured))

    def restart_s(self, group: Group) -> Sequence[float]:
        """Return the cost of a start for each member, in seconds; 0 for a member that has not run before."""
        return [self._restart_s(job.spec.gpus) if job.starts else 0.0 for job in group.jobs]


TIRESIAS_GPU_S = 18_000
BASELINES: Mapping[str, Callable[[], Policy]] = {
    "fifo": baselines.fifo,
    "sjf": baselines.sjf,
    "srtf": baselines.srtf,
    "qssf": baselines.qssf,
}


def measurements(config: SimulationConfig) -> tuple[dict[Config, GpuUsage], list[Pair]]:
    """Return the GPU usage of each configuration, and the speeds of pairs of configurations on one GPU.

    Raises BadSpec and the errors of reading files.
    """
    return _measurements(config.profiles, config.pairs, config.seed)


def packing_tree(config: SimulationConfig, usage: GpuUsage | None = None) -> PackingTree:
    """Return Lucid's packing tree for a job of this usage, trained on pairs of all other configurations.

    The speed of this job beside other jobs is unknown, as for a new job. Raises ExtraMissing without
    scikit-learn.
    """
    without = usage if usage in measurements(config)[0].values() else None
    return _tree(config.profiles, config.pairs, config.seed, without)


def usage_of(spec: Submission, config: SimulationConfig) -> GpuUsage:
    """Return the usage that Lucid's profiler reads: the trace's columns, or else the configuration's profile.

    Raises BadSpec if there is neither, or a column is not a number.
    """
    columns = ("gpu_util", "gmem_util", "gmem", "amp")
    if all(spec.extra.get(column) for column in columns):
        try:
            gpu, memory, used_mb = (float(spec.extra[column]) for column in columns[:3])
        except ValueError:
            raise BadSpec(f"job {spec.name!r}: {', '.join(columns[:3])} must be numbers") from None
        return GpuUsage(min(gpu, 100.0), memory, used_mb, spec.extra["amp"] not in ("0", "False"))
    usages = measurements(config)[0]
    configuration = config_by_columns(spec)
    if configuration not in usages:
        raise BadSpec(
            f"job {spec.name!r} trains {configuration}, which has neither a profile nor columns {columns}"
        )
    return usages[configuration]


def complete_jobs(specs: Sequence[Submission], config: SimulationConfig) -> list[Submission]:
    """Give each job a random configuration that has a profile, drawn by `config.seed`.

    Each job also gets a user and a job name that depend on the job's duration, so that durations can be
    predicted from them: as Lucid's authors found, users submit similar jobs repeatedly.
    """
    rng = random.Random(config.seed)
    configs = sorted(measurements(config)[0])
    return [_as_config(spec, rng.choice(configs), rng) for spec in specs]


def make(name: str, config: SimulationConfig) -> Setup:
    """Return a new policy of this name with its speed model and interval."""
    speed = _pair_speed(config)
    if name == "tiresias":
        tiresias = RankedPolicy(
            "tiresias",
            lambda job, now_s: (job.attained_s(now_s) * job.spec.gpus > TIRESIAS_GPU_S, job.order),
            moves=Preemption.PREEMPT,
            quantum_s=60.0,
        )
        return Setup(tiresias, speed, interval_s=60)
    policy: Policy = BASELINES[name]() if name in BASELINES else _lucid(name, config)
    return Setup(policy, speed)


FAMILY = Family(
    "speeds of measured pairs of jobs, from --profiles and --pairs FILE, or of synthetic ones",
    {
        "lucid": "profiles jobs, and by their profiles lets two share GPUs (Lucid, ASPLOS'23)",
        "online": "lucid without known durations: learns durations and arrivals while it runs",
        "fifo": "first in, first out",
        "sjf": "shortest job first",
        "srtf": "shortest remaining time first",
        "qssf": "least predicted service first",
        "tiresias": f"two queues, {TIRESIAS_GPU_S} GPU seconds in the first; decides every minute",
    },
    make,
    complete_jobs,
    declared_settings(LucidOptions),
    main=("lucid", "online"),
)


@lru_cache(maxsize=4)
def _measurements(
    profiles: Path | None, pairs: Path | None, seed: int
) -> tuple[dict[Config, GpuUsage], list[Pair]]:
    if profiles is None and pairs is None:
        usages = make_usages(20, seed=seed)
        return usages, make_pairs(usages, seed=seed)
    if profiles is None or pairs is None:
        raise BadSpec("--profiles and --pairs need each other: give both or neither")
    with raising_bad_trace(profiles):
        usages = read_usages(profiles)
    with raising_bad_trace(pairs):
        return usages, read_pairs(pairs)


@lru_cache(maxsize=256)
def _tree(profiles: Path | None, pairs: Path | None, seed: int, without: GpuUsage | None) -> PackingTree:
    usages, measured = _measurements(profiles, pairs, seed)
    sizes = sizes_from_pairs(measured)
    known = [(usage, sizes[c]) for c, usage in usages.items() if c in sizes and usage != without]
    return grow(known, seed=seed)


def _as_config(spec: Submission, configuration: Config, rng: random.Random) -> Submission:
    habit = round(math.log2(spec.duration_s) + rng.gauss(0, 0.5))
    extra = {
        "dataset": configuration.dataset,
        "amp": str(int(configuration.mixed_precision)),
        "jobname": f"job{habit}-v{rng.randint(1, 9)}",
    }
    return replace(
        spec, model=configuration.model, batch=configuration.batch, user=f"user{habit % 7}", extra=extra
    )


def _lucid(name: str, config: SimulationConfig) -> Policy:
    node_gpus = config.cluster.servers[0].gpus
    options = replace(resolve_options(LucidOptions, config), node_gpus=node_gpus, seed=config.seed)

    def measure(job: JobState) -> GpuUsage:
        return usage_of(job.spec, config)

    packing_tree(config)  # raises an error now, and not at the first job, if no tree can be trained

    def analyse(usage: GpuUsage) -> Size:
        return packing_tree(config, usage).predict(usage)

    if name == "online":
        return OnlineLucid(options, measure=measure, analyse=analyse)
    sharing = Sharing(options.capacity or None)
    return LucidPolicy(
        options,
        estimate=lambda job: job.spec.estimate_s or job.spec.duration_s,
        measure=measure,
        analyse=analyse,
        sharing=lambda now_s, idle: sharing,
    )


class _MadeUpSpeed(PairSpeed):
    """Speed model of pairs without measurements: speeds are computed from the GPU usage of both jobs."""

    def __init__(self, config: SimulationConfig) -> None:
        super().__init__((), restart_s=USUAL_COST.of)
        self._background = config

    def _pair(self, one: Submission, other: Submission) -> tuple[float, float]:
        return pair_speeds(usage_of(one, self._background), usage_of(other, self._background))


def _pair_speed(config: SimulationConfig) -> SpeedModel:
    if config.pairs is None:
        return _MadeUpSpeed(config)
    return PairSpeed(measurements(config)[1], restart_s=USUAL_COST.of)
