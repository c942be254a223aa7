"""The running groups and their jobs, and how a decision changes them.

Jobs of a fused group start and stop together; other jobs start and stop independently. A job continues
without a restart if the policy's next decision contains the job's group again, as the same `Group` object or
an equal one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import filterfalse

from controller.core.desired import Run
from controller.policies.scheduling.errors import BadDecision
from controller.policies.scheduling.policy import Group, JobState, SpeedModel
from controller.vocabulary.lists import by_key

# ---------------------------------------------------------------------------
# Limit the jobs per GPU: real GPUs hold few processes at a time.


def with_room(groups: Sequence[Group], sharing: int) -> tuple[list[Group], list[JobState]]:
    """Remove jobs from groups until no GPU has more than `sharing` jobs.

    Jobs that do not run yet are removed first. Returns the remaining groups and the removed jobs. A
    group that has lost no job is returned unchanged.
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
            group = group.only([job for job in group.jobs if job not in out])
        if group.jobs:
            kept[position] = group
            jobs_on |= {gpu: jobs_on.get(gpu, 0) + len(group.jobs) for gpu in group.gpus}
    return [kept[position] for position in sorted(kept)], left_out


def _runs(jobs: Sequence[JobState]) -> bool:
    return any(job.group is not None for job in jobs)


def _ignore(job: JobState) -> None:
    """Do nothing: the default of `foreseen`."""


