"""Interference models, and measured pairs: the speed of a job beside others, relative to its speed alone.

All sources of such speeds have the same interface, `InterferenceModel`: the true speeds (`pairs.Scaling`),
measurements of them (`pairs.NoisyInterference`), and the forests' predictions (`forests.Forests`). A
policy works with any of these sources. `InterferenceSpeed` makes such a source the simulator's speed model.

Errors of sharing for heterogeneous job sizes::

    SchedulingError
    └── SharingError
        ├── BadMeasurement  invalid speeds, reference jobs or profile
        └── BadTraining     too little to train on, or options out of range

Pairs of jobs on one GPU are measured ones from published files, or synthetic ones.

The module reads files of two public sources, which are not part of this project: Lucid's co-location profiles
(speeds relative to running alone; see `scheduling.lucid.family`), and Gavel's throughputs of pairs (steps
per second).

`Scaling` derives the speeds of jobs of any sizes from pairs on one GPU. Simulations use these speeds as the
truth, but they are not measured: no public data set has jobs with several GPUs on shared GPUs. A job that is
synchronous over ``g`` GPUs is in its allreduce for the fraction ``n = 1 - 1 / (1 + s log2 g)`` of an
iteration; ``s`` depends on the job's kind. Another job can use the GPUs in this time. So the slowdown of a
pair on one GPU, ``1/v - 1``, applies only while both jobs compute. While both use the network, they take
turns. Of several neighbours k, only the one that slows the job down most counts, because all GPUs wait for
the slowest. The more GPUs ``b`` are shared, the more often one of them is late:

    1 / speed = 1 + (1 + jitter log2 b) max_k [ (1/v_k - 1) (1 - n) (1 - n_k) + n n_k ]
"""

from __future__ import annotations

import ast
import json
import math
import random
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, Protocol

from controller.policies.scheduling.errors import BadInput, BadTrace, SchedulingError
from controller.policies.scheduling.lucid.family import Config, read_pairs
from controller.policies.scheduling.policy import Group, SpeedModel, Submission
from controller.policies.scheduling.speed import USUAL_COST, PreemptionCost


class SharingError(SchedulingError):
    """Base class of this package's errors."""


class BadMeasurement(SharingError, BadInput):
    """Invalid measurements."""


class BadTraining(SharingError):
    """Too little to train on, or options out of range."""


class Load(NamedTuple):
    """What a job's interference depends on: its kind (usually its model) and number of GPUs."""

    kind: str
    gpus: int


def load_of(spec: Submission) -> Load:
    """Return the load of a job, whose kind is the name of its model."""
    return Load(spec.model, spec.gpus)


class InterferenceModel(Protocol):
    """A source of jobs' speeds beside other jobs; 1 is a job's speed alone."""

    @property
    def kinds(self) -> Collection[str]:
        """The known kinds."""

    def speed(self, load: Load, beside: Sequence[Load]) -> float:
        """Return the speed of `load` when each of its GPUs has at most one of the jobs `beside`.

        Of any two jobs that share GPUs, the larger one uses all GPUs of the smaller one. The order of
        `beside` does not matter. The speed is 1 if `beside` is empty, and 0 if the jobs do not fit into the
        GPUs' memory together.
        """


class InterferenceSpeed(SpeedModel):
    """Speed model: jobs that share GPUs, or a server, slow each other down as `interference` says.

    A first start is free; every further start costs as much as a preemption. Jobs that together do not fit
    into memory take turns, which favours policies that ignore memory.
    """

    def __init__(
        self,
        interference: InterferenceModel,
        *,
        load_of: Callable[[Submission], Load] = load_of,
        cost: PreemptionCost = USUAL_COST,
    ) -> None:
        self._interference = interference
        self._load_of = load_of
        self._cost = cost

    def iteration_s(self, group: Group) -> Sequence[float]:
        """Return the seconds per iteration of each member: its time alone divided by its speed."""
        loads = [self._load_of(job.spec) for job in group.jobs]
        others = [self._load_of(job.spec) for job in group.neighbours]
        speeds = [
            self._interference.speed(load, loads[:number] + loads[number + 1 :] + others)
            for number, load in enumerate(loads)
        ]
        turns = 1.0 / (len(loads) + len(others))
        return [job.alone_s / (speed or turns) for job, speed in zip(group.jobs, speeds, strict=True)]

    def restart_s(self, group: Group) -> Sequence[float]:
        """Return the cost of a start for each member, in seconds; 0 for a member that has not run before."""
        return [self._cost.of(job.spec.gpus) if job.starts else 0.0 for job in group.jobs]


