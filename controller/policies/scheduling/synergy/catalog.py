"""Synthetic training tasks, to try the allocators without traces."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from controller.policies.scheduling.synergy.demand import Demand, Servers, ServerShape, demand
from controller.policies.scheduling.synergy.errors import BadDemand
from controller.policies.scheduling.synergy.matrix import Sensitivity
from controller.policies.scheduling.synergy.matrix_csv import ModelProfile
from controller.policies.scheduling.synergy.profiling import Dataset, profile


@dataclass(frozen=True, slots=True)
class Task:
    """A sample takes `prepare_ms` on one CPU and `train_ms` on one GPU, which overlap."""

    kind: str
    prepare_ms: float
    train_ms: float
    dataset: Dataset

    def samples_per_s(self, cpus: int) -> float:
        """Return the throughput of one GPU with `cpus` CPUs, if storage is no limit."""
        return min(cpus * 1000 / self.prepare_ms, 1000 / self.train_ms)


IMAGES = Dataset(samples=1_200_000, sample_mb=0.11)
SOUNDS = Dataset(samples=300_000, sample_mb=0.6)
TEXTS = Dataset(samples=4_000_000, sample_mb=0.002)

TASKS: Mapping[str, Task] = {
    "image-small": Task("image", 6.0, 0.5, IMAGES),
    "image-medium": Task("image", 6.0, 0.8, IMAGES),
    "image-large": Task("image", 6.0, 1.6, IMAGES),
    "text-recurrent": Task("text", 0.4, 3.0, TEXTS),
    "text-attention": Task("text", 0.5, 5.0, TEXTS),
    "sound-small": Task("sound", 15.0, 2.5, SOUNDS),
    "sound-large": Task("sound", 15.0, 5.0, SOUNDS),
}


def profile_all(
    *, max_cpus: int = 24, fair_memory_gb: float = 62.5, bandwidth_mbps: float = 62.5
) -> dict[str, Sensitivity]:
    """Profile every task up to `max_cpus` CPUs, at multiples of a fair share of memory."""
    memory = [fair_memory_gb * part for part in (1 / 3, 1, 2, 3, 4)]
    return {
        name: profile(
            task.samples_per_s,
            max_cpus=max_cpus,
            memory_gb=memory,
            dataset=task.dataset,
            bandwidth_mbps=bandwidth_mbps,
        ).sensitivity
        for name, task in TASKS.items()
    }


def model_profiles(server: ServerShape | Servers) -> dict[str, ModelProfile]:
    """Return every task's profile as measured ones are stored: its matrix, and the share for full speed."""
    matrices = profile_all(max_cpus=int(server.most(1)[0]), fair_memory_gb=server.fair_memory_gb)
    made = {}
    for name, matrix in matrices.items():
        ideal = demand(name, 1, matrix, server).ideal
        made[name] = ModelProfile(name, matrix, 1, 1.0, ideal.speed, ideal.cpus, ideal.memory_gb)
    return made


def draw(
    matrices: Mapping[str, Sensitivity],
    kinds: Mapping[str, Sequence[str]],
    mix: Mapping[str, float],
    *,
    gpus: int,
    server: ServerShape,
    seed: int,
    sizes: Sequence[int] = (1,),
    prune: bool = True,
) -> list[Demand]:
    """Draw random jobs until they have `gpus` GPUs.

    A job's kind is drawn by `mix`, one of its matrices and a size uniformly. The last job is reduced to one
    GPU if it would be too large.

    Args:
        matrices: Sensitivity matrices by name.
        kinds: Names of the matrices of each kind.
        mix: Weight of each kind.
        gpus: Number of GPUs that the jobs have together.
        server: The shape of the servers.
        seed: Of the draws.
        sizes: Numbers of GPUs of a job.
        prune: Leave out pointless options; see `demand`.

    Raises BadDemand if the mix names no kind.
    """
    unknown = [k for k in mix if not kinds.get(k)]
    if unknown or sum(mix.values()) <= 0:
        raise BadDemand(
            f"a mix of {dict(mix)}; want positive weights for some of the kinds {', '.join(kinds)}"
        )
    rng = random.Random(seed)
    jobs: list[Demand] = []
    left = gpus
    while left > 0:
        name = rng.choice(kinds[rng.choices(list(mix), list(mix.values()))[0]])
        size = rng.choice(sizes)
        size = size if size <= left else 1
        left -= size
        jobs.append(demand(f"{len(jobs)}-{name}", size, matrices[name], server, prune=prune))
    return jobs
