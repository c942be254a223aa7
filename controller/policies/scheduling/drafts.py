"""Assign GPUs to groups: running groups stay on their GPUs, new groups get free GPUs."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from controller.policies.scheduling.placement import FreeGpuCounts, FreeGpus
from controller.policies.scheduling.policy import Group, JobState, View
from controller.vocabulary import Cluster


@dataclass(frozen=True, slots=True)
class Draft:
    """A group that has no GPUs yet; the attributes are `Group`'s."""

    jobs: tuple[JobState, ...]
    fused: bool = False
    stage_order: tuple[int, ...] = ()
    efficiency: float | None = None
    reason: str = ""

    @property
    def gpus(self) -> int:
        """Number of GPUs that the jobs of the group share."""
        return self.jobs[0].spec.gpus

    def same_members(self, group: Group) -> bool:
        """Return whether `group` has the same members."""
        return len(self.jobs) == len(group.jobs) and {*self.jobs} == {*group.jobs}

    def on(self, gpus: tuple[int, ...]) -> Group:
        """Return the draft as a group on these GPUs."""
        return Group(
            self.jobs,
            gpus,
            fused=self.fused,
            stage_order=self.stage_order,
            efficiency=self.efficiency,
            reason=self.reason,
        )


def place(drafts: Iterable[Draft], view: View) -> list[Group]:
    """Assign GPUs to groups without GPUs; return the groups that fit, in the order of `drafts`.

    Groups earlier in `drafts` get GPUs first. A group with the members of a running group stays on the
    running group's GPUs; the running group's object is returned. A group that is not fused stays on the GPUs
    of its first job, even if its other members change. If the free GPUs are then too scattered for the new
    groups, all groups are placed again, large groups first, and some running groups move. Groups that fit in
    neither attempt are left out.
    """
    counts = FreeGpuCounts(view.cluster)
    kept: list[Draft] = []
    refused: set[int] = set()  # sizes for which there is no room any more
    for draft in drafts:
        gpus = draft.gpus
        if gpus in refused:
            continue
        if counts.allocate(gpus):
            kept.append(draft)
            if not counts.free:
                break
        else:
            refused.add(gpus)
    before = {job.order: group for group in view.groups for job in group.jobs}
    placed: dict[int, Group] = {}
    fresh: list[tuple[int, Draft]] = []
    homes: set[int] = set()  # groups that stay, by their first GPU
    for number, draft in enumerate(kept):
        old = before.get(draft.jobs[0].order)
        same = old is not None and draft.same_members(old)
        if old is None or old.gpus[0] in homes or (draft.fused and not same):
            fresh.append((number, draft))
        else:
            homes.add(old.gpus[0])
            placed[number] = old if same else draft.on(old.gpus)
    if fresh and not _fill(fresh, _beside(placed.values(), view.cluster), placed):
        placed = {}
        _fill(list(enumerate(kept)), FreeGpus(view.cluster), placed)
        for number, group in placed.items():
            old = before.get(group.jobs[0].order)
            if old is not None and old.gpus == group.gpus and kept[number].same_members(old):
                placed[number] = old
    return [placed[number] for number in sorted(placed)]


def _beside(groups: Iterable[Group], cluster: Cluster) -> FreeGpus:
    """Return the GPUs of `cluster` that `groups` leave free."""
    slots = FreeGpus(cluster)
    for group in groups:
        slots.reserve(group.gpus)
    return slots


def _fill(drafts: list[tuple[int, Draft]], slots: FreeGpus, placed: dict[int, Group]) -> bool:
    """Assign free GPUs in `slots` to the drafts, large ones first; return whether all drafts fit.

    `drafts` are pairs of number and draft. The groups are added to `placed`, by the draft's number.
    """
    complete = True
    for number, draft in sorted(drafts, key=lambda entry: -entry[1].gpus):
        gpus = slots.allocate(draft.gpus)
        if gpus is None:
            complete = False
        else:
            placed[number] = draft.on(gpus)
    return complete