class Pairs(Protocol):
    """Speeds of two jobs on one GPU."""

    @property
    def kinds(self) -> Collection[str]:
        """All kinds of jobs; the speeds of every pair of kinds are known."""

    def beside(self, kind: str, other: str) -> float:
        """Return the speed of `kind` beside `other`, relative to its speed alone.

        A speed of 0 means that the two jobs together do not fit into a GPU's memory.
        """


class MeasuredPairs:
    """Pairs from a table of speeds by kind and partner's kind.

    A speed of 0 means that the two do not fit into a GPU's memory. Kinds that were not measured with all
    other kinds are left out, kinds with the fewest partners first. Raises BadMeasurement for a negative
    speed, or if no kind is left.

    >>> MeasuredPairs({("a", "a"): 0.5, ("a", "b"): 0.9, ("b", "a"): 0.8, ("b", "b"): 0.7}).beside("b", "a")
    0.8
    """

    def __init__(self, speeds: Mapping[tuple[str, str], float]) -> None:
        for (kind, other), speed in speeds.items():
            if not (speed >= 0 and math.isfinite(speed)):
                raise BadMeasurement(f"{kind} beside {other} has speed {speed}; it must not be negative")
        self._speeds = speeds
        self.kinds = _complete(speeds)
        if not self.kinds:
            raise BadMeasurement(f"{len(speeds)} pairs, but no kind was measured with all others and itself")

    def beside(self, kind: str, other: str) -> float:
        """Return the measured speed of `kind` beside `other`."""
        return self._speeds[kind, other]


def _complete(speeds: Mapping[tuple[str, str], float]) -> tuple[str, ...]:
    kinds = {name: None for pair in speeds for name in pair}

    def partners(kind: str) -> int:
        return sum((kind, other) in speeds and (other, kind) in speeds for other in kinds)

    while kinds:
        fewest = min(kinds, key=partners)
        if partners(fewest) == len(kinds):
            break
        del kinds[fewest]
    return tuple(kinds)


def name_of(config: Config) -> str:
    """Return the name of the kind of jobs that have one of Lucid's configurations."""
    return "/".join(
        (config.model, config.dataset, str(config.batch), "amp" if config.mixed_precision else "fp")
    )


def read_lucid_pairs(path: Path) -> MeasuredPairs:
    """Read Lucid's co-location profiles. Raises BadTrace, with line and column."""
    speeds = {}
    for pair in read_pairs(path):
        one, other = name_of(pair.one), name_of(pair.other)
        speeds[other, one] = pair.speed_other
        speeds[one, other] = pair.speed_one
    return MeasuredPairs(speeds)


def read_gavel_pairs(path: Path, *, gpu: str = "v100") -> MeasuredPairs:
    """Read the one-GPU pairs of Gavel's `simulation_throughputs.json`.

    A throughput of 0 in the file means that the pair does not fit into a GPU's memory. Raises BadTrace if the
    file has another format.
    """
    try:
        table = json.loads(path.read_text(encoding="utf-8"))[gpu]
        speeds = {}
        for name, row in table.items():
            kind, gpus = ast.literal_eval(name)
            for other_name, throughputs in row.items():
                if gpus != 1 or other_name == "null":
                    continue
                other, _ = ast.literal_eval(other_name)
                fits = min(throughputs) > 0
                speeds[kind, other] = throughputs[0] / row["null"] if fits else 0.0
                speeds[other, kind] = throughputs[1] / table[other_name]["null"] if fits else 0.0
    except OSError:
        raise
    except (ValueError, KeyError, TypeError, IndexError, SyntaxError, AttributeError) as error:
        raise BadTrace(str(path), 0, gpu, f"not a table of Gavel's throughputs: {error!r}") from None
    return MeasuredPairs(speeds)


@dataclass(frozen=True, slots=True)
class KindDemand:
    """A synthetic kind of job: the fractions of an iteration in which it uses each resource of a GPU.

    Attributes:
        compute: Multiprocessors.
        memory: Memory bandwidth.
        host: CPUs and PCIe of the host.
        sensitivity: Factor on the job's slowdown by other jobs, in addition to the effect of the fractions.
        impact: Factor on other jobs' slowdown by the job, in addition to the effect of the fractions.
        held: Fraction of a GPU's memory that the job uses.
    """

    compute: float
    memory: float
    host: float
    sensitivity: float = 1.0
    impact: float = 1.0
    held: float = 0.0


CONTENTION = (1.0, 1.6, 0.7)
"""Factor on the slowdown by an overlap on compute, memory and host; 1: the jobs take turns."""


