"""``benchmarks.replicas.lucid:POLICY``: the rules of Lucid's public simulator, to the digit.

It goes through time second by second. The policies that count a job down (all but FIFO, SJF and QSSF) take a
second more for it; so their jobs are a second longer (`counting_down`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from benchmarks.replicas.lucid.rules import (
    HeadOfLine,
    LucidReplica,
    LucidReplicaSpeed,
    Profiling,
    Quota,
    Scored,
    StopOverhead,
    counting_down,
    remaining_with_overhead,
    two_queues,
)
from benchmarks.replicas.steps import SteppedRun
from controller.policies.family import Family, SimulationConfig, raising_bad_trace
from controller.policies.scheduling.errors import BadSpec
from controller.policies.scheduling.lucid.family import (
    Config,
    complete_jobs,
    config_by_columns,
    measurements,
    read_labels,
    usage_of,
)
from controller.policies.scheduling.lucid.usage import Size, sizes_from_pairs
from controller.policies.scheduling.policy import JobState, Policy, SpeedModel, Submission
from controller.simulator.engine import PolicyRun

GPU_MEMORY_MB = 24_576
PROFILER_NODES, PROFILED_GPUS, PROFILE_S = 2, 4, 80.0
TIRESIAS_GPU_S = 18_000
UNPREDICTED_S = 1000.0
"""Duration that the public simulator takes for a job without a prediction."""


def restart_s(gpus: int) -> float:
    """Return the cost of a preemption, in seconds."""
    return 40.0 if gpus <= 8 else 60.0


def make(name: str, config: SimulationConfig) -> PolicyRun:
    """Return a fresh policy run."""
    match name:
        case "fifo":
            return _setup(HeadOfLine(name, lambda job: job.order))
        case "sjf":
            return _setup(HeadOfLine(name, lambda job: job.spec.duration_s))
        case "qssf":
            return _setup(HeadOfLine(name, _service, rank_new=lambda job: job.spec.gpus))
        case "srtf":
            return _setup(Quota(name, remaining_with_overhead(restart_s)), prepare=counting_down)
        case "tiresias":
            ranks = two_queues(TIRESIAS_GPU_S)
            return _setup(Quota(name, ranks, running_first=True, period_s=60), prepare=counting_down)
        case _:
            return _lucid(config)


FAMILY = Family(
    "as Lucid's public simulator has them, to the digit; --profiles and --pairs FILE, or made-up ones",
    {
        "fifo": "first in, first out: the head of the queue blocks, as in sjf and qssf",
        "sjf": "shortest job first",
        "qssf": "least expected service first",
        "srtf": "shortest remaining time first",
        "tiresias": "attained service in two queues; decides every minute",
        "lucid": "two nodes profile; by expected service, first a partner, else a node",
    },
    make,
    complete_jobs,
)


def _setup(
    policy: Policy,
    speed: SpeedModel | None = None,
    *,
    prepare: Callable[[Sequence[Submission]], Sequence[Submission]] = list,
) -> PolicyRun:
    return SteppedRun(policy, speed or StopOverhead(restart_s), 1, prepare)


def _service(job: JobState) -> float:
    return (job.spec.estimate_s or UNPREDICTED_S) * job.spec.gpus


def _lucid(config: SimulationConfig) -> PolicyRun:
    sizes = _sizes(config)

    def scored(job: JobState) -> Scored:
        configuration = config_by_columns(job.spec)
        if configuration not in sizes:
            raise BadSpec(
                f"job {job.spec.name!r} trains {configuration}, which has no sharing score: neither"
                " --profiles"
                " nor --pairs has it"
            )
        return Scored(_service(job), sizes[configuration], usage_of(job.spec, config).memory_mb)

    gpus = sum(node.gpus for node in config.cluster.servers[-PROFILER_NODES:])
    profiling = Profiling(nodes=PROFILER_NODES, limit_s=PROFILE_S, max_gpus=min(PROFILED_GPUS, gpus))
    return _setup(
        LucidReplica(scored, gpu_memory_mb=GPU_MEMORY_MB, profiling=profiling),
        LucidReplicaSpeed(measurements(config)[1], config_by_columns),
        prepare=lambda specs: [
            spec if profiling.ends(spec) else counted
            for spec, counted in zip(specs, counting_down(specs), strict=True)
        ],
    )


def _sizes(config: SimulationConfig) -> dict[Config, Size]:
    """Return the sharing scores: the profiles' authors' scores, or else scores from the pairs."""
    given: dict[Config, Size] = {}
    if config.profiles is not None:
        with raising_bad_trace(config.profiles):
            given = read_labels(config.profiles)
    return given or sizes_from_pairs(measurements(config)[1])
