"""Limit the jobs per GPU: real GPUs hold few processes at a time."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from controller.policies.scheduling.policy import Group, JobState


def with_room(groups: Sequence[Group], sharing: int) -> tuple[list[Group], list[JobState]]:
    """Return groups with at most `sharing` jobs on each GPU, and the jobs left out; running jobs come first.

    Groups that lose no member are returned unchanged.
    """
    jobs_on: dict[int, int] = {}
    kept: dict[int, Group] = {}
    left_out: list[JobState] = []
    for position in sorted(range(len(groups)), key=lambda each: not _runs(groups[each].jobs)):
        group = groups[position]
        room = sharing - max(jobs_on.get(gpu, 0) for gpu in group.gpus)
        if len(group.jobs) > room:
            out = sorted(group.jobs, key=lambda job: job.group is None)[max(room, 0) :]
            left_out += out
            group = only(group, [job for job in group.jobs if job not in out])
        if group.jobs:
            kept[position] = group
            jobs_on |= {gpu: jobs_on.get(gpu, 0) + len(group.jobs) for gpu in group.gpus}
    return [kept[position] for position in sorted(kept)], left_out


def only(group: Group, jobs: Collection[JobState]) -> Group:
    """Return the group with these of its members."""
    kept = [at for at, job in enumerate(group.jobs) if job in jobs]
    return Group(
        tuple(group.jobs[at] for at in kept),
        group.gpus,
        tuple(group.cpus[at] for at in kept) if group.cpus else (),
        tuple(group.memory_gb[at] for at in kept) if group.memory_gb else (),
        fused=group.fused,
        neighbours=group.neighbours,
        stage_order=tuple(group.stage_order[at] for at in kept) if group.stage_order else (),
        reason=group.reason,
    )


def _runs(jobs: Sequence[JobState]) -> bool:
    return any(job.group is not None for job in jobs)