class MadeUpPairs:
    """Our own model of the interference of pairs, for generated jobs; it is not based on measurements.

    Two jobs with independent phases use resource r at once with a probability that is the product of their
    fractions f of r. Then one job waits. So job j beside job k has the speed
    ``1 / (1 + s_j i_k Σ_r c_r f_jr f_kr)``, with `CONTENTION` c, j's sensitivity s and k's impact i. Two jobs
    that only compute run at half speed. Two jobs that together need more than a GPU's memory have speed 0.
    """

    def __init__(self, demands: Mapping[str, KindDemand]) -> None:
        self._demands = dict(demands)
        self.kinds = tuple(self._demands)

    def beside(self, kind: str, other: str) -> float:
        """Return the speed of `kind` beside `other` by this model."""
        mine, theirs = (self._demands[name] for name in (kind, other))
        if mine.held + theirs.held > 1.0:
            return 0.0
        overlap = sum(
            cost * f * g
            for cost, f, g in zip(
                CONTENTION,
                (mine.compute, mine.memory, mine.host),
                (theirs.compute, theirs.memory, theirs.host),
                strict=True,
            )
        )
        return 1.0 / (1.0 + mine.sensitivity * theirs.impact * overlap)


def make_demands(kinds: Iterable[str], *, seed: int = 0) -> dict[str, KindDemand]:
    """Generate a random demand for each kind of job.

    Some kinds are bound by one resource, some use little of all resources, some are mixed. They need 8 to 83
    % of a GPU's memory, most of them little, like the configurations that Lucid's authors measured.
    """
    rng = random.Random(seed)
    room = random.Random(f"memory {seed}")
    demands = {}
    for kind in kinds:
        parts = [rng.gammavariate(0.5, 1.0) for _ in range(3)]
        busy = rng.uniform(0.5, 1.0) / sum(parts)
        compute, memory, host = (part * busy for part in parts)
        demands[kind] = KindDemand(
            compute,
            memory,
            host,
            sensitivity=math.exp(rng.gauss(0.0, 0.3)),
            impact=math.exp(rng.gauss(0.0, 0.3)),
            held=0.08 + 0.75 * room.random() ** 3,
        )
    return demands


class Scaling:
    """The interference model with the formula in the module's docstring, for jobs of any sizes.

    `sync` has ``s`` of each kind; kinds that are not in `sync` have 0.1.
    """

    def __init__(
        self, pairs: Pairs, sync: Mapping[str, float] | None = None, *, jitter: float = 0.08
    ) -> None:
        self._pairs = pairs
        self.kinds = pairs.kinds
        self._sync = dict(sync or {})
        self._jitter = jitter
        self._known: dict[tuple[Load, tuple[Load, ...]], float] = {}

    def speed(self, load: Load, beside: Sequence[Load]) -> float:
        """Return the speed of `load` beside these jobs by the module's formula; 0 if memory is too small."""
        if not beside:
            return 1.0
        key = load, tuple(sorted(beside))
        if key not in self._known:
            self._known[key] = self._speed(*key)
        return self._known[key]

    def _speed(self, load: Load, beside: tuple[Load, ...]) -> float:
        mine = self._network(load)
        worst = -1.0
        for other in beside:
            theirs = self._network(other)
            alike = self._pairs.beside(load.kind, other.kind)
            if alike == 0.0:
                return 0.0
            wait = 1.0 / alike - 1.0
            worst = max(worst, wait * (1.0 - mine) * (1.0 - theirs) + mine * theirs)
        shared = min(load.gpus, sum(other.gpus for other in beside))
        if worst > 0.0:
            worst *= 1.0 + self._jitter * math.log2(shared)
        return 1.0 / (1.0 + worst)

    def _network(self, load: Load) -> float:
        return 1.0 - 1.0 / (1.0 + self._sync.get(load.kind, 0.1) * math.log2(load.gpus))


def make_sync(kinds: Collection[str], *, seed: int = 0) -> dict[str, float]:
    """Return a random ``s`` for each kind of job, for the formula in the module's docstring."""
    rng = random.Random(seed)
    return {kind: rng.uniform(0.02, 0.2) for kind in kinds}


class NoisyInterference:
    """Measurements of an interference model: each speed times a random factor.

    Repeated measurements of one speed have the same factor.
    """

    def __init__(self, interference: InterferenceModel, noise: float, *, seed: int = 0) -> None:
        self._interference = interference
        self.kinds = interference.kinds
        self._noise = noise
        self._seed = seed

    def speed(self, load: Load, beside: Sequence[Load]) -> float:
        """Return the model's speed of `load` beside the jobs `beside`, with noise."""
        exact = self._interference.speed(load, beside)
        if not beside:
            return exact
        rng = random.Random(f"{self._seed} {load} {sorted(beside)}")
        return exact * math.exp(rng.gauss(0.0, self._noise))
