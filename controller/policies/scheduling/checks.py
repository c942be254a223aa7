"""Checks of a policy's decision; they are optional, because they take longer than the decision."""

from __future__ import annotations

from controller.policies.scheduling.errors import BadDecision
from controller.policies.scheduling.policy import Decision, View
from controller.vocabulary.errors import plural
from controller.vocabulary.lists import by_key

ROUNDING = 1e-6
"""Tolerance of the sums of granted CPUs and memory, which allocators compute from fractions of servers."""


def check(decision: Decision, view: View, policy: str) -> None:
    """Raise BadDecision if `decision` uses a GPU or a job twice, or a job that has ended or does not exist.

    A GPU may be in two groups only if their jobs name each other as neighbours. Other errors are a wrong
    number of GPUs, and more CPUs or memory granted than a server has.
    """
    seen: set[int] = set()
    for group in decision.groups:
        if not group.jobs:
            raise BadDecision(f"{policy}: there is no job in the group on GPUs {group.gpus}")
        if len(set(group.gpus)) != len(group.gpus) or not all(
            0 <= gpu < len(view.cluster.node_of) for gpu in group.gpus
        ):
            raise BadDecision(
                f"{policy}: wrong GPUs {group.gpus} of {group.jobs}; the cluster has {view.cluster.gpus}"
            )
        for job in group.jobs:
            if view.jobs.get(job.spec.name) is not job:
                raise BadDecision(f"{policy}: {job} is not among the unfinished jobs")
            if job.order in seen:
                raise BadDecision(f"{policy}: {job} runs twice")
            seen.add(job.order)
            if job.spec.gpus != len(group.gpus):
                raise BadDecision(
                    f"{policy}: {job} needs {plural(job.spec.gpus, 'GPU')}, got {len(group.gpus)}"
                )
    holders = by_key((gpu, group) for group in decision.groups for gpu in group.gpus)
    for gpu, groups in holders.items():
        for group in groups:
            allowed = {job.order for job in (*group.jobs, *group.neighbours)}
            for other in groups:
                if other is not group and not {job.order for job in other.jobs} <= allowed:
                    raise BadDecision(f"{policy}: GPU {gpu} goes to {group.jobs} and to {other.jobs}")
    for node, capacity in enumerate(view.cluster.servers):
        _check_node(decision, policy, view.cluster.gpus_of[node], capacity.cpus, capacity.memory_gb)


def _check_node(decision: Decision, policy: str, gpus: range, cpus: float, memory_gb: float) -> None:
    used_cpus = used_gb = 0.0
    for group in decision.groups:
        if group.cpus or group.memory_gb:
            share = sum(gpu in gpus for gpu in group.gpus) / len(group.gpus)
            used_cpus += share * sum(group.cpus)
            used_gb += share * sum(group.memory_gb)
    if used_cpus > cpus * (1 + ROUNDING) + ROUNDING or used_gb > memory_gb * (1 + ROUNDING) + ROUNDING:
        raise BadDecision(
            f"{policy}: GPUs {gpus.start}-{gpus.stop - 1}: {used_cpus:g} of {cpus:g} CPUs"
            f" and {used_gb:g} of {memory_gb:g} GB granted"
        )