class RunningGroups:
    """The groups that run.

    Args:
        speed: Predicts how fast jobs run.
        reported: Whether jobs report their speed; a reported speed replaces the predicted speed.
        foreseen: Called with each job whose predicted end has changed.
    """

    def __init__(
        self,
        speed: SpeedModel,
        *,
        reported: bool = False,
        foreseen: Callable[[JobState], None] | None = None,
    ) -> None:
        self.groups: list[Group] = []
        self.jobs: list[JobState] = []
        self._speed = speed
        self._reported = reported
        self._foreseen = foreseen or _ignore
        self._known: set[Group] = set()  # elements of `groups`
        self._held = self._shared = 0  # their GPUs, and how many have neighbours
        self._epoch = 0
        self._starts = 0
        self.moved: set[JobState] = set()
        """Jobs that have started, stopped or moved to another group since the core last cleared this set."""
        self._starts_of: dict[JobState, tuple[int, int]] = {}  # last start, and stage where it begins

    def change_to(
        self, groups: list[Group], now_s: float, reset: Sequence[JobState] = (), policy: str = ""
    ) -> None:
        """Run `groups` from now on, and stop all other groups.

        Args:
            groups: The groups to run. A group object that already runs continues unchanged.
            now_s: Time of the change.
            reset: Jobs that lose their progress and restart at iteration 0.
            policy: Name of the scheduling policy, for error messages.

        Raises BadDecision if a job is in two groups.
        """
        if groups == self.groups and not reset:  # the same objects: all goes on
            self.groups = groups
            return
        known = self._known
        for job in reset:  # first: the same decision may start them anew
            if job.group is not None:
                self._forget(job.group)
                del self._starts_of[job]
                self.jobs.remove(job)
                job.halt(now_s)
                self.moved.add(job)
            job.reset(now_s)
        now = {*groups}
        fresh = [*filterfalse(known.__contains__, groups)]
        self._epoch += 1
        if len(now) < len(groups):
            raise BadDecision(f"{policy} has the same group twice")
        for group in fresh:
            for job in group.jobs:
                if job.stamp == self._epoch or (job.group is not group and job.group in now):
                    raise BadDecision(f"{policy} runs job {job.spec.name!r} twice")
                job.stamp = self._epoch
                if job.group is None:
                    self.jobs.append(job)
            self._carry_out(group, now_s)
            self.moved.update(group.jobs)
            self._held += len(group.gpus)
            self._shared += bool(group.neighbours)
        if len(now) - len(fresh) < len(known):
            self._stop(known - now, now_s)
        self.groups, self._known = groups, now

    def predict_by(self, speed: SpeedModel) -> None:
        """Replace the model that predicts speeds, for jobs that start from now on."""
        self._speed = speed

    def _stop(self, groups: set[Group], now_s: float) -> None:
        """Stop the jobs of `groups`, except jobs that this change has moved to another group."""
        for group in groups:
            self._held -= len(group.gpus)
            self._shared -= bool(group.neighbours)
            for job in group.jobs:
                if job.stamp != self._epoch and job.group is group:
                    del self._starts_of[job]
                    self.jobs.remove(job)
                    job.halt(now_s)
                    self.moved.add(job)

    def _know(self, group: Group) -> None:
        self._known.add(group)
        self._held += len(group.gpus)
        self._shared += bool(group.neighbours)

    def _forget(self, group: Group) -> None:
        if group in self._known:
            self._known.remove(group)
            self._held -= len(group.gpus)
            self._shared -= bool(group.neighbours)

    @property
    def held_gpus(self) -> int:
        """Number of GPUs that jobs hold; a GPU shared by several groups counts once."""
        if self._shared:
            return len({gpu for group in self.groups for gpu in group.gpus})
        return self._held

    def _carry_out(self, group: Group, now_s: float) -> None:
        """Start or restart the jobs of `group`; jobs that can go on only get their new group and speed."""
        speeds = self._speed.iteration_s(group)
        as_one = len(group.jobs) > 1 and together(group)
        costs: Sequence[float] | None = None
        number = -1
        for at, job in enumerate(group.jobs):
            old = job.group
            # jobs listed after one that starts pay for a start, too, unless real jobs report their speed
            again = costs is not None and (as_one or not self._reported)
            if again or old is None or _restarts(old, group):
                if costs is None:
                    costs = self._speed.restart_s(group)
                if number < 0 or not as_one:
                    number = self._starts
                    self._starts += 1
                order = group.stage_order
                self._starts_of[job] = number, order[at] if order else at if group.fused else 0
                job.launch(now_s, group, speeds[at], costs[at])
            elif job.iteration_s == speeds[at] or (self._reported and {*old.jobs} == {*group.jobs}):
                job.group = group
                continue
            else:
                job.retune(now_s, group, speeds[at])
            self._foreseen(job)

    def leave(self, job: JobState, now_s: float) -> None:
        """Remove a job that is over or lost its workers from its group; the group's other jobs continue."""
        group = job.group
        assert group is not None
        self.moved.update(group.jobs)
        self.jobs.remove(job)
        del self._starts_of[job]
        position = self.groups.index(group)
        self._forget(group)
        smaller = group.without(job)
        if smaller is None:
            del self.groups[position]
            return
        self.groups[position] = smaller
        self._know(smaller)
        if self._reported:  # the partners report their speed without this job
            for member in smaller.jobs:
                member.group = smaller
            return
        # without a policy's decision the partners share their resources among themselves
        for member, iteration_s in zip(smaller.jobs, self._speed.iteration_s(smaller), strict=True):
            member.retune(now_s, smaller, iteration_s)
            self._foreseen(member)

    def pace(self, job: JobState, iteration_s: float, now_s: float) -> None:
        """Set the seconds that a running job takes for an iteration from now on."""
        assert job.group is not None
        job.retune(now_s, job.group, iteration_s)
        self._foreseen(job)

    def alone_pace(self, job: JobState) -> float:
        """Return the time of one iteration of a job in its group, in seconds, as the speed model predicts."""
        assert job.group is not None
        return self._speed.iteration_s(job.group)[job.group.jobs.index(job)]

    def runs(self, absent: Iterable[JobState] = ()) -> list[Run]:
        """Return the runs without the jobs in `absent`, which hold GPUs but have no servers."""
        without = {*absent}
        found = []
        for group in self.groups:
            present = (job for job in group.jobs if job not in without)
            for number, jobs in by_key((self._starts_of[job][0], job) for job in present).items():
                names = tuple(job.spec.name for job in jobs)
                offsets = tuple(self._starts_of[job][1] for job in jobs)
                found.append(Run(number, names, group.gpus, offsets, group.reason))
        return found


def together(group: Group) -> bool:
    """Return whether the members of a group run in one process, and so start and stop together."""
    return group.fused or bool(group.stage_order)


def _restarts(old: Group, new: Group) -> bool:
    """Return whether a job must restart when its group changes from `old` to `new`."""
    if old.gpus != new.gpus:
        return True
    was, is_ = together(old), together(new)
    if not (was or is_):
        return False
    return {*old.jobs} != {*new.jobs} or (was != is_ and len(new.jobs) > 1)
